"""The work for a call does not grow with the number of calls that wait: an overload must not become worse."""

from __future__ import annotations

import sys
from math import inf
from typing import Any

import pytest

from redouble import RateLimit
from redouble._layers.limits.rate.pacing import Ahead, GcraPacer, Pacer
from redouble._layers.limits.rate.wait_queue import Waiter
from redouble._layers.limits.rate.window_pacers import FixedWindowPacer, SlidingWindowPacer
from redouble.testing import virtual_time

pytestmark = pytest.mark.one_python


def work_of(limit: RateLimit, calls: int) -> int:
    """Return how many functions are called while so many calls join the queue, and pass it."""
    queue, waiters = limit._wait_queue, [Waiter() for _ in range(calls)]
    called = [0]

    def count(*_: object) -> None:
        called[0] += 1

    with virtual_time() as clock:
        limit.acquire(limit.settings.most)
        sys.setprofile(count)
        try:
            for waiter in waiters:
                assert queue._try_acquire(waiter)
                assert queue._try_acquire_in_turn(waiter, object, inf)
            for waiter in waiters:
                while (wait := queue._try_acquire_in_turn(waiter, object, inf)) is not None:
                    clock.advance(wait)
                queue._dequeue(waiter)
        finally:
            sys.setprofile(None)
    return called[0]


@pytest.mark.parametrize("window", [None, "sliding", "fixed"])
def test_twice_as_many_calls_are_twice_the_work(window: Any) -> None:
    assert work_of(RateLimit(5, window=window), 200) < 2.3 * work_of(RateLimit(5, window=window), 100)


@pytest.mark.parametrize(
    "pacer", [GcraPacer(1, 5, fast=False), SlidingWindowPacer(5, 10), FixedWindowPacer(5, 10)]
)
def test_calls_of_one_cost_are_not_looked_at_one_by_one(pacer: Pacer) -> None:
    def refuse() -> Any:
        raise AssertionError
        yield

    assert pacer.due(0.0, 2, Ahead({2: 10**9}, refuse())) > 1e9 - 10
