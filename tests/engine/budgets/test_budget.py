"""The budget protocol: grants, and any object with the methods of a budget."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping

import pytest

from redouble import Backoff, Grant, Kind, Retry, errors, types
from tests.support.fakes import Ledger, Virtual


class NoRetries:
    """A minimal budget, which never grants a retry."""

    def start(self, now: float, /) -> None: ...

    def failed(self, kind: Kind, now: float, /) -> None: ...

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        return None

    def credit(self, grant: Grant | None, now: float, /) -> None: ...

    def refund(self, grant: Grant, now: float, /) -> None: ...

    def snapshot(self) -> Mapping[str, float]:
        return {}


def fails() -> None:
    raise ConnectionError


def test_a_grant_is_a_value() -> None:
    assert Grant(5) == Grant(cost=5, wait=0.0) != Grant(5, 1)
    assert Grant(5).wait == 0.0
    assert hash(Grant(5)) == hash(Grant(5))
    assert pickle.loads(pickle.dumps(Grant(5, 2))) == Grant(5, 2)
    with pytest.raises(AttributeError):
        setattr(Grant(5), "cost", 0)  # noqa: B010


def test_anything_with_the_methods_is_a_budget() -> None:
    budget: types.Budget = NoRetries()
    with pytest.raises(errors.BudgetExhausted) as caught:
        Retry(budget=budget, wrap=True).call(fails)
    assert caught.value.reason == "budget"
    with pytest.raises(ConnectionError):
        Retry(budget=budget).call(fails)


def test_the_wait_of_a_grant_is_the_shortest_delay() -> None:
    clock = Virtual()
    with pytest.raises(ConnectionError):
        Retry(backoff=[1, 9], attempts=3, budget=Ledger(wait=4), clock=clock).call(fails)
    assert clock.waits == [4, 9]


def test_sharing_is_by_identity() -> None:
    """Policies with the same budget object share its retries; policies with equal budgets do not."""
    shared, clock = Ledger(retries=3), Virtual()
    one = Retry(backoff=Backoff.constant(0), attempts=3, budget=shared, clock=clock)
    other = Retry(backoff=Backoff.constant(0), attempts=5, budget=shared, clock=clock)
    assert [one.run(fails).report.attempts, other.run(fails).report.attempts] == [3, 2]
    assert shared.snapshot() == {"available": 0}
    alone = Retry(backoff=Backoff.constant(0), attempts=3, budget=Ledger(retries=3), clock=clock)
    assert alone.run(fails).report.attempts == 3


def test_an_error_raised_by_a_budget_does_not_replace_that_of_the_call() -> None:
    class Breaking(NoRetries):
        def failed(self, kind: Kind, now: float, /) -> None:
            raise ZeroDivisionError

    with pytest.raises(ConnectionError):
        Retry(budget=Breaking()).call(fails)
    outcome = Retry(budget=Breaking()).run(fails)
    assert (outcome.ok, type(outcome.error), outcome.report.reason) == (False, ConnectionError, "budget")
    assert [entry.error_type for entry in outcome.report.history] == ["ConnectionError"]


def test_copies_of_a_policy_share_its_budget() -> None:
    """A policy is immutable, so that a copy is the same object; an unpickled one is equal."""
    policy = Retry(budget=Ledger(), labels={"team": "a"}, attempts=7)
    assert copy.deepcopy(policy) is policy
    arrived = pickle.loads(pickle.dumps(policy))
    assert arrived == policy
    assert (arrived.labels, arrived.attempts) == ({"team": "a"}, 7)
    assert pickle.loads(pickle.dumps(Retry())) == Retry()
