"""The traits of a budget, of this package or of a user: what calls skip, and what `explain` can rely on."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from redouble import Backoff, Hints, Retry, RetryBudget, TokenBucket
from redouble.types import BudgetTraits, WorstCase
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import Boom, Call, Ledger, always, fail, ok

NO_STARTS = BudgetTraits(counts_starts=False)
NO_STOPS = BudgetTraits(counts_stops=False)


class LedgerWithTraits(Ledger):
    """A budget with traits."""

    def __init__(self, traits: BudgetTraits) -> None:
        super().__init__()
        self.traits = traits


def ledger_with(traits: BudgetTraits | None) -> Ledger:
    return Ledger() if traits is None else LedgerWithTraits(traits)


@pytest.mark.parametrize("traits", [None, BudgetTraits(), NO_STOPS])
def test_calls_assume_nothing_of_a_budget_by_default(drive: Drive, traits: BudgetTraits | None) -> None:
    ledger = "start, failed unknown, spend unknown, credit 1"
    assert Call(1, ledger=ledger) == drive([fail(), ok(1)], budget=lambda: ledger_with(traits))


def test_the_start_of_a_call_that_succeeds_at_once_is_skipped_if_it_is_not_counted() -> None:
    budget = ledger_with(NO_STARTS)
    assert Retry(on=Boom, budget=budget)(lambda: 7)() == 7
    assert budget.lines == ["credit None"]


@pytest.mark.parametrize(
    ("traits", "ledger"),
    [(None, "start, failed unknown"), (BudgetTraits(), "start, failed unknown"), (NO_STOPS, "start")],
)
def test_a_failure_that_no_rule_retries_counts_unless_the_budget_ignores_it(
    drive: Drive, traits: BudgetTraits | None, ledger: str
) -> None:
    expected = Call(None, Boom, "stopped", ledger=ledger)
    assert expected == drive([fail()], on=always(False), budget=lambda: ledger_with(traits))


@pytest.mark.parametrize(("may_wait", "longest"), [(True, inf), (False, 4.0)])
def test_the_worst_case_is_known_if_no_grant_has_a_wait(may_wait: bool, longest: float) -> None:
    budget = ledger_with(BudgetTraits(may_wait=may_wait))
    hints = Hints("ignore")
    policy = Retry(attempts=3, backoff=Backoff.constant(2), hints=hints, budget=budget, give_up_after=None)
    assert policy.worst_case(WorstCase(1, 0.0)).seconds == longest


@pytest.mark.parametrize("traits", [True, {"counts_starts": False}, (True, True, True)])
def test_traits_of_another_type_are_rejected(traits: Any) -> None:
    with pytest.raises(TypeError, match=r"budget\.traits="):
        Retry(budget=ledger_with(traits))


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (RetryBudget(), BudgetTraits(counts_starts=False, may_wait=False)),
        (RetryBudget(credit="request"), BudgetTraits(may_wait=False)),
        (TokenBucket(), BudgetTraits(counts_starts=False, may_wait=False)),
        (TokenBucket(refill_per_second=1, when_empty="wait"), BudgetTraits(counts_starts=False)),
        (TokenBucket.grpc(), BudgetTraits(counts_starts=False, counts_stops=False, may_wait=False)),
    ],
)
def test_the_budgets_of_this_package(budget: Any, expected: BudgetTraits) -> None:
    assert budget.traits == expected


class CountingStarts(TokenBucket):
    """A bucket that counts calls."""

    started = 0

    def start(self, now: float | None = None, /) -> None:
        self.started += 1


def test_a_subclass_that_counts_starts_is_called() -> None:
    budget = CountingStarts()
    assert Retry(on=Boom, budget=budget)(lambda: 7)() == 7
    assert budget.started == 1
