"""The GCRA arithmetic of a rate limit: when calls pass, pauses, spread quotas, and clocks that go back."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from redouble._layers.limits.rate.pacing import CLOCK_TOLERANCE, LOOKAHEAD, Ahead, GcraPacer


def closed(interval: float, burst: int) -> GcraPacer:
    """Return a pacer whose fast path is closed."""
    pacer = GcraPacer(interval, burst)
    pacer.close_fast_path()
    return pacer


@pytest.mark.parametrize(
    ("interval", "burst", "arrivals", "passed"),
    [
        (1.0, 1, [0, 0, 0.5, 1, 1.5, 2], [0, 1, 2]),
        (1.0, 1, [0, 5, 5, 5.9, 6], [0, 5, 6]),  # a pause allows no burst
        (1.0, 3, [0, 0, 0, 0, 0.9, 1, 1.9], [0, 0, 0, 1]),
        (1.0, 3, [0, 0, 0, 2, 2, 2, 3, 3], [0, 0, 0, 2, 2, 3]),
        (1.0, 2, [0, 100, 100, 100, 101, 101], [0, 100, 100, 101]),
        (0.25, 1, [0, 0.2, 0.25, 0.4, 0.5], [0, 0.25, 0.5]),
        (10.0, 1, [3, 12.9, 13, 23], [3, 13, 23]),
        (
            1.0,
            1,
            [0, 1 - CLOCK_TOLERANCE / 2, 2 - CLOCK_TOLERANCE, 2],
            [0, 1 - CLOCK_TOLERANCE / 2, 2 - CLOCK_TOLERANCE],
        ),  # within the tolerance
        (1.0, 1, [0, 1 - 2 * CLOCK_TOLERANCE], [0]),
    ],
)
def test_when_calls_pass(interval: float, burst: int, arrivals: list[float], passed: list[float]) -> None:
    pacer = closed(interval, burst)
    for now in arrivals:
        if not pacer.due(now):
            assert passed.pop(0) == now
            pacer.take(now)
    assert passed == []


@pytest.mark.parametrize(
    ("steps", "moments"),
    [
        ([("pause", 5.0)], [5, 6, 7]),
        ([("pause", 5.0), ("pause", 2.0)], [5, 6, 7]),
        ([("pause", 0.0)], [1, 2, 3]),
        ([("spread", 2, 20.0)], [1, 11, 20, 21]),  # one call has passed already; its interval still counts
        ([("spread", 4, 20.0)], [1, 6, 11, 16, 20, 21]),
        ([("spread", 20, 20.0)], [1, 2, 3]),
        ([("spread", 50, 20.0)], [1, 2, 3]),  # a quota never makes calls faster
        ([("spread", 2, 20.0), ("spread", 50, 20.0)], [1, 2, 3]),
        ([("spread", 2, 20.0), ("pause", 7.0)], [7, 17, 20, 21]),
        ([("pause", 7.0), ("spread", 2, 20.0)], [7, 17, 20, 21]),
        ([("spread", 2, 20.0), ("pause", 30.0)], [30, 31, 32]),
    ],
)
def test_pauses_and_spread_quotas_delay_calls(steps: list[tuple[Any, ...]], moments: list[float]) -> None:
    """``moments``: when the next calls pass, if a call has just passed and all others wait."""
    pacer = closed(1.0, 1)
    pacer.take(0.0)
    for method, *arguments in steps:
        getattr(pacer, method)(*arguments, 0.0)
    seen, now = list[float](), 0.0
    promised = [pacer.due(0.0, 1, Ahead.of([1] * ahead)) for ahead in range(len(moments))]
    for _ in moments:
        now += pacer.due(now)
        pacer.take(now)
        seen.append(now)
    assert seen == promised == moments


def test_no_burst_while_a_quota_is_spread() -> None:
    pacer = GcraPacer(1.0, 5)
    assert pacer.available(100.0) == 5
    pacer.close_fast_path()
    pacer.spread(2, 20.0, 100.0)
    assert pacer.available(100.0) == pacer.available(119.0) == 1
    assert pacer.available(120.0 + 4) == 5


# --------------------------------------------------------------------- the fast path


def test_closing_and_opening_the_fast_path_keeps_the_arrival_time() -> None:
    pacer = GcraPacer(1.0, 1)
    pacer.fast_arrival_time = 7.0  # a call has passed at 6
    pacer.close_fast_path()
    assert (pacer.fast_arrival_time, pacer.arrival_time) == (inf, 7.0)
    pacer.take(7.0)
    pacer.close_fast_path()
    assert (pacer.fast_arrival_time, pacer.arrival_time) == (inf, 8.0)
    pacer.open_fast_path()
    assert pacer.fast_arrival_time == 8.0
    pacer.open_fast_path()
    assert pacer.fast_arrival_time == 8.0


def test_the_fast_path_stays_closed_while_a_quota_is_spread() -> None:
    pacer = closed(1.0, 1)
    pacer.spread(2, 20.0, 0.0)
    pacer.open_fast_path()
    assert pacer.fast_arrival_time == inf
    assert pacer.due(20.0) == 0.0
    pacer.open_fast_path()
    assert pacer.fast_arrival_time == pacer.arrival_time


def test_the_open_fast_path_can_be_queried() -> None:
    pacer = GcraPacer(1.0, 3)
    pacer.fast_arrival_time = 12.0  # two calls have passed at 10
    assert (pacer.available(10.0), pacer.due(10.0), pacer.due(10.0, ahead=Ahead.of([1]))) == (1, 0.0, 1.0)
    assert (pacer.available(5.0), pacer.due(5.0)) == (3, 0.0)  # another clock
    assert pacer.fast_arrival_time == 12.0


# ------------------------------------------------------------------ clocks that go back


@pytest.mark.parametrize(
    ("steps", "then", "wait"),
    [
        ([("take", 1000.0)], 999.5, 1.5),  # a time that another thread read a moment earlier
        ([("take", 1000.0)], 5.0, 0.0),
        ([("pause", 50.0, 1000.0)], 999.5, 50.5),
        ([("pause", 50.0, 1000.0)], 998.0, 0.0),
        ([("pause", 50.0, 1000.0), ("take", 2000.0)], 1999.5, 1.5),
        ([("pause", 50.0, 1000.0), ("take", 2000.0)], 1500.0, 0.0),  # the pause is long over
        ([("spread", 2, 60.0, 1000.0), ("take", 1000.0)], 999.5, 30.5),
        ([("spread", 2, 60.0, 1000.0), ("take", 1000.0)], 5.0, 0.0),
    ],
)
def test_a_clock_that_goes_back(steps: list[tuple[Any, ...]], then: float, wait: float) -> None:
    """A small step back is the same clock; after more than a second, the times of the old clock expire."""
    pacer = closed(1.0, 1)
    for method, *arguments in steps:
        getattr(pacer, method)(*arguments)
    assert pacer.due(then) == wait
    if not wait:
        assert pacer.available(then) == 1
        pacer.take(then)
        assert pacer.due(then) == 1.0


@pytest.mark.parametrize("ahead", [LOOKAHEAD + 1, 50, 60, 61, 100])
@pytest.mark.parametrize("cost", [0.5, 1])
def test_the_wait_behind_many_calls_that_share_a_quota(ahead: int, cost: float) -> None:
    """It is computed at once: the queue is long when the service allows little."""
    pacer = GcraPacer(0.5, 3, fast=False)
    pacer.spread(30, 60, 0.0)
    promised = pacer.due(0.0, cost, Ahead.of([cost] * ahead))
    now = 0.0
    for _ in range(ahead + 1):
        now += pacer.due(now, cost)
        pacer.take(now, cost)
    assert now == pytest.approx(promised, abs=3)
