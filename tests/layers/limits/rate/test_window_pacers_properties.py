"""A rate limit keeps its promise for calls of any cost: GCRA, in any sliding window, in each fixed one."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, fsum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.rate.pacing import Ahead, GcraPacer
from redouble._layers.limits.rate.window_pacers import FixedWindowPacer, SlidingWindowPacer

pytestmark = pytest.mark.one_python

NEAR = 1e-6

LIMITS = st.integers(1, 12)
PERIODS = st.sampled_from([0.1, 1.0, 7.0]) | st.floats(0.01, 60)
START = st.sampled_from([0.0, 1e5]) | st.floats(0, 1e6)
# A gap as a share of the period, a cost as a share of the most there can be, and whether the call waits.
SHARES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]) | st.floats(0, 1)
CALLS = st.lists(st.tuples(SHARES | st.floats(0, 3), SHARES, st.booleans()), max_size=40)
INTEGERS = st.booleans()


def burst(limit: int, per: float) -> GcraPacer:
    """Return a pacer that admits all of them at once after a pause."""
    return GcraPacer(per / limit, limit, fast=False)


def half(limit: int, per: float) -> GcraPacer:
    """Return a pacer that admits half of them at once after a pause."""
    return GcraPacer(per / limit, max(1, limit // 2), fast=False)


KINDS: dict[str, Any] = {
    "sliding": SlidingWindowPacer,
    "fixed": FixedWindowPacer,
    "burst": burst,
    "half": half,
}


@dataclass
class Passed:
    """The calls that have passed, and those that were rejected: times and costs."""

    now: float
    passed: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    rejected: list[tuple[float, float, int]] = field(default_factory=list[tuple[float, float, int]])

    def began(self, since: float, until: float) -> float:
        """Return the sum of the costs of calls from ``since`` to just before ``until``."""
        return fsum(cost for then, cost in self.passed if since <= then < until)


def simulated(
    pacer: Any, start: float, per: float, calls: list[tuple[float, float, bool]], *, whole: bool
) -> Passed:
    """Make these calls one after the other."""
    found = Passed(start)
    for gap, share, waits in calls:
        found.now += gap * per
        cost: float = share * pacer.most
        cost = float(floor(cost)) if whole else cost
        if not cost:
            continue
        wait = pacer.due(found.now, cost)
        if wait and not waits:
            found.rejected.append((found.now, cost, len(found.passed)))
            continue
        found.now += wait
        pacer.take(found.now, cost)
        found.passed.append((found.now, cost))
    return found


@settings(max_examples=100)
@given(LIMITS, PERIODS, START, CALLS, INTEGERS)
def test_no_sliding_window_has_more_than_the_limit(
    limit: int, per: float, start: float, calls: list[tuple[float, float, bool]], whole: bool
) -> None:
    found = simulated(SlidingWindowPacer(limit, per), start, per, calls, whole=whole)
    for then, _ in found.passed:
        assert found.began(then, then + per - NEAR) <= limit * (1 + NEAR)


@settings(max_examples=100)
@given(LIMITS, PERIODS, START, CALLS, INTEGERS)
def test_a_sliding_window_rejects_no_call_that_could_pass(
    limit: int, per: float, start: float, calls: list[tuple[float, float, bool]], whole: bool
) -> None:
    found = simulated(SlidingWindowPacer(limit, per), start, per, calls, whole=whole)
    for now, cost, before in found.rejected:
        earlier = Passed(now, found.passed[:before])
        assert earlier.began(now - per, now + NEAR) + cost > limit * (1 - NEAR)


@settings(max_examples=100)
@given(LIMITS, PERIODS, START, CALLS, INTEGERS)
def test_no_fixed_window_has_more_than_the_limit(
    limit: int, per: float, start: float, calls: list[tuple[float, float, bool]], whole: bool
) -> None:
    found = simulated(FixedWindowPacer(limit, per), start, per, calls, whole=whole)
    windows: dict[int, float] = {}
    for then, cost in found.passed:
        number = floor((then - found.passed[0][0]) / per + NEAR)
        windows[number] = windows.get(number, 0.0) + cost
    assert all(total <= limit * (1 + NEAR) for total in windows.values())


@settings(max_examples=100)
@given(st.sampled_from(["burst", "half"]), LIMITS, PERIODS, START, CALLS, INTEGERS)
def test_gcra_never_admits_more_than_rate_times_t_plus_burst(
    kind: str, limit: int, per: float, start: float, calls: list[tuple[float, float, bool]], whole: bool
) -> None:
    pacer = KINDS[kind](limit, per)
    found = simulated(pacer, start, per, calls, whole=whole)
    for first, (began, _) in enumerate(found.passed):
        total = 0.0
        for then, cost in found.passed[first:]:
            total += cost
            assert total <= (then - began) / pacer.interval + pacer.most + NEAR / pacer.interval + NEAR


@settings(max_examples=100)
@given(
    st.sampled_from(sorted(KINDS)),
    LIMITS,
    PERIODS,
    START,
    CALLS,
    st.lists(SHARES, max_size=8),
    SHARES,
    SHARES,
)
def test_due_is_the_time_until_the_call_passes(
    kind: str,
    limit: int,
    per: float,
    start: float,
    calls: list[tuple[float, float, bool]],
    ahead: list[float],
    share: float,
    spread: float,
) -> None:
    """Also behind other calls of any cost, and while a quota is spread."""
    pacer = KINDS[kind](limit, per)
    found = simulated(pacer, start, per, calls, whole=False)
    if spread:
        pacer.spread(3, spread * per * 4, found.now)
    costs = [cost * pacer.most for cost in ahead if cost]
    cost = share * pacer.most or 0.5
    now = found.now
    promised = pacer.due(now, cost, Ahead.of(costs))
    for other in [*costs, cost]:
        now += pacer.due(now, other)
        pacer.take(now, other)
    assert now == pytest.approx(found.now + promised, abs=NEAR)
