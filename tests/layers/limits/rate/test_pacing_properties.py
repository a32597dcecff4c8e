"""A rate limit keeps its rate, whatever is asked for and whatever we are told."""

from __future__ import annotations

from math import inf
from typing import Literal, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redouble._layers.limits.pacing import GcraPacer

pytestmark = pytest.mark.one_python

NEAR = 1e-6

What: TypeAlias = Literal["ask", "wait", "pause", "spread"]
Step: TypeAlias = tuple[What, float, int]
GAPS = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 2.5]) | st.floats(0, 5)
COUNTS = st.integers(1, 9)
ASKING: list[What] = ["ask", "wait"]
TOLD: list[What] = ["ask", "ask", "wait", "wait", "pause", "spread"]
ASKS = st.lists(st.tuples(st.sampled_from(ASKING), GAPS, COUNTS), max_size=30)
STEPS = st.lists(st.tuples(st.sampled_from(TOLD), GAPS, COUNTS), max_size=30)
INTERVALS = st.sampled_from([0.1, 0.25, 1.0, 3.0]) | st.floats(0.001, 10)
BURSTS = st.integers(1, 6)
START = st.sampled_from([0.0, 1e5]) | st.floats(0, 1e6)


class Story:
    """A flow, and when somebody passed."""

    def __init__(self, flow: GcraPacer, start: float) -> None:
        self.flow, self.now = flow, start
        self.passed: list[float] = []
        self.refused: list[float] = []

    def play(self, what: What, gap: float, calls: int) -> None:
        """Let time pass, and then something happen."""
        self.now += gap
        self.flow.close_fast_path()
        self._happen(what, gap, calls)
        self.flow.open_fast_path()

    def _happen(self, what: What, gap: float, calls: int) -> None:
        match what:
            case "pause":
                self.flow.pause(gap * calls, self.now)
            case "spread":
                self.flow.spread(calls, gap * 9, self.now)
            case _:
                wait = self.flow.due(self.now)
                if wait and what == "ask":
                    self.refused.append(self.now)
                    return
                self.now += wait
                self.flow.take(self.now)
                self.passed.append(self.now)

    def excess(self, moment: float, burst: int) -> float:
        """Tell by how many one more at this moment is too many, in the window where it hurts most."""
        passed = [then for then in self.passed if then <= moment]
        return max(
            (
                len(passed) - number + 1 - (moment - then) / self.flow.interval - burst
                for number, then in enumerate(passed)
            ),
            default=-inf,
        )


def told(flow: GcraPacer, start: float, steps: list[Step]) -> Story:
    story = Story(flow, start)
    for step in steps:
        story.play(*step)
    flow.close_fast_path()
    return story


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, STEPS)
def test_never_more_than_rate_times_t_plus_burst(
    interval: float, burst: int, start: float, steps: list[Step]
) -> None:
    """In any window, whatever is asked for and whatever we are told."""
    story = told(GcraPacer(interval, burst), start, steps)
    passed = story.passed
    for first, began in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= (passed[last] - began) / interval + burst + NEAR / interval


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, ASKS)
def test_nobody_is_refused_who_could_pass(
    interval: float, burst: int, start: float, steps: list[Step]
) -> None:
    """One more would have been too many in some window."""
    story = Story(GcraPacer(interval, burst), start)
    for step in steps:
        before = len(story.refused)
        story.play(*step)
        if len(story.refused) > before:
            assert story.excess(story.now, burst) > -NEAR / interval


@settings(max_examples=50)
@example(0.5, 2, 0.001, [], 1, 1)  # where 1.001 + 4.0 is a hair before the end of the quota
@given(INTERVALS, BURSTS, START, STEPS, COUNTS, st.integers(0, 12))
def test_who_waits_is_told_how_long_it_will_be(
    interval: float, burst: int, start: float, steps: list[Step], calls: int, ahead: int
) -> None:
    """Also where others are first: it is what it comes to."""
    story = told(
        GcraPacer(interval, burst), start, [*steps, ("spread", interval, calls), ("ask", interval, 1)]
    )
    arrived = story.now
    promised = story.flow.due(arrived, ahead)
    for _ in range(ahead):
        story.play("wait", 0.0, 1)
    assert story.now + story.flow.due(story.now) == pytest.approx(arrived + promised, abs=NEAR)


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, STEPS)
def test_as_many_are_available_as_can_pass_now(
    interval: float, burst: int, start: float, steps: list[Step]
) -> None:
    story = told(GcraPacer(interval, burst), start, steps)
    available = story.flow.available(story.now)
    for _ in range(available):
        assert story.flow.due(story.now) <= NEAR
        story.flow.take(story.now)
    assert 0 <= available <= burst
    assert story.flow.due(story.now) > 0


@settings(max_examples=50)
@given(INTERVALS, BURSTS, START, STEPS, COUNTS, st.floats(0.1, 50))
def test_a_quota_that_was_told_is_kept(
    interval: float, burst: int, start: float, steps: list[Step], calls: int, seconds: float
) -> None:
    """However eager we are, no more than so many pass until it is filled again."""
    story = told(GcraPacer(interval, burst), start, steps)
    story.flow.spread(calls, seconds, story.now)
    began = len(story.passed)
    until = story.now + seconds
    while story.now + story.flow.due(story.now) < until - NEAR:
        story.play("wait", 0.0, 1)
    assert len(story.passed) - began <= max(calls, 0 if seconds > calls * interval else inf)
