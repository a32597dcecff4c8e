"""`TokenBucket` alone: the costs of retries, and what adds tokens."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Any

import pytest

from redouble import Grant, Kind, TokenBucket, types
from redouble.testing import virtual_time
from tests.support.budgets import ANY, emptied, tokens
from tests.support.budgets import bucket_of as made

# ------------------------------------------------------------------------------------- options


def test_the_defaults() -> None:
    budget: types.Budget = TokenBucket()
    shown = repr(budget)
    assert shown.startswith("TokenBucket(capacity=500, costs={None: 5")
    assert "'throttled': 10" in shown
    assert shown.endswith("success_increment=1, refill_per_second=0, when_empty='refuse')")
    assert budget.snapshot() == {"tokens": 500, "owed": 0, "capacity": 500}


def test_options_are_attributes() -> None:
    bucket = TokenBucket(2.5, {Kind.network: 0.5}, 0.25, 3, "wait")
    assert (bucket.capacity, bucket.success_increment, bucket.refill_per_second) == (2.5, 0.25, 3)
    assert (bucket.when_empty, bucket.costs) == ("wait", {Kind.network: 0.5, None: 5})
    shown = repr(bucket)
    assert shown.startswith("TokenBucket(capacity=2.5, costs={")
    assert shown.endswith("success_increment=0.25, refill_per_second=3, when_empty='wait')")


EXPECTED = "write a finite number, 0 or more, such as"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"capacity": -1}, ValueError, f"TokenBucket capacity=-1: {EXPECTED} 500"),
        ({"capacity": inf}, ValueError, f"TokenBucket capacity=inf: {EXPECTED} 500"),
        ({"capacity": nan}, ValueError, f"TokenBucket capacity=nan: {EXPECTED} 500"),
        ({"capacity": True}, TypeError, f"TokenBucket capacity=True: {EXPECTED} 500"),
        ({"capacity": "500"}, TypeError, f"TokenBucket capacity='500': {EXPECTED} 500"),
        ({"success_increment": -1}, ValueError, f"TokenBucket success_increment=-1: {EXPECTED} 1"),
        ({"success_increment": None}, TypeError, f"TokenBucket success_increment=None: {EXPECTED} 1"),
        ({"refill_per_second": -0.5}, ValueError, f"TokenBucket refill_per_second=-0.5: {EXPECTED} 10"),
        ({"refill_per_second": nan}, ValueError, f"TokenBucket refill_per_second=nan: {EXPECTED} 10"),
        ({"refill_per_second": [1]}, TypeError, f"TokenBucket refill_per_second=[1]: {EXPECTED} 10"),
        ({"when_empty": "raise"}, ValueError, "TokenBucket when_empty='raise': write 'refuse' or 'wait'"),
        ({"when_empty": None}, ValueError, "TokenBucket when_empty=None: write 'refuse' or 'wait'"),
        (
            {"when_empty": "wait"},
            ValueError,
            "TokenBucket when_empty='wait' would wait for ever: set refill_per_second too, or 'refuse'",
        ),
        ({"costs": 5}, TypeError, "TokenBucket costs=5: write a mapping, such as {Kind.throttled: 10,"),
        ({"costs": None}, TypeError, "TokenBucket costs=None: write a mapping, such as"),
        ({"costs": [(None, 5)]}, TypeError, "TokenBucket costs=[(None, 5)]: write a mapping, such as"),
        (
            {"costs": {"slow": 5}},
            ValueError,
            "TokenBucket costs: 'slow' is no Kind (network, timeout, throttled, server, client, unknown)",
        ),
        ({"costs": {500: 5}}, ValueError, "TokenBucket costs: 500 is no Kind"),
        (
            {"costs": {Kind.network: -1}},
            ValueError,
            "TokenBucket costs[network]=-1: write a finite number of tokens, 0 or more",
        ),
        ({"costs": {None: inf}}, ValueError, "TokenBucket costs[None]=inf: write a finite number of tokens"),
        ({"costs": {None: "5"}}, TypeError, "TokenBucket costs[None]='5': write a finite number of tokens"),
        ({"costs": {None: True}}, TypeError, "TokenBucket costs[None]=True: write a finite number of"),
    ],
)
def test_wrong_options_are_refused_by_name(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        TokenBucket(**options)


# --------------------------------------------------------------------------------------- costs


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        (None, {Kind.throttled: 10, Kind.timeout: 10}),
        ({}, {}),
        ({Kind.network: 1}, {Kind.network: 1}),
        ({"network": 1}, {Kind.network: 1}),
        ({Kind.network: 0, None: 2.5}, {Kind.network: 0, None: 2.5}),
    ],
)
def test_the_cost_of_a_retry_depends_on_its_kind(costs: Any, expected: dict[Kind | None, float]) -> None:
    """None stands for all kinds that are not named."""
    for kind in Kind:
        bucket = TokenBucket() if costs is None else TokenBucket(costs=costs)
        cost = expected.get(kind, expected.get(None, 5))
        assert bucket.spend(kind, 0.0) == Grant(cost)
        assert tokens(bucket) == 500 - cost


def test_costs_are_copied() -> None:
    costs: dict[Kind | None, float] = {None: 1}
    bucket = TokenBucket(costs=costs)
    costs[None] = 100
    assert bucket.spend(ANY, 0.0) == Grant(1)
    assert bucket.costs == {None: 1}
    with pytest.raises(TypeError):
        bucket.costs[None] = 0  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


def test_a_retry_that_costs_too_much_takes_nothing() -> None:
    """A kind that costs less may still be granted."""
    bucket = TokenBucket(14, costs={Kind.throttled: 10, None: 5})
    assert bucket.spend(Kind.throttled, 0.0) == Grant(10)
    assert bucket.spend(Kind.throttled, 0.0) is None
    assert bucket.spend(Kind.network, 0.0) is None
    assert tokens(bucket) == 4
    bucket.credit(None, 0.0)
    assert bucket.spend(Kind.throttled, 0.0) is None
    assert bucket.spend(Kind.network, 0.0) == Grant(5)
    assert tokens(bucket) == 0


def test_an_empty_bucket_refuses_and_a_free_retry_is_free() -> None:
    assert made(0).spend(ANY, 0.0) is None
    assert made(0, cost=0).spend(ANY, 0.0) == Grant(0)


# -------------------------------------------------------------------------- credits and refunds


def test_a_success_adds_the_increment_or_the_cost_of_its_last_retry() -> None:
    bucket = TokenBucket(100)
    first = bucket.spend(Kind.network, 0.0)
    last = bucket.spend(Kind.timeout, 0.0)
    assert (first, last, tokens(bucket)) == (Grant(5), Grant(10), 85)
    bucket.credit(last, 0.0)
    assert tokens(bucket) == 95
    bucket.credit(None, 0.0)
    assert tokens(bucket) == 96


def test_starts_and_failures_add_no_tokens() -> None:
    bucket = made(refill_per_second=1)
    assert emptied(bucket, 5.0) == 10
    bucket.start(5.0)
    bucket.failed(ANY, 5.0)
    assert tokens(bucket, 5.0) == 0


@pytest.mark.parametrize("rate", [0, 3])
def test_tokens_never_exceed_the_capacity(rate: float) -> None:
    bucket = made(cost=4, refill_per_second=rate, success_increment=7)
    grant = bucket.spend(ANY, 1.0)
    assert grant is not None
    bucket.credit(None, 1.0)
    assert tokens(bucket, 1.0) == 10
    bucket.refund(grant, 1.0)
    bucket.credit(grant, 1.0)
    assert tokens(bucket, 1000.0) == 10
    assert emptied(bucket, 1000.0) == 2


def test_a_refund_returns_the_cost_of_the_grant() -> None:
    bucket = TokenBucket(20)
    grants = [bucket.spend(kind, 0.0) for kind in (Kind.throttled, Kind.network, Kind.network)]
    for left, grant in zip((10, 15, 20), grants, strict=True):
        assert grant is not None
        bucket.refund(grant, 0.0)
        assert tokens(bucket) == left


def test_fractions_of_tokens_add_up() -> None:
    """Ten tenths are one, despite rounding."""
    bucket = made(1, success_increment=0.1)
    assert emptied(bucket, 0.0) == 1
    for _ in range(10):
        assert bucket.spend(ANY, 0.0) is None
        bucket.credit(None, 0.0)
    assert bucket.spend(ANY, 0.0) is not None


def test_without_a_time_argument_the_current_time_is_used() -> None:
    with virtual_time() as clock:
        bucket = made(refill_per_second=1)
        bucket.start()
        bucket.failed()
        grant = bucket.spend()
        assert grant is not None
        bucket.refund(grant)
        assert [bucket.spend() for _ in range(11)] == [Grant(1)] * 10 + [None]
        bucket.credit()
        assert tokens(bucket) == 1
        clock.advance(2.5)
        assert (bucket.spend(), tokens(bucket)) == (Grant(1), 2.5)
