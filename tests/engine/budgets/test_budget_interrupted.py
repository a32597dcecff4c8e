"""Budgets that are interrupted by the garbage collector, by a signal or by Ctrl-C.

The interruption runs on the thread that holds the lock. These tests interrupt at every call and at every
return inside the budget, one after the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

from redouble import Grant, RetryBudget, TokenBucket
from redouble._engine.budgets import retry_budget, token_bucket
from redouble._internal import locks, reentrancy, sliding_counter
from tests.support.budgets import ANY, InterruptingTime, bucket_of
from tests.support.interruption import interrupted

MODULES = (retry_budget, token_bucket, sliding_counter, locks, reentrancy)
MOMENTS = 200  # more than any single operation has

Budget: TypeAlias = RetryBudget | TokenBucket


def budget() -> RetryBudget:
    return RetryBudget(ratio=1, per_second=1, window=10)


def bucket() -> TokenBucket:
    return bucket_of(40, refill_per_second=1e-9)


class Uses:
    """The operations on one budget, and their totals."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.now = 5.0
        self.credits = 0
        self.held: list[Grant] = []
        for _ in range(250):  # a few more, and the pending credits are counted
            self.credit()
        for _ in range(10):
            self.spend()

    def spend(self) -> None:
        grant = self.budget.spend(ANY, self.now)
        if grant is not None:
            self.held.append(grant)

    def refund(self) -> None:
        if self.held:
            self.budget.refund(self.held.pop(), self.now)

    def credit(self) -> None:
        self.credits += 1
        self.budget.credit(None, self.now)

    def credits_until_counted(self) -> None:
        for _ in range(7):
            self.credit()

    def look(self) -> None:
        assert self.budget.snapshot(self.now)

    def later(self) -> None:
        self.now += 0.3
        self.spend()

    def check(self) -> None:
        """Check that nothing was lost."""
        seen = self.budget.snapshot(self.now)
        assert (seen["granted"], seen["credits"]) == (len(self.held), self.credits)


USES = ("spend", "refund", "credit", "credits_until_counted", "look", "later")


@pytest.mark.parametrize("inner", USES)
@pytest.mark.parametrize("outer", USES)
def test_re_entrant_operations_on_a_budget_are_all_counted(outer: str, inner: str) -> None:
    """Every credit counts once, and so does every grant that was not refunded."""
    for moment in range(MOMENTS):
        uses = Uses(budget())
        with interrupted(MODULES, getattr(uses, inner), moment) as fired:
            getattr(uses, outer)()
        uses.check()
        if not fired:
            assert moment, "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


@pytest.mark.parametrize("inner", ["spend", "refund", "look"])
@pytest.mark.parametrize("outer", ["spend", "refund", "look", "later"])
def test_re_entrant_operations_on_a_bucket_are_all_counted(outer: str, inner: str) -> None:
    for moment in range(MOMENTS):
        uses = Uses(bucket())
        with interrupted(MODULES, getattr(uses, inner), moment) as fired:
            getattr(uses, outer)()
        assert uses.budget.snapshot()["tokens"] == pytest.approx(40 - len(uses.held))
        if not fired:
            assert moment, "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


@pytest.mark.parametrize("inner", ["failed", "credit"])
@pytest.mark.parametrize("outer", ["failed", "credit"])
def test_re_entrant_operations_on_retry_throttling_are_all_counted(outer: str, inner: str) -> None:
    for moment in range(MOMENTS):
        budget = TokenBucket.grpc(10, ratio=0.5)
        for _ in range(4):
            budget.failed()
        with interrupted(MODULES, getattr(budget, inner), moment) as fired:
            getattr(budget, outer)()
        changes = {"failed": -1.0, "credit": 0.5}
        assert budget.snapshot()["tokens"] == 6 + changes[outer] + (changes[inner] if fired else 0.0)
        if not fired:
            assert moment, "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


def test_a_re_entrant_spend_is_refused() -> None:
    """The count is not settled at that moment. A re-entrant refund is counted later."""
    budget = RetryBudget(ratio=0, per_second=1)
    mine = [budget.spend(ANY, 5.0), budget.spend(ANY, 5.0)]
    now = InterruptingTime(5.0)
    answers: list[Grant | None] = []

    def meanwhile() -> None:
        now.action = lambda: None
        answers.append(budget.spend(ANY, 5.0))
        for grant in mine:
            assert grant is not None
            budget.refund(grant, 5.0)

    now.action = meanwhile
    budget.credit(None, now)
    assert budget.spend(ANY, 5.0) is not None
    assert answers == [None]
    assert budget.snapshot() == {"available": 9, "limit": 10, "granted": 1, "credits": 1}


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("make", [budget, bucket])
@pytest.mark.parametrize("outer", USES)
def test_a_budget_works_after_an_interrupt_at_any_point(outer: str, make: Callable[[], Budget]) -> None:
    """An interrupted operation may or may not count; later ones count exactly."""
    for moment in range(MOMENTS):
        uses = Uses(make())
        before = len(uses.held)
        with interrupted(MODULES, interrupt, moment) as fired, suppress(KeyboardInterrupt):
            getattr(uses, outer)()
        seen = uses.budget.snapshot(uses.now)
        if "tokens" in seen:
            assert 40 - before - 1 <= seen["tokens"] <= 40
        else:
            assert abs(seen["granted"] - before) <= 1
            assert seen["credits"] <= uses.credits
        still_counts(uses)
        if not fired:
            assert moment, "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


def still_counts(uses: Uses) -> None:
    """Check that further operations are counted exactly."""
    before = uses.budget.snapshot(uses.now)
    for _ in range(20):
        uses.spend()
    for _ in range(20):
        uses.refund()
    assert uses.budget.snapshot(uses.now) == pytest.approx(before)
    if isinstance(uses.budget, RetryBudget):
        for _ in range(300):
            uses.credit()
        assert uses.budget.snapshot(uses.now)["credits"] == before["credits"] + 300


# ----------------------------------------------------------------------- the garbage collector


class Lost:
    """A call in a reference cycle that was dropped in its delay: its finaliser refunds the grant."""

    def __init__(self, budget: Budget, grant: Grant) -> None:
        self.budget, self.grant, self.myself = budget, grant, self

    def __del__(self) -> None:
        self.budget.refund(self.grant, 5.0)


@pytest.mark.parametrize("make", [budget, bucket])
def test_grants_refunded_by_the_garbage_collector_are_counted(make: Callable[[], Budget]) -> None:
    """It may run at any moment, also while the same thread holds the lock."""
    shared, threshold = make(), gc.get_threshold()
    full = shared.snapshot(5.0)
    gc.set_threshold(1)
    try:
        for _ in range(3000):
            shared.credit(Grant(0), 5.0)
            grant = shared.spend(ANY, 5.0)
            if grant is not None:
                Lost(shared, grant)
            shared.snapshot(5.0)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    seen = shared.snapshot(5.0)
    if "tokens" in seen:
        assert seen == pytest.approx(full)
    else:
        assert (seen["granted"], seen["credits"]) == (0, 3000)
