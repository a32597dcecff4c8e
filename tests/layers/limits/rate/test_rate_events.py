"""Events of the rate limits: ``waited`` for a call that had to wait, ``limit_changed`` for a new rate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from redouble import AdaptiveRate, RateLimit, errors
from redouble.testing import VirtualClock, recorded, virtual_time
from redouble.types import Event
from tests.support.fakes import nothing
from tests.support.layers.limits.adaptive_rates import Throttled, throttled
from tests.support.virtual_time import in_virtual_colour


def seen(events: list[Event]) -> list[tuple[Any, ...]]:
    return [
        (event.what, event.by, event.name, event.delay if event.what == "waited" else event.level)
        for event in events
    ]


@pytest.mark.parametrize("following", [False, True])
def test_a_call_that_waited(colour: str, following: bool) -> None:
    limit = RateLimit(2, following=following)

    async def waiting(clock: VirtualClock) -> None:
        for _ in range(3):
            await limit.call(nothing)
        async with limit:
            pass

    def blocking(clock: VirtualClock) -> None:
        for _ in range(3):
            limit.call(int)
        with limit:
            pass

    with recorded() as events:
        in_virtual_colour(colour, blocking, waiting)
    assert seen(events) == [("waited", "rate_limit", "rate_limit", 0.5)] * 3


def test_a_rejected_call_has_not_waited() -> None:
    limit = RateLimit(2, wait=0.2, name="db")
    with virtual_time(), recorded() as events:
        limit.call(int)
        with pytest.raises(errors.RateLimited):
            limit.call(int)
    assert [event.what for event in events] == ["rejected"]


def test_an_adaptive_rate_that_changes() -> None:
    """An event for each noticeable change, none for each small one."""
    gate = AdaptiveRate(Throttled, name="s3")
    with virtual_time() as clock, recorded() as events:
        for _ in range(40):
            gate.call(int)
            clock.advance(0.05)
        assert seen(events) == []
        throttled(gate)
        first = gate.snapshot()["rate"] or 0
        for _ in range(60):
            gate.call(int)
        last = gate.snapshot()["rate"] or 0
    changes = [event for event in seen(events) if event[0] == "limit_changed"]
    assert changes[0] == ("limit_changed", "adaptive_rate", "s3", pytest.approx(first))
    levels = [level for *_, level in changes]
    assert 3 <= len(levels) < 30
    assert levels == sorted(levels)
    assert last == pytest.approx(levels[-1], rel=0.11)
    assert all(abs(b - a) > 0.1 * a for a, b in pairwise(levels))


def test_without_observers_nothing_is_emitted() -> None:
    gate = AdaptiveRate(Throttled)
    with virtual_time():
        throttled(gate)
        with recorded() as events:
            throttled(gate)  # the rate is at its minimum, and no event has said so yet
            throttled(gate)
    assert seen(events) == [
        ("waited", "adaptive_rate", "adaptive_rate", 2),
        ("limit_changed", "adaptive_rate", "adaptive_rate", 0.5),
        ("waited", "adaptive_rate", "adaptive_rate", 2),
    ]


def test_an_answer_without_a_quota_changes_no_limit() -> None:
    limit = RateLimit(10, following=True, name="crawl")
    with virtual_time() as clock, recorded() as events:
        limit.follow({})
        limit.follow({"RateLimit-Remaining": "4", "RateLimit-Reset": "10"})
        clock.advance(20)
        limit.follow({})
    assert [event[3] for event in seen(events)] == [pytest.approx(0.4), 10]


def test_a_reload_changes_a_limit_once() -> None:
    limit = RateLimit(10, wait=1)
    with recorded() as events:
        limit.reconfigure(RateLimit(10, wait=2))
        limit.reconfigure(RateLimit(20, wait=2))
    assert seen(events) == [("limit_changed", "rate_limit", "rate_limit", 20)]
