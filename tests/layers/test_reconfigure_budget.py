"""A retry budget with other settings: credits and grants stay, and never too many retries are granted."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Grant, Kind, RetryBudget
from redouble._engine.budgets.retry_budget import HostBudgets
from redouble._internal.sliding_counter import SLICES, SlidingCounter
from redouble.testing import virtual_time

KIND = Kind.unknown


def granted(budget: RetryBudget, now: float, times: int = 1000) -> int:
    """Spend this many times; return how often a retry was granted."""
    return sum(budget.spend(KIND, now) is not None for _ in range(times))


def credited(budget: RetryBudget, now: float, times: int) -> None:
    for _ in range(times):
        budget.credit(None, now)


def test_a_new_ratio_applies_to_earlier_credits() -> None:
    budget = RetryBudget(0.1, 0, 10)
    credited(budget, 1.0, 100)
    assert granted(budget, 1.0, 4) == 4
    budget.reconfigure(RetryBudget(0.5, 0, 10))
    assert granted(budget, 1.0) == 46
    budget.reconfigure(RetryBudget(0.2, 0, 10))
    assert budget.snapshot() == {"available": 0, "limit": 20, "granted": 50, "credits": 100}
    budget.reconfigure(RetryBudget(0.2, 4, 10))
    assert granted(budget, 1.0) == 10


def test_a_budget_may_be_reconfigured_before_its_first_use() -> None:
    budget = RetryBudget(0.1, 0, 10)
    budget.reconfigure(RetryBudget(0.1, 1, 5))
    assert granted(budget, -100.0) == 5
    assert granted(budget, -94.0) == 5


@pytest.mark.parametrize(("window", "kept"), [(5, 0), (20, 50), (40, 50)])
def test_a_new_window_applies_to_earlier_counts(window: float, kept: int) -> None:
    """Credits and grants of eight seconds ago count in a window of twenty seconds, and not in one of five."""
    budget = RetryBudget(1, 0, 10)
    credited(budget, 2.0, 50)
    assert granted(budget, 2.0, 20) == 20
    credited(budget, 10.0, 7)
    budget.reconfigure(RetryBudget(1, 0, window))
    snapshot = budget.snapshot(10.0)
    assert (snapshot["credits"], snapshot["granted"]) == (kept + 7, 20 if kept else 0)
    assert granted(budget, 10.0) == snapshot["available"] == kept - 20 * bool(kept) + 7
    assert budget.snapshot(10.0 + window * 1.1)["granted"] == 0


def test_expired_counts_stay_expired() -> None:
    budget = RetryBudget(0, 1, 10)
    assert granted(budget, 0.0) == 10
    assert granted(budget, 11.0) == 10
    budget.reconfigure(RetryBudget(0, 1, 100))
    assert granted(budget, 11.0) == 90


def test_grants_never_lie_in_the_future() -> None:
    """The end of a long slice lies in the future, and is far away for a short window."""
    with virtual_time() as clock:
        clock.advance(1000.5)
        budget = RetryBudget(0, 0.01, 1000)
        assert granted(budget, clock.now()) == 10
        budget.reconfigure(RetryBudget(0, 500, 0.1))
        assert granted(budget, clock.now()) == 40
        clock.advance(0.11)
        assert granted(budget, clock.now()) == 50


def test_a_grant_of_another_window_cannot_be_refunded() -> None:
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


def test_a_change_that_interrupts_counting_is_applied_after_it() -> None:
    """A signal handler may do so."""

    class Interrupted(RetryBudget):
        interrupted = False

        def _count_pending(self) -> None:
            if not self.interrupted:
                self.interrupted = True
                self.reconfigure(RetryBudget(0.5, 0, 10))
                assert self.ratio == 0.1
            super()._count_pending()

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

TICK = 16  # ticks per second
STEPS = st.lists(
    st.tuples(st.sampled_from(["earn", "spend", "spend", "pass", "reconfigure"]), st.integers(0, 9)),
    max_size=60,
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
def test_no_more_is_granted_than_the_current_settings_allow(
    options: list[dict[str, Any]], steps: list[tuple[str, int]]
) -> None:
    """At every grant, fewer than the limit had been granted in the window up to then."""
    budget, now = RetryBudget(**options[0]), 0
    earned, known = list[int](), list[int]()
    for action, number in steps:
        match action:
            case "earn":
                credited(budget, now / TICK, number)
                earned += [now] * number
            case "pass":
                now += number * number
            case "reconfigure":
                # Counts that left the window do not return with a longer one.
                known = [when for when in known if now - when < Fraction(str(budget.window)) * TICK]
                budget.reconfigure(RetryBudget(**options[number]))
            case _:
                window = Fraction(str(budget.window)) * TICK
                recent = sum(now - when < window for when in earned)
                allowed = ceil(Fraction(str(budget.ratio)) * recent)
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
def test_rescaled_counts_never_become_younger_or_if_late_older(
    times: list[int], old: float, new: float, late: bool
) -> None:
    """After a change, no more events are counted than the window really has; or no fewer, if ``late``."""
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
