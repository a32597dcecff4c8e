"""A view of a budget for outer policies: it spends, and never credits."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import httpx
import pytest

from redouble import Kind, Pipeline, Retry, RetryBudget, TokenBucket, presets
from redouble._engine.budgets.budget_protocol import shared_budget
from redouble.http import HostBudgets
from redouble.httpx import Transport
from redouble.types import Budget, BudgetTraits
from tests.support.call_shapes import EVERY_ASYNC_SHAPE, EVERY_SHAPE
from tests.support.fakes import Boom, in_colour, options


def retrying(budget: Any, **given: Any) -> Retry:
    return Retry(**options(on=Boom, attempts=3, backoff=[0, 0], budget=budget, nested="allow") | given)


class Failing:
    """A function that fails as often as it is told."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails

    def __call__(self) -> str:
        self.fails -= 1
        if self.fails >= 0:
            raise Boom
        return "done"

    async def acall(self) -> str:
        return self()


@pytest.mark.parametrize("credit", ["success", "request"])
@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_its_retries_spend_and_its_successes_add_nothing(colour: str, shape: str, credit: Any) -> None:
    budget = RetryBudget(1, credit=credit)
    policy, fn = retrying(budget.without_credit()), Failing(1)
    run, arun = EVERY_SHAPE[shape], EVERY_ASYNC_SHAPE[shape]
    assert in_colour(colour, lambda: run(policy, fn), lambda: arun(policy, fn.acall)) == "done"
    seen = budget.snapshot()
    assert (seen["granted"], seen["credits"]) == (1, 0)


@pytest.mark.parametrize("levels", [1, 2])
def test_each_call_inside_credits(colour: str, levels: int) -> None:
    """The outer policy is no call of the budget, so it hides none."""
    budget = RetryBudget(1)
    outer, inner, fn = retrying(budget.without_credit()), retrying(budget), Failing()
    pipeline = Pipeline(*[outer] * levels)
    wrapped, awrapped = inner(fn), inner(fn.acall)

    def several() -> list[str]:
        return [wrapped() for _ in range(3)]

    async def aseveral() -> list[str]:
        return [await awrapped() for _ in range(3)]

    assert in_colour(colour, pipeline(several), pipeline(aseveral)) == ["done"] * 3
    assert budget.snapshot()["credits"] == 3


def test_a_block_with_a_view_leaves_the_credit_to_the_policy_inside(colour: str) -> None:
    """A block cannot know what runs inside it, and would credit the budget beside it."""
    budget = RetryBudget(1, max_in_flight=0.5)
    outer, inner, fn = retrying(budget.without_credit()), retrying(budget), Failing(3)
    block, ablock = EVERY_SHAPE["loop"], EVERY_ASYNC_SHAPE["loop"]
    wrapped, awrapped = inner(fn), inner(fn.acall)
    assert in_colour(colour, lambda: block(outer, wrapped), lambda: ablock(outer, awrapped)) == "done"
    seen = budget.snapshot()
    assert (seen["credits"], seen["granted"]) == (1, 3)
    assert (seen["calls_in_flight"], seen["retries_in_flight"]) == (0, 0)


def test_inside_a_call_that_credits_it_spends() -> None:
    bucket = TokenBucket(100, {None: 10})
    retrying(bucket)(lambda: retrying(bucket.without_credit()).call(Failing(1)))()
    assert bucket.snapshot()["tokens"] == 91  # the retry cost 10, the success of the outer call adds 1


def test_a_refused_grant_is_refunded() -> None:
    budget = RetryBudget(0, per_second=1)
    policy = retrying(budget.without_credit())
    with pytest.raises(Boom):
        retrying(budget.without_credit(), backoff=[50], give_up_after=2).call(Failing(1))
    assert budget.snapshot()["granted"] == 0
    assert policy.budget is not None
    grant = policy.budget.spend(Kind.server, 1.0)
    assert grant is not None
    policy.budget.refund(grant, 1.0)
    assert budget.snapshot(1.0)["granted"] == 0


@pytest.mark.parametrize(
    "budget", [RetryBudget(name="one"), TokenBucket(name="one"), TokenBucket.grpc(name="one")]
)
def test_what_a_view_says(budget: Any) -> None:
    view: Any = budget.without_credit()
    assert view == budget.without_credit()
    assert hash(view) == hash(budget.without_credit())
    assert view != budget
    assert view != RetryBudget().without_credit()
    assert (shared_budget(view), shared_budget(budget)) == (budget, budget)
    assert view.name == "one"
    assert view.snapshot() == budget.snapshot()
    assert repr(view) == f"{budget!r}.without_credit()"
    assert copy.deepcopy(view) is copy.copy(view) is view
    with pytest.raises(TypeError, match="shared by the calls of one process"):
        pickle.dumps(view)
    assert not view.can_reconfigure(view)
    before = budget.snapshot()
    view.start(1.0)
    view.failed(Kind.server, 1.0)
    view.credit(None, 1.0)
    assert budget.snapshot() == before


def test_the_traits_are_those_of_the_budget_now() -> None:
    bucket = TokenBucket(5, refill_per_second=1)
    view: Any = bucket.without_credit()
    assert view.traits == BudgetTraits(False, False, False, False)
    bucket.reconfigure(TokenBucket(5, refill_per_second=1, when_empty="wait"))
    assert view.traits.may_wait


def test_a_view_of_budgets_by_host() -> None:
    budgets = HostBudgets(1, per_second=1)
    view: Budget = budgets.without_credit()
    statuses = [503, 200]
    transport = Transport(
        Retry(budget=view, backoff=[0]),
        wrapped=httpx.MockTransport(lambda _: httpx.Response(statuses.pop(0))),
    )
    transport.handle_request(httpx.Request("GET", "http://there.test/"))
    (one,) = budgets._by_host._values.values()
    seen = one.snapshot()
    assert (seen["granted"], seen["credits"]) == (1, 0)
    assert budgets.snapshot()["granted"] == 0


def test_the_balance_of_a_view_is_that_of_its_budget() -> None:
    """Which limits the retries of a call in Finagle's preset."""
    budget = RetryBudget(0, per_second=1, window=10)
    assert presets.finagle(budget=budget.without_credit()).attempts_of_call(0.0) == 3
