"""A `ThreadWaker` wakes once, from any thread, and before or after the wait begins."""

from __future__ import annotations

import threading
from math import inf

import pytest

from redouble._runtime.thread_waker import ThreadWaker
from tests.support.bulkhead_callers import A_MINUTE


def test_it_is_silent_until_it_rings() -> None:
    bell = ThreadWaker()
    assert bell.pending
    bell.wake()
    assert not bell.pending
    bell.wake()
    assert not bell.pending


@pytest.mark.parametrize("seconds", [0, 1000, threading.TIMEOUT_MAX, 1e300, inf])
def test_who_comes_after_it_rang_does_not_wait(seconds: float) -> None:
    bell = ThreadWaker()
    bell.wake()
    bell.wait(seconds)
    assert bell.pending  # that ring is over


@pytest.mark.parametrize("seconds", [0, 0.0, 1e-9])
def test_time_that_runs_out(seconds: float) -> None:
    bell = ThreadWaker()
    bell.wait(seconds)
    assert bell.pending


@pytest.mark.parametrize("seconds", [1000, 1e300, inf])
def test_it_wakes_the_waiting_thread(seconds: float) -> None:
    bell, woken = ThreadWaker(), list[str]()

    def wait() -> None:
        bell.wait(seconds)
        woken.append("up")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert woken == []
    bell.wake()
    thread.join(A_MINUTE)
    assert woken == ["up"]
