"""A retry budget with other values: credits and grants stay, and never too much is granted."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Grant, Kind, RetryBudget
from redouble._engine.retry_budget import HostBudgets
from redouble._internal.sliding_counter import SLICES, SlidingCounter
from redouble.testing import virtual_time

KIND = Kind.unknown


def granted(budget: RetryBudget, now: float, times: int = 1000) -> int:
    """Spend this many times; return how often a retry was granted."""
    return sum(budget.spend(KIND, now) is not None for _ in range(times))


def credited(budget: RetryBudget, now: float, times: int) -> None:
    for _ in range(times):
        budget.credit(None, now)


def test_with_another_share_the_same_credits_earn_more_or_less() -> None:
    budget = RetryBudget(0.1, 0, 10)
    credited(budget, 1.0, 100)
    assert granted(budget, 1.0, 4) == 4
    budget.reconfigure(RetryBudget(0.5, 0, 10))
    assert granted(budget, 1.0) == 46
    budget.reconfigure(RetryBudget(0.2, 0, 10))
    assert budget.snapshot() == {"available": 0, "limit": 20, "granted": 50, "credits": 100}
    budget.reconfigure(RetryBudget(0.2, 4, 10))
    assert granted(budget, 1.0) == 10


def test_before_it_was_ever_used() -> None:
    budget = RetryBudget(0.1, 0, 10)
    budget.reconfigure(RetryBudget(0.1, 1, 5))
    assert granted(budget, -100.0) == 5
    assert granted(budget, -94.0) == 5


@pytest.mark.parametrize(("window", "there"), [(5, 0), (20, 50), (40, 50)])
def test_with_another_window(window: float, there: int) -> None:
    """Credits and grants of eight seconds ago count in a window of twenty seconds, and not in one of five."""
    budget = RetryBudget(1, 0, 10)
    credited(budget, 2.0, 50)
    assert granted(budget, 2.0, 20) == 20
    credited(budget, 10.0, 7)
    budget.reconfigure(RetryBudget(1, 0, window))
    told = budget.snapshot(10.0)
    assert (told["credits"], told["granted"]) == (there + 7, 20 if there else 0)
    assert granted(budget, 10.0) == told["available"] == there - 20 * bool(there) + 7
    assert budget.snapshot(10.0 + window * 1.1)["granted"] == 0


def test_expired_counts_stay_expired() -> None:
    budget = RetryBudget(0, 1, 10)
    assert granted(budget, 0.0) == 10
    assert granted(budget, 11.0) == 10
    budget.reconfigure(RetryBudget(0, 1, 100))
    assert granted(budget, 11.0) == 90


def test_grants_do_not_come_to_lie_in_the_future() -> None:
    """The end of a long slice would be far away for a short window; by the system's clock it is not yet."""
    with virtual_time() as clock:
        clock.advance(1000.5)
        budget = RetryBudget(0, 0.01, 1000)
        assert granted(budget, clock.now()) == 10
        budget.reconfigure(RetryBudget(0, 500, 0.1))
        assert granted(budget, clock.now()) == 40
        clock.advance(0.11)
        assert granted(budget, clock.now()) == 50


def test_a_grant_of_another_window_cannot_be_handed_back() -> None:
    budget = RetryBudget(0, 1, 10)
    grant = budget.spend(KIND, 0.0)
    assert grant is not None
    budget.reconfigure(RetryBudget(0, 1, 20))
    budget.refund(grant, 0.0)
    assert budget.snapshot()["granted"] == 1
    another = budget.spend(KIND, 0.0)
    assert another is not None
    budget.reconfigure(RetryBudget(0, 2, 20))
    budget.refund(another, 0.0)
    budget.refund(Grant(1), 0.0)
    assert budget.snapshot()["granted"] == 0


def test_a_change_in_the_middle_of_counting_is_made_after_it() -> None:
    """As by a signal."""

    class Interrupted(RetryBudget):
        def _apply_pending(self) -> None:
            self.reconfigure(RetryBudget(0.5, 0, 10))
            assert self.ratio == 0.1
            super()._apply_pending()

    budget = Interrupted(0.1, 0, 10)
    credited(budget, 0.0, 100)
    assert granted(budget, 0.0) == 50
    assert budget.ratio == 0.5


def test_budgets_of_hosts_change_too() -> None:
    budgets = HostBudgets(0, 1, 10)
    host = budgets.of("a")
    assert granted(host, 0.0, 3) == 3
    budgets.reconfigure(HostBudgets(0, 2, 10))
    assert granted(host, 0.0) == 17
    assert budgets.of("a") is host
    assert [granted(budgets.of("b"), 0.0), granted(budgets, 0.0)] == [20, 20]


# ----------------------------------------------------------------------------- properties

TICK = 16  # of a second
STEPS = st.lists(
    st.tuples(st.sampled_from(["earn", "spend", "spend", "pass", "retune"]), st.integers(0, 9)), max_size=60
)
OPTIONS = st.fixed_dictionaries(
    {
        "ratio": st.sampled_from([0, 0.07, 0.2, 0.5, 1]),
        "per_second": st.sampled_from([0, 0.1, 1, 7]),
        "window": st.sampled_from([0.5, 1, 3, 10, 60]),
    }
)


@settings(max_examples=50)
@given(st.lists(OPTIONS, min_size=10, max_size=10), STEPS)
def test_no_more_is_granted_than_the_values_of_now_allow(
    options: list[dict[str, Any]], steps: list[tuple[str, int]]
) -> None:
    """At every grant, fewer than the limit had been granted in the window up to then."""
    budget, now = RetryBudget(**options[0]), 0
    earned, known = list[int](), list[int]()
    for what, number in steps:
        match what:
            case "earn":
                credited(budget, now / TICK, number)
                earned += [now] * number
            case "pass":
                now += number * number
            case "retune":
                # Counts that left the window do not return with a longer one.
                known = [when for when in known if now - when < Fraction(str(budget.window)) * TICK]
                budget.reconfigure(RetryBudget(**options[number]))
            case _:
                window = Fraction(str(budget.window)) * TICK
                lately = sum(now - when < window for when in earned)
                allowed = ceil(Fraction(str(budget.ratio)) * lately)
                allowed += floor(Fraction(str(budget.per_second)) * Fraction(str(budget.window)))
                if granted(budget, now / TICK, 1):
                    assert sum(now - when < window for when in known) < allowed
                    known.append(now)
    assert budget.snapshot(now / TICK)["credits"] <= len(earned)


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 400), max_size=30),
    st.sampled_from([0.5, 1, 3, 10, 60]),
    st.sampled_from([0.5, 1, 3, 10, 60]),
    st.booleans(),
)
def test_nothing_becomes_younger_or_if_late_older(
    times: list[int], old: float, new: float, late: bool
) -> None:
    """At any time after a change, no more is counted than really was lately; or no less, if late."""
    recent = SlidingCounter(SLICES + late)
    slices = [(time / TICK, int(time / TICK * SLICES // old)) for time in sorted(times)]
    for _, index in slices:
        recent.advance(index)
        recent.add(1, index)
    last = max(times, default=0) / TICK
    known = [time for time, index in slices if recent.latest - index < SLICES + late]
    recent.rescale(old, new, late=late)
    assert recent.total == sum(recent.counts) <= len(known)
    for share in (0, 1, 2, 5):
        now = last + share * new / 4
        counted = recent.count_at(max(recent.latest, int(now * SLICES // new)))
        really = sum(now - time < new for time in known)
        assert really <= counted if late else counted <= really
        longer = new + 2 * (new + old) / SLICES
        assert counted <= sum(now - time < longer for time in known)
