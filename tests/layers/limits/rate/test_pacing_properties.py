"""A pacer keeps its rate, for any calls, pauses and quotas."""

from __future__ import annotations

from math import inf
from typing import Literal, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redouble._layers.limits.rate.pacing import Ahead, GcraPacer

pytestmark = pytest.mark.one_python

NEAR = 1e-6

Action: TypeAlias = Literal["try", "wait", "pause", "spread"]
Step: TypeAlias = tuple[Action, float, int]
GAPS = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 2.5]) | st.floats(0, 5)
COUNTS = st.integers(1, 9)
CALL_ACTIONS: list[Action] = ["try", "wait"]
ALL_ACTIONS: list[Action] = ["try", "try", "wait", "wait", "pause", "spread"]
CALLS = st.lists(st.tuples(st.sampled_from(CALL_ACTIONS), GAPS, COUNTS), max_size=30)
STEPS = st.lists(st.tuples(st.sampled_from(ALL_ACTIONS), GAPS, COUNTS), max_size=30)
INTERVALS = st.sampled_from([0.1, 0.25, 1.0, 3.0]) | st.floats(0.001, 10)
BURSTS = st.integers(1, 6)
START = st.sampled_from([0.0, 1e5]) | st.floats(0, 1e6)


class Simulation:
    """A pacer, the time, and when calls passed or were rejected."""

    def __init__(self, pacer: GcraPacer, start: float) -> None:
        self.pacer, self.now = pacer, start
        self.passed: list[float] = []
        self.rejected: list[float] = []

    def step_on(self, action: Action, gap: float, calls: int) -> None:
        """Advance the time, then take one action."""
        self.now += gap
        self.pacer.close_fast_path()
        self._act(action, gap, calls)
        self.pacer.open_fast_path()

    def _act(self, action: Action, gap: float, calls: int) -> None:
        match action:
            case "pause":
                self.pacer.pause(gap * calls, self.now)
            case "spread":
                self.pacer.spread(calls, gap * 9, self.now)
            case _:
                wait = self.pacer.due(self.now)
                if wait and action == "try":
                    self.rejected.append(self.now)
                    return
                self.now += wait
                self.pacer.take(self.now)
                self.passed.append(self.now)

    def excess(self, moment: float, burst: int) -> float:
        """Return by how much one more call at this moment would exceed the limit, in the worst window."""
        passed = [then for then in self.passed if then <= moment]
        return max(
            (
                len(passed) - number + 1 - (moment - then) / self.pacer.interval - burst
                for number, then in enumerate(passed)
            ),
            default=-inf,
        )


def simulated(pacer: GcraPacer, start: float, steps: list[Step]) -> Simulation:
    simulation = Simulation(pacer, start)
    for step in steps:
        simulation.step_on(*step)
    pacer.close_fast_path()
    return simulation


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, STEPS)
def test_never_more_than_rate_times_t_plus_burst(
    interval: float, burst: int, start: float, steps: list[Step]
) -> None:
    """In any window, for any calls, pauses and quotas."""
    simulation = simulated(GcraPacer(interval, burst), start, steps)
    passed = simulation.passed
    for first, began in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= (passed[last] - began) / interval + burst + NEAR / interval


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, CALLS)
def test_no_call_that_could_pass_is_rejected(
    interval: float, burst: int, start: float, steps: list[Step]
) -> None:
    """One more call would have exceeded the limit in some window."""
    simulation = Simulation(GcraPacer(interval, burst), start)
    for step in steps:
        before = len(simulation.rejected)
        simulation.step_on(*step)
        if len(simulation.rejected) > before:
            assert simulation.excess(simulation.now, burst) > -NEAR / interval


@settings(max_examples=50)
@example(0.5, 2, 0.001, [], 1, 1)  # 1.001 + 4.0 is a rounding error before the quota's end
@given(INTERVALS, BURSTS, START, STEPS, COUNTS, st.integers(0, 12))
def test_due_is_the_time_until_the_call_passes(
    interval: float, burst: int, start: float, steps: list[Step], calls: int, ahead: int
) -> None:
    """Also with other calls ahead."""
    simulation = simulated(
        GcraPacer(interval, burst), start, [*steps, ("spread", interval, calls), ("try", interval, 1)]
    )
    arrived = simulation.now
    promised = simulation.pacer.due(arrived, 1, Ahead.of([1] * ahead))
    for _ in range(ahead):
        simulation.step_on("wait", 0.0, 1)
    assert simulation.now + simulation.pacer.due(simulation.now) == pytest.approx(
        arrived + promised, abs=NEAR
    )


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, STEPS)
def test_available_is_the_number_of_calls_that_can_pass_now(
    interval: float, burst: int, start: float, steps: list[Step]
) -> None:
    simulation = simulated(GcraPacer(interval, burst), start, steps)
    available = simulation.pacer.available(simulation.now)
    for _ in range(available):
        assert simulation.pacer.due(simulation.now) <= NEAR
        simulation.pacer.take(simulation.now)
    assert 0 <= available <= burst
    assert simulation.pacer.due(simulation.now) > 0


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, STEPS, COUNTS, st.floats(0.1, 50))
def test_a_spread_quota_is_not_exceeded(
    interval: float, burst: int, start: float, steps: list[Step], calls: int, seconds: float
) -> None:
    """However many calls wait, no more than the quota pass until its end."""
    simulation = simulated(GcraPacer(interval, burst), start, steps)
    simulation.pacer.spread(calls, seconds, simulation.now)
    began = len(simulation.passed)
    until = simulation.now + seconds
    while simulation.now + simulation.pacer.due(simulation.now) < until - NEAR:
        simulation.step_on("wait", 0.0, 1)
    assert len(simulation.passed) - began <= max(calls, 0 if seconds > calls * interval else inf)
