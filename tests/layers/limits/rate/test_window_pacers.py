"""The windows of a rate limit: when calls pass, costs, hints, memory, and clocks that go back."""

from __future__ import annotations

from math import inf
from typing import Any, cast

import pytest

from redouble._layers.limits.rate.pacing import CLOCK_TOLERANCE, Ahead, GcraPacer
from redouble._layers.limits.rate.window_pacers import EXACT, FixedWindowPacer, SlidingWindowPacer


def even(limit: int, per: float) -> GcraPacer:
    """Return a pacer without a burst."""
    return GcraPacer(per / limit, 1, fast=False)


def burst(limit: int, per: float) -> GcraPacer:
    """Return a pacer that admits all of them at once after a pause."""
    return GcraPacer(per / limit, limit, fast=False)


PACERS: dict[str, Any] = {
    "sliding": SlidingWindowPacer,
    "fixed": FixedWindowPacer,
    "even": even,
    "burst": burst,
}


def passed(pacer: Any, calls: list[Any]) -> list[float]:
    """Return which calls pass: times, or pairs of a time and a cost."""
    moments: list[float] = []
    for call in calls:
        now, cost = cast("tuple[float, float]", call) if isinstance(call, tuple) else (call, 1.0)
        if not pacer.due(now, cost):
            pacer.take(now, cost)
            moments.append(now)
    return moments


def state(pacer: Any) -> dict[str, str]:
    """Return the state of a pacer, to compare it."""
    return {name: str(value) for name, value in cast("dict[str, object]", vars(pacer)).items()}


@pytest.mark.parametrize(
    ("kind", "calls", "moments"),
    [
        # three in any ten seconds
        ("sliding", [0, 0, 0, 0, 9.9, 10, 10, 10, 10], [0, 0, 0, 10, 10, 10]),
        ("sliding", [0, 4, 9, 9.5, 10, 11, 13.9, 14, 18, 19], [0, 4, 9, 10, 14, 19]),
        ("sliding", [5, 100, 100, 100, 100], [5, 100, 100, 100]),
        ("sliding", [0, 10 - 2 * CLOCK_TOLERANCE, 10 - 2 * CLOCK_TOLERANCE, 10 - 2 * CLOCK_TOLERANCE], 3),
        ("sliding", [(0, 2), (1, 2), (1, 1), (10, 2), (11, 1)], [0, 1, 10, 11]),
        ("sliding", [(0, 3), (9, 0.5), (10, 0.5), (10, 2.5), (10, 0.25)], [0, 10, 10]),
        # three in each ten seconds from the first call on
        ("fixed", [7, 7, 7, 7, 16.9, 17, 17, 17, 17, 27], [7, 7, 7, 17, 17, 17, 27]),
        ("fixed", [0, 9, 9, 9, 10, 10, 10, 10], [0, 9, 9, 10, 10, 10]),  # five within a second
        ("fixed", [0, 35, 35, 35, 35, 39, 40], [0, 35, 35, 35, 40]),  # a new window begins at 30, and at 40
        ("fixed", [(0, 2), (1, 2), (1, 1), (10, 3), (11, 1)], [0, 1, 10]),
        ("fixed", [0, 0, 0, 10 - CLOCK_TOLERANCE / 2], [0, 0, 0, 10 - CLOCK_TOLERANCE / 2]),
        # every 10/3 s, at most three at once
        ("burst", [(0, 3), (3, 1), (4, 1), (7, 2), (10, 2), (13, 1)], [0, 4, 10]),
        ("burst", [(0, 0.5), (0, 2.5), (0, 0.1), (0.34, 0.1)], [0, 0, 0.34]),
        ("even", [(0, 0.5), (0, 0.5), (1.7, 0.5), (1.7, 1), (3.4, 1), (5, 1)], [0, 0, 1.7, 5]),
    ],
)
def test_when_calls_pass(kind: str, calls: list[Any], moments: Any) -> None:
    found = passed(PACERS[kind](3, 10), calls)
    assert (len(found) if isinstance(moments, int) else found) == moments


@pytest.mark.parametrize(
    ("kind", "calls", "expected"),
    [
        ("sliding", [0, 1, 2], [10, 10, 11, 12, 20, 21, 22]),
        ("fixed", [0, 1, 2], [10, 10, 10, 10, 20, 20, 20]),
        ("burst", [0, 0, 0], [10 / 3, 10 / 3, 20 / 3, 10]),
    ],
)
def test_when_the_next_calls_pass(kind: str, calls: list[float], expected: list[float]) -> None:
    """``due`` for a call with as many calls ahead."""
    pacer = PACERS[kind](3, 10)
    assert passed(pacer, calls) == calls
    now = calls[-1]
    first, *others = expected
    assert pacer.due(now) == pytest.approx(first - now)
    found = [now + pacer.due(now, 1, Ahead.of([1] * ahead)) for ahead in range(len(others))]
    assert found == pytest.approx(others)


@pytest.mark.parametrize(
    ("kind", "ahead", "cost", "moment"),
    [
        ("sliding", [3], 1, 20),
        ("sliding", [1, 3], 3, 30),
        ("fixed", [2, 2, 2], 1, 30),  # no two of them fit into one window
        ("fixed", [1, 1, 1], 3, 20),
        ("burst", [3], 3, 20),
        ("burst", [2, 1], 1, 40 / 3),
        ("burst", [2, 9], 1, 10),  # one that can never pass is rejected
        ("sliding", [9], 1, 10),
    ],
)
def test_calls_of_any_cost_pass_in_order(kind: str, ahead: list[float], cost: float, moment: float) -> None:
    pacer = PACERS[kind](3, 10)
    pacer.take(0.0, 3)
    before = state(pacer)
    assert pacer.due(0.0, cost, Ahead.of(ahead)) == pytest.approx(moment)
    assert state(pacer) == before


@pytest.mark.parametrize("kind", PACERS)
def test_a_cost_above_the_limit_never_passes(kind: str) -> None:
    pacer = PACERS[kind](3, 10)
    assert pacer.due(0.0, pacer.most + 0.5) == inf
    assert pacer.due(0.0, pacer.most) == 0.0


@pytest.mark.parametrize(
    ("kind", "available"),
    [("sliding", [3, 2, 1, 0, 1]), ("fixed", [3, 2, 1, 0, 3]), ("even", [1, 0, 0, 0, 1])],
)
def test_how_many_calls_can_pass(kind: str, available: list[int]) -> None:
    pacer = PACERS[kind](3, 10)
    found: list[int] = []
    for now in (0.0, 1.0, 2.0):
        found.append(pacer.available(now))
        passed(pacer, [now])
    found += [pacer.available(2.0), pacer.available(10.0)]
    assert found == available


# ------------------------------------------------------------------------------- hints


@pytest.mark.parametrize("kind", ["sliding", "fixed"])
@pytest.mark.parametrize(
    ("steps", "moments"),
    [
        ([("pause", 5.0)], [5, 5, 10]),
        ([("pause", 15.0)], [15, 15, 15]),
        ([("spread", 2, 8.0)], [0, 4, 10]),
        ([("spread", 1, 20.0)], [0, 20, 20]),
        ([("spread", 20, 20.0)], [0, 0, 10]),  # a quota never makes calls faster
        ([("spread", 2, 8.0), ("pause", 5.0)], [5, 8, 10]),
    ],
)
def test_hints_delay_calls(kind: str, steps: list[tuple[Any, ...]], moments: list[float]) -> None:
    """``moments``: when the next calls pass, if one has just passed and all others wait."""
    pacer = PACERS[kind](3, 10)
    pacer.take(0.0)
    for method, *arguments in steps:
        getattr(pacer, method)(*arguments, 0.0)
    promised = [pacer.due(0.0, 1, Ahead.of([1] * ahead)) for ahead in range(len(moments))]
    now, seen = 0.0, list[float]()
    for _ in moments:
        now += pacer.due(now)
        pacer.take(now)
        seen.append(now)
    assert seen == promised == pytest.approx(moments)


def test_a_call_that_costs_more_than_is_left_of_a_quota_waits_for_its_end() -> None:
    pacer = SlidingWindowPacer(10, 10)
    pacer.spread(4, 8.0, 0.0)
    assert pacer.available(0.0) == 1
    assert pacer.due(0.0, 4) == 0.0
    assert pacer.due(0.0, 5) == 8.0
    pacer.take(0.0, 2)
    assert pacer.due(0.0, 1) == 4.0
    assert pacer.due(0.0, 2) == 4.0
    assert pacer.due(0.0, 3) == 8.0


@pytest.mark.parametrize("kind", PACERS)
def test_the_rate(kind: str) -> None:
    pacer = PACERS[kind](3, 10)
    assert pacer.rate(0.0) == pytest.approx(0.3)
    pacer.spread(1, 20.0, 0.0)
    assert pacer.rate(10.0) == pytest.approx(0.05)
    pacer.pause(5.0, 20.0)
    assert pacer.rate(20.0) == 0.0
    assert pacer.rate(25.0) == pytest.approx(0.3)


# ------------------------------------------------------------------------------ memory


@pytest.mark.parametrize("cost", [1, 1 / 8])
def test_the_memory_of_a_sliding_window_has_a_bound(cost: float) -> None:
    """Above the bound permits become available a little later, never earlier."""
    calls, per = 5 * EXACT, 100.0
    pacer = SlidingWindowPacer(calls * cost, per)
    gap = per / calls
    now = 0.0
    for number in range(2 * calls):
        now = max(now, number * gap)
        late = pacer.due(now, cost)
        assert number >= calls or not late
        now += late
        assert now <= number * gap + 1.001 * per / EXACT
        pacer.take(now, cost)
    assert len(pacer._entries) <= 2 * EXACT
    assert pacer._used == sum(entry.cost for entry in pacer._entries) <= calls * cost


def test_calls_at_one_time_are_kept_as_one() -> None:
    pacer = SlidingWindowPacer(EXACT, 1.0)
    for _ in range(EXACT):
        pacer.take(3.0)
    assert len(pacer._entries) == 1
    assert pacer.due(3.5) == 0.5
    pacer.take(4.0, 0.1)
    assert pacer._used == 0.1  # no rounding error is left


# ------------------------------------------------------------------- changes and clocks


@pytest.mark.parametrize(
    ("kind", "new", "moments"),
    [
        ("sliding", (5, 10), [0, 0, 10, 10, 10]),
        ("sliding", (2, 10), [10, 10, 20, 20]),
        ("sliding", (3, 20), [20, 20, 20]),
        ("fixed", (5, 10), [0, 0, 10, 10, 10, 10, 10, 20]),
        ("fixed", (2, 10), [10, 10, 20]),
        ("fixed", (3, 20), [20, 20, 20, 40]),
    ],
)
def test_reconfiguring_keeps_the_calls_of_the_window(
    kind: str, new: tuple[float, float], moments: list[float]
) -> None:
    pacer = PACERS[kind](3, 10)
    pacer.take(0.0, 3)
    pacer.reconfigure(*new, 0.0)
    assert (pacer.most, pacer.interval) == (new[0], new[1] / new[0])
    found, now = list[float](), 0.0
    for _ in moments:
        now += pacer.due(now)
        pacer.take(now)
        found.append(now)
    assert found == moments


@pytest.mark.parametrize("kind", ["sliding", "fixed"])
def test_a_clock_that_goes_back(kind: str) -> None:
    """A small step back is the same clock; after more than a second, the times of the old clock expire."""
    pacer = PACERS[kind](3, 10)
    passed(pacer, [1000, 1000])
    assert passed(pacer, [999.5, 999.5]) == [999.5]
    assert pacer.due(999.5) == 10.5
    assert pacer.due(5.0) == 0.0
    assert passed(pacer, [5, 5, 5, 5]) == [5, 5, 5]


@pytest.mark.parametrize("kind", ["sliding", "fixed"])
def test_there_is_no_fast_path(kind: str) -> None:
    pacer = PACERS[kind](3, 10)
    pacer.open_fast_path()
    assert pacer.fast_arrival_time == inf
    pacer.close_fast_path()
    assert pacer.fast_arrival_time == inf
