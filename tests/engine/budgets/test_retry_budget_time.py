"""`RetryBudget` and time: how long credits and grants count, refunds, and unusual clocks."""

from __future__ import annotations

from math import inf, nan

import pytest

from redouble import Grant, RetryBudget
from tests.support.budgets import budget_of as made
from tests.support.budgets import credited, granted, spent

# ---------------------------------------------------------------------------------- windows


@pytest.mark.parametrize("window", [0.5, 1, 10, 3600])
@pytest.mark.parametrize("start", [0.0, 7.0, 123456.75])
def test_credits_count_for_at_most_a_window(window: float, start: float) -> None:
    for age, counts in [(0, True), (0.5, True), (0.98, True), (1, False), (1.5, False), (40, False)]:
        budget = made(ratio=1, window=window)
        budget.credit(None, start)
        assert granted(budget, start + age * window) == counts, age


@pytest.mark.parametrize("window", [0.5, 1, 10, 3600])
@pytest.mark.parametrize("start", [0.0, 7.0, 123456.75])
def test_grants_count_for_at_least_a_window(window: float, start: float) -> None:
    for age, counts in [(0, True), (0.5, True), (1, True), (1.02, False), (1.5, False), (40, False)]:
        budget = RetryBudget(ratio=0, per_second=1 / window, window=window)
        assert granted(budget, start) == 1
        assert granted(budget, start + age * window) == (not counts), age


def test_a_window_slides() -> None:
    """With a fixed window, two bursts at its edge would make one burst of twice the size."""
    budget = RetryBudget(ratio=0, per_second=1, window=10)
    assert len(spent(budget, 9.0, most=6)) == 6
    assert granted(budget, 11.0) == 4
    assert granted(budget, 18.9) == 0
    assert granted(budget, 19.2) == 6
    assert granted(budget, 21.2) == 4


def test_credits_count_from_their_own_time() -> None:
    """Credits that expire before the next `spend` add nothing."""
    budget = made(ratio=1)
    for now in (0.0, 3.0, 9.0, 12.0):
        budget.credit(None, now)
    assert granted(budget, 12.5) == 3


def test_thousands_of_pending_credits_expire() -> None:
    budget = made(ratio=0.5)
    for number in range(10_000):
        budget.credit(None, number / 100)  # a hundred a second, for a hundred seconds
    assert 490 <= granted(budget, 99.99) <= 500


# ---------------------------------------------------------------------------------- refunds


def test_a_refunded_grant_can_be_granted_again() -> None:
    budget = made(per_second=1)
    grants = spent(budget, 4.0)
    for grant in grants[:3]:
        budget.refund(grant, 4.0)
    assert budget.snapshot() == {"available": 3, "limit": 10, "granted": 7, "credits": 0}
    assert granted(budget, 4.0) == 3


def test_a_refund_counts_for_the_time_of_its_grant() -> None:
    """It frees a retry for no longer than the grant would have counted."""
    budget = made(per_second=1)
    early = spent(budget, 1.0, most=5)
    assert granted(budget, 6.0) == 5
    for grant in early:
        budget.refund(grant, 8.0)
    assert granted(budget, 8.0) == 5
    assert granted(budget, 11.5) == 0


@pytest.mark.parametrize("later", [11.2, 15.0, 100.0])
def test_the_refund_of_an_expired_grant_adds_nothing(later: float) -> None:
    budget = made(per_second=1)
    old = spent(budget, 1.0)
    assert granted(budget, later) == 10
    for grant in old:
        budget.refund(grant, later)
    assert granted(budget, later) == 0


def test_a_refund_of_a_foreign_grant_frees_at_most_what_was_spent() -> None:
    budget = made(per_second=0.2)
    for _ in range(5):
        budget.refund(Grant(1), 1.0)
    assert granted(budget, 1.0) == 2
    budget.refund(Grant(1), 1.0)
    assert granted(budget, 1.0) == 1


# ------------------------------------------------------------------------------------ clocks


@pytest.mark.parametrize("back", [0.01, 1.0, 9.0])
def test_a_time_before_the_latest_one_is_accepted(back: float) -> None:
    """Another thread was faster: nothing is forgotten, and nothing counts twice."""
    budget = made(ratio=1, per_second=0.2)
    credited(budget, 3, 50.0)
    assert len(spent(budget, 50.0, most=4)) == 4
    assert granted(budget, 50.0 - back) == 1
    assert granted(budget, 50.0) == 0
    budget.credit(None, 50.0 - back)
    assert granted(budget, 50.0) == 1


def test_counts_are_dropped_when_the_clock_restarts() -> None:
    """The budget continues with the times of the new clock."""
    budget = made(ratio=1, per_second=0.2)
    credited(budget, 3, 1000.0)
    old = spent(budget, 1000.0)
    assert len(old) == 5
    assert granted(budget, 1.0) == 2
    budget.refund(old[0], 1.0)
    assert granted(budget, 1.0) == 0
    credited(budget, 3, 2.0)
    assert granted(budget, 2.0) == 3


def test_a_credit_may_be_the_first_use_after_the_clock_restarts() -> None:
    """A snapshot in between changes nothing."""
    budget = made(ratio=1)
    credited(budget, 3, 5000.0)
    assert budget.snapshot()["credits"] == 3
    credited(budget, 2, 3.0)
    assert budget.snapshot()["credits"] == 2
    assert granted(budget, 3.0) == 2


@pytest.mark.parametrize("start", [-1e6, -1000.0, -10.05, -0.09])
def test_a_clock_may_be_below_zero(start: float) -> None:
    """Only differences of times count."""
    budget = made(ratio=1, per_second=0.1)
    assert granted(budget, start) == 1
    budget.credit(None, start)
    assert granted(budget, start + 9.8) == 1
    budget.credit(None, start)
    assert granted(budget, start + 10.01) == 0
    assert granted(budget, start + 20.2) == 1


@pytest.mark.parametrize("nonsense", [nan, inf, -inf])
def test_a_credit_at_an_invalid_time_is_lost(nonsense: float) -> None:
    """All other credits count."""
    budget = made(ratio=1)
    credited(budget, 2, 5.0)
    budget.credit(None, nonsense)
    credited(budget, 2, 5.0)
    assert granted(budget, 5.0) == 4


def test_a_clock_may_be_huge() -> None:
    budget = made(ratio=1, per_second=0.1)
    credited(budget, 2, 1e15)
    assert granted(budget, 1e15) == 3


# --------------------------------------------------------------------------------- snapshots


def test_a_snapshot_is_taken_at_the_time_of_the_last_use() -> None:
    """A credit is a use."""
    budget = made(ratio=1, per_second=0.2)
    credited(budget, 3, 5000.0)
    assert budget.snapshot() == {"available": 5, "limit": 5, "granted": 0, "credits": 3}
    assert granted(budget, 5000.0) == 5
    budget.credit(None, 6000.0)
    assert budget.snapshot() == {"available": 3, "limit": 3, "granted": 0, "credits": 1}
    assert granted(budget, 6000.0) == 3


def test_a_snapshot_may_be_taken_at_a_given_time() -> None:
    budget = made(ratio=1)
    credited(budget, 3, 100.0)
    assert budget.snapshot(105.0)["available"] == 3
    assert budget.snapshot(111.0)["available"] == 0


def test_a_snapshot_of_a_later_time_changes_nothing() -> None:
    budget = made(per_second=0.1)
    assert granted(budget, 50.0) == 1
    assert budget.snapshot(1000.0)["available"] == 1
    assert granted(budget, 50.0) == 0


def test_available_is_never_negative() -> None:
    """Credits expire before the grants that they paid for."""
    budget = made(ratio=1)
    credited(budget, 5, 1.0)
    assert granted(budget, 10.9) == 5
    assert budget.snapshot(11.0) == {"available": 0, "limit": 0, "granted": 5, "credits": 0}
