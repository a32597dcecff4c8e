"""A rate limit that Ctrl-C interrupts anywhere: what it has counted agrees with what it keeps."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest

from redouble import RateLimit
from redouble._layers.limits.rate import pacing, ranked_queue, rate_limit, wait_queue, window_pacers
from redouble.errors import RateLimited
from redouble.testing import virtual_time
from tests.support.interruption import SignalHandler, ctrl_c

pytestmark = pytest.mark.one_python

FILES = {module.__file__ for module in (pacing, ranked_queue, rate_limit, wait_queue, window_pacers)}


def check(limit: RateLimit) -> None:
    """Check the counters of the window and of the queue against what they count."""
    pacer: Any = limit._pacer
    queue: Any = limit._wait_queue
    if limit.settings.shares is not None:
        assert all(waiter in waiter.rate_class.waiting for waiter in queue._queue)
    assert queue._numbers == Counter(waiter.cost for waiter in queue._queue)
    if isinstance(pacer, window_pacers.SlidingWindowPacer):
        assert pacer._used == sum(entry.cost for entry in pacer._entries)


@pytest.mark.parametrize(
    ("window", "shares", "costs"),
    [
        ("sliding", None, (1, 3, 2, 2, 1)),
        ("fixed", None, (1, 3, 2, 2, 1)),
        (None, None, (1, 3, 2, 2, 1)),
        (None, {"a": 0.5}, (3, 2)),  # its order takes many steps
    ],
)
def test_ctrl_c_at_any_point(window: Any, shares: dict[str, float] | None, costs: tuple[int, ...]) -> None:
    """While calls wait, begin, leave and expire."""
    number, more = 0, True
    while more:
        number += 1
        with virtual_time() as clock:
            limit = RateLimit(4, per=10, window=window, burst=1 if window else 4, shares=shares)
            queue: Any = limit._wait_queue

            def work(limit: RateLimit = limit, clock: Any = clock, queue: Any = queue) -> None:
                for cost in costs:
                    limit.acquire(cost)
                clock.advance(12)
                waiters = [queue.new_waiter(cost) for cost in costs[:3]]
                for waiter in waiters:
                    queue._try_acquire_in_turn(waiter, object, inf)
                for waiter in waiters:
                    queue._dequeue(waiter)

            more = SignalHandler(FILES, ctrl_c, number).interrupt(work, KeyboardInterrupt, RateLimited)
            check(limit)
            clock.advance(100)
            queue._queue.clear()
            queue._numbers.clear()
            queue._after_deferred()
            limit.acquire(4)
            check(limit)
    assert number > 50
