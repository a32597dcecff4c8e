"""A `ThreadWaker` wakes once, from any thread, and before or after the wait begins."""

from __future__ import annotations

import threading
from math import inf

import pytest

from redouble._runtime.thread_waker import ThreadWaker
from tests.support.bulkhead_callers import A_MINUTE


def test_a_waker_is_pending_until_it_is_woken() -> None:
    waker = ThreadWaker()
    assert waker.pending
    waker.wake()
    assert not waker.pending
    waker.wake()
    assert not waker.pending


@pytest.mark.parametrize("seconds", [0, 1000, threading.TIMEOUT_MAX, 1e300, inf])
def test_a_wait_after_the_wake_returns_at_once(seconds: float) -> None:
    waker = ThreadWaker()
    waker.wake()
    waker.wait(seconds)
    assert waker.pending  # the wake was consumed


@pytest.mark.parametrize("seconds", [0, 0.0, 1e-9])
def test_a_wait_ends_after_its_timeout(seconds: float) -> None:
    waker = ThreadWaker()
    waker.wait(seconds)
    assert waker.pending


@pytest.mark.parametrize("seconds", [1000, 1e300, inf])
def test_wake_ends_the_wait_of_another_thread(seconds: float) -> None:
    waker, woken = ThreadWaker(), list[str]()

    def wait() -> None:
        waker.wait(seconds)
        woken.append("up")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert woken == []
    waker.wake()
    thread.join(A_MINUTE)
    assert woken == ["up"]
