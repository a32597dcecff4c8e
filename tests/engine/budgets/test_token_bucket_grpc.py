"""`TokenBucket.grpc`: failures that a rule would retry cost tokens, and successes add some."""

from __future__ import annotations

import copy
import pickle
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Grant, Hints, Kind, Retry, Throttle, Timeout, TokenBucket, Verdict, errors, types
from redouble._engine.budgets.token_bucket import RetryThrottling
from redouble.testing import Script, fail, ok
from tests.support.fakes import Boom, Draws, always, in_colour
from tests.support.fakes import options as defaults
from tests.support.layers.limits.throttles import with_history
from tests.support.thread_switching import run_in_threads, switching

EXPECTED = "write a number from 1 to 1000, such as 10"


def tokens(budget: RetryThrottling) -> float:
    return budget.snapshot()["tokens"]


def after(budget: RetryThrottling, failures: int) -> RetryThrottling:
    """Record this many failures."""
    for _ in range(failures):
        budget.failed(Kind.server, 0.0)
    return budget


# ------------------------------------------------------------------------- the budget alone


def test_the_defaults_and_the_repr() -> None:
    budget: types.Budget = TokenBucket.grpc()
    assert budget.snapshot() == {"tokens": 10, "capacity": 10, "above": 5}
    assert repr(budget) == "TokenBucket.grpc(tokens=10, ratio=0.1)"
    made = TokenBucket.grpc(2.5, 0.125)
    assert (made.capacity, made.ratio) == (2.5, 0.125)
    other = eval(repr(made))  # noqa: S307
    assert (other.capacity, other.ratio) == (2.5, 0.125)
    assert copy.copy(made) is copy.deepcopy(made) is made
    with pytest.raises(TypeError, match="a RetryThrottling is shared by the calls of one process"):
        pickle.dumps(made)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokens": 0}, ValueError, f"TokenBucket.grpc tokens=0: {EXPECTED}"),
        ({"tokens": 0.9}, ValueError, f"TokenBucket.grpc tokens=0.9: {EXPECTED}"),
        ({"tokens": 1001}, ValueError, f"TokenBucket.grpc tokens=1001: {EXPECTED}"),
        ({"tokens": nan}, ValueError, "TokenBucket.grpc tokens=nan"),
        ({"tokens": True}, TypeError, "TokenBucket.grpc tokens=True"),
        ({"tokens": "10"}, TypeError, "TokenBucket.grpc tokens='10'"),
        ({"ratio": 0}, ValueError, "TokenBucket.grpc ratio=0: write a number above 0, such as 0.1"),
        ({"ratio": -1}, ValueError, "TokenBucket.grpc ratio=-1"),
        ({"ratio": inf}, ValueError, "TokenBucket.grpc ratio=inf"),
        ({"ratio": None}, TypeError, "TokenBucket.grpc ratio=None"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        TokenBucket.grpc(**options)


@pytest.mark.parametrize(
    ("most", "failures", "allowed"),
    [(10, 0, 5), (4, 0, 2), (3, 0, 2), (1, 0, 1), (1.5, 0, 1), (10, 4, 1), (10, 5, 0), (10, 99, 0)],
)
def test_retries_are_granted_while_more_than_half_of_the_tokens_are_left(
    most: float, failures: int, allowed: int
) -> None:
    budget, granted = after(TokenBucket.grpc(most), failures), 0
    while budget.spend(Kind.server, 0.0) is not None:
        granted += 1
        budget.failed(Kind.server, 0.0)
    assert granted == allowed


def test_tokens_stay_between_zero_and_the_capacity() -> None:
    budget = after(TokenBucket.grpc(2.5, 1), 2)
    assert tokens(budget) == 0.5
    assert tokens(after(budget, 1)) == 0
    assert tokens(after(budget, 1)) == 0
    for left in (1, 2, 2.5, 2.5):
        budget.credit(None, 0.0)
        assert tokens(budget) == left


def test_starts_grants_and_refunds_change_no_tokens() -> None:
    budget = after(TokenBucket.grpc(), 1)
    budget.start(0.0)
    grant = budget.spend(Kind.throttled, 0.0)
    assert grant is not None
    assert grant == Grant(0)
    budget.refund(grant, 0.0)
    assert budget.spend() == Grant(0)
    assert tokens(budget) == 9
    assert TokenBucket.grpc(1).spend() is not None


@settings(max_examples=50)
@given(st.integers(1, 20), st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.lists(st.booleans(), max_size=60))
def test_the_tokens_follow_the_grpc_proposal(most: int, ratio: float, ends: list[bool]) -> None:
    budget, left = TokenBucket.grpc(most, ratio), float(most)
    for good in ends:
        if good:
            budget.credit()
            left = min(most, left + ratio)
        else:
            budget.failed()
            left = max(0, left - 1)
        assert tokens(budget) == left
        assert (budget.spend() is not None) is (left > most / 2)


@pytest.mark.usefixtures(switching.__name__)
def test_tokens_are_counted_exactly_on_many_threads() -> None:
    budget = after(TokenBucket.grpc(1000, 0.5), 500)

    def failing(owner: str) -> None:
        after(budget, 60)

    def succeeding(owner: str) -> None:
        for _ in range(60):
            budget.credit(None, 0.0)

    run_in_threads(failing, succeeding, threads=8)
    assert tokens(budget) == 500 - 4 * 60 + 4 * 60 * 0.5


# -------------------------------------------------------------------------- in a policy


def outcome(colour: str, policy: Any, *steps: Any) -> tuple[object, int]:
    """Make a call; return the reason why it was given up, and the number of attempts."""
    script = Script(*steps)

    async def waiting() -> Any:
        return await policy.run(script.aio)

    report = in_colour(colour, lambda: policy.run(script), waiting).report
    return report.reason, report.attempts


def policy_with(budget: types.Budget, **options: Any) -> Retry:
    return Retry(**defaults(on=Boom, attempts=4, backoff=[0] * 9, budget=budget) | options)


def test_retries_stop_when_half_of_the_tokens_are_spent(colour: str) -> None:
    budget = TokenBucket.grpc(4, 0.5)
    policy = policy_with(budget)
    assert outcome(colour, policy, *[Boom()] * 9) == ("budget", 2)
    assert tokens(budget) == 2
    assert outcome(colour, policy, *[Boom()] * 9) == (
        "budget",
        1,
    )  # it costs a token, although it is not retried
    assert tokens(budget) == 1
    for left in (1.5, 2, 2.5):
        assert outcome(colour, policy, ok(1)) == (None, 1)
        assert tokens(budget) == left
    assert outcome(colour, policy_with(TokenBucket.grpc(4)), Boom(), ok(1)) == (None, 2)


def test_the_failure_of_the_last_attempt_costs_a_token(colour: str) -> None:
    budget = TokenBucket.grpc(100)
    assert outcome(colour, policy_with(budget), *[Boom()] * 9) == ("attempts", 4)
    assert tokens(budget) == 96


def test_a_success_after_retries_adds_the_same_ratio(colour: str) -> None:
    budget = TokenBucket.grpc(10, 0.5)
    assert outcome(colour, policy_with(budget), Boom(), Boom(), ok(1)) == (None, 3)
    assert tokens(budget) == 8.5


@pytest.mark.parametrize(
    ("options", "cost"),
    [
        ({}, 0),  # OSError is retried here, and Boom is not
        ({"on": always(False)}, 0),
        ({"on": always(None)}, 0),
        ({"on": always(Verdict.stop())}, 0),
        ({"on": Boom, "attempts": 1}, 1),
        ({"on": always(True), "attempts": 1}, 1),
        ({"on": always(2.5), "attempts": 1}, 1),
    ],
)
def test_failures_that_no_rule_would_retry_cost_nothing(
    colour: str, options: dict[str, Any], cost: float
) -> None:
    budget = TokenBucket.grpc()
    assert outcome(colour, policy_with(budget, **{"on": OSError, **options}), Boom())[1] == 1
    assert tokens(budget) == 10 - cost


def test_results_that_until_rejects_cost_a_token(colour: str) -> None:
    budget = TokenBucket.grpc(4, 0.5)
    policy = policy_with(budget, until="done".__eq__)
    assert outcome(colour, policy, ok("new"), ok("done")) == (None, 2)
    assert tokens(budget) == 3.5


def test_a_rejection_by_a_gate_costs_no_token(colour: str) -> None:
    budget, gate = TokenBucket.grpc(), with_history(Throttle(window=1e9, random=Draws(0.0)), 0, 99)
    policy = policy_with(budget, on=[errors.Rejected, Boom]) | gate
    script = Script(fail())

    async def waiting() -> None:
        await policy.call(script.aio)

    with pytest.raises(errors.Rejected):
        in_colour(colour, lambda: policy.call(script), waiting)
    assert not script.calls
    assert tokens(budget) == 10


def test_an_ordinary_bucket_counts_every_failure(colour: str) -> None:
    """Only this budget ignores failures that no rule would retry."""
    failures: list[Kind] = []

    class CountingBucket(TokenBucket):
        def failed(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> None:
            failures.append(kind)

    assert outcome(colour, policy_with(CountingBucket(), on=OSError), Boom()) == ("stopped", 1)
    assert failures == [Kind.unknown]


def test_policies_that_share_a_bucket_stop_retrying_together(colour: str) -> None:
    budget = TokenBucket.grpc(4)
    one, other = policy_with(budget), policy_with(budget, attempts=9)
    assert outcome(colour, one, *[Boom()] * 9) == ("budget", 2)
    assert outcome(colour, other, *[Boom()] * 9) == ("budget", 1)


def test_the_bucket_never_delays_a_retry() -> None:
    policy = policy_with(TokenBucket.grpc(), attempts=3, backoff=[1, 2], hints=Hints(mode="ignore"))
    text = (policy | Timeout(2)).explain()
    assert "delays of 3 s in all, within 30 s, limited by a budget" in text
    assert "at worst: 3 calls, 9 s" in text
