"""The arithmetic of a rate limit: what passes when, what a pause and a spread quota do, and another clock."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from redouble._layers.limits.pacing import CLOCK_TOLERANCE, GcraPacer


def held(interval: float, burst: int) -> GcraPacer:
    """Make a flow that is asked by all."""
    flow = GcraPacer(interval, burst)
    flow.close_fast_path()
    return flow


@pytest.mark.parametrize(
    ("interval", "burst", "asked", "passed"),
    [
        (1.0, 1, [0, 0, 0.5, 1, 1.5, 2], [0, 1, 2]),
        (1.0, 1, [0, 5, 5, 5.9, 6], [0, 5, 6]),  # a rest is worth no more than one
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
        ),  # near enough
        (1.0, 1, [0, 1 - 2 * CLOCK_TOLERANCE], [0]),
    ],
)
def test_what_passes(interval: float, burst: int, asked: list[float], passed: list[float]) -> None:
    flow = held(interval, burst)
    for now in asked:
        if not flow.due(now):
            assert passed.pop(0) == now
            flow.take(now)
    assert passed == []


@pytest.mark.parametrize(
    ("told", "moments"),
    [
        ([("pause", 5.0)], [5, 6, 7]),
        ([("pause", 5.0), ("pause", 2.0)], [5, 6, 7]),
        ([("pause", 0.0)], [1, 2, 3]),
        ([("spread", 2, 20.0)], [1, 11, 20, 21]),  # one passed already; its interval still counts
        ([("spread", 4, 20.0)], [1, 6, 11, 16, 20, 21]),
        ([("spread", 20, 20.0)], [1, 2, 3]),
        ([("spread", 50, 20.0)], [1, 2, 3]),  # it is never a reason to go faster
        ([("spread", 2, 20.0), ("spread", 50, 20.0)], [1, 2, 3]),
        ([("spread", 2, 20.0), ("pause", 7.0)], [7, 17, 20, 21]),
        ([("pause", 7.0), ("spread", 2, 20.0)], [7, 17, 20, 21]),
        ([("spread", 2, 20.0), ("pause", 30.0)], [30, 31, 32]),
    ],
)
def test_what_we_are_told(told: list[tuple[Any, ...]], moments: list[float]) -> None:
    """A call has just passed, and then all that come wait: when they pass."""
    flow = held(1.0, 1)
    flow.take(0.0)
    for what, *said in told:
        getattr(flow, what)(*said, 0.0)
    seen, now = list[float](), 0.0
    promised = [flow.due(0.0, ahead) for ahead in range(len(moments))]
    for _ in moments:
        now += flow.due(now)
        flow.take(now)
        seen.append(now)
    assert seen == promised == moments


def test_no_burst_while_a_quota_is_spread() -> None:
    flow = GcraPacer(1.0, 5)
    assert flow.available(100.0) == 5
    flow.spread(2, 20.0, 100.0)
    assert flow.available(100.0) == flow.available(119.0) == 1
    assert flow.available(120.0 + 4) == 5


# --------------------------------------------------------------------------- unasked


def test_who_comes_in_time_passes_unasked_unless_somebody_waits() -> None:
    flow = GcraPacer(1.0, 1)
    flow.fast_arrival_time = 7.0  # somebody has passed at 6
    flow.close_fast_path()
    assert (flow.fast_arrival_time, flow.arrival_time) == (inf, 7.0)
    flow.take(7.0)
    flow.close_fast_path()
    assert (flow.fast_arrival_time, flow.arrival_time) == (inf, 8.0)
    flow.open_fast_path()
    assert flow.fast_arrival_time == 8.0
    flow.open_fast_path()
    assert flow.fast_arrival_time == 8.0


def test_one_that_passes_after_the_others_were_let_pass_unasked_counts_for_them_too() -> None:
    """The collector may end somebody's waiting, who was the last, in the middle of another's asking."""
    flow = held(1.0, 1)
    flow.open_fast_path()
    flow.take(5.0)
    assert flow.fast_arrival_time == flow.arrival_time == 6.0


def test_nobody_passes_unasked_while_a_quota_is_spread() -> None:
    flow = GcraPacer(1.0, 1)
    flow.spread(2, 20.0, 0.0)
    flow.open_fast_path()
    assert flow.fast_arrival_time == inf
    assert flow.due(20.0) == 0.0
    flow.open_fast_path()
    assert flow.fast_arrival_time == flow.arrival_time


# ------------------------------------------------------------------------ another clock


@pytest.mark.parametrize(
    ("told", "then", "wait"),
    [
        ([("take", 1000.0)], 999.5, 1.5),  # a thread that read the clock a moment before
        ([("take", 1000.0)], 5.0, 0.0),
        ([("pause", 50.0, 1000.0)], 999.5, 50.5),
        ([("pause", 50.0, 1000.0)], 998.0, 0.0),
        ([("pause", 50.0, 1000.0), ("take", 2000.0)], 1999.5, 1.5),
        ([("pause", 50.0, 1000.0), ("take", 2000.0)], 1500.0, 0.0),  # the pause is long over
        ([("spread", 2, 60.0, 1000.0), ("take", 1000.0)], 999.5, 30.5),
        ([("spread", 2, 60.0, 1000.0), ("take", 1000.0)], 5.0, 0.0),
    ],
)
def test_a_clock_that_goes_back(told: list[tuple[Any, ...]], then: float, wait: float) -> None:
    """By a little it is the same one, and by more it is another: nobody waits for a moment of the other."""
    flow = held(1.0, 1)
    for what, *said in told:
        getattr(flow, what)(*said)
    assert flow.due(then) == wait
    if not wait:
        assert flow.available(then) == 1
        flow.take(then)
        assert flow.due(then) == 1.0
