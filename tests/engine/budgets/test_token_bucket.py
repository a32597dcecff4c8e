"""TokenBucket alone: what retries cost, and what returns tokens."""

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
    said = repr(budget)
    assert said.startswith("TokenBucket(capacity=500, costs={None: 5")
    assert "'throttled': 10" in said
    assert said.endswith("success_increment=1, refill_per_second=0, when_empty='refuse')")
    assert budget.snapshot() == {"tokens": 500, "owed": 0, "capacity": 500}


def test_it_has_its_options_as_attributes() -> None:
    bucket = TokenBucket(2.5, {Kind.network: 0.5}, 0.25, 3, "wait")
    assert (bucket.capacity, bucket.success_increment, bucket.refill_per_second) == (2.5, 0.25, 3)
    assert (bucket.when_empty, bucket.costs) == ("wait", {Kind.network: 0.5, None: 5})
    said = repr(bucket)
    assert said.startswith("TokenBucket(capacity=2.5, costs={")
    assert said.endswith("success_increment=0.25, refill_per_second=3, when_empty='wait')")


WANTED = "write a finite number, 0 or more, such as"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"capacity": -1}, ValueError, f"TokenBucket capacity=-1: {WANTED} 500"),
        ({"capacity": inf}, ValueError, f"TokenBucket capacity=inf: {WANTED} 500"),
        ({"capacity": nan}, ValueError, f"TokenBucket capacity=nan: {WANTED} 500"),
        ({"capacity": True}, TypeError, f"TokenBucket capacity=True: {WANTED} 500"),
        ({"capacity": "500"}, TypeError, f"TokenBucket capacity='500': {WANTED} 500"),
        ({"success_increment": -1}, ValueError, f"TokenBucket success_increment=-1: {WANTED} 1"),
        ({"success_increment": None}, TypeError, f"TokenBucket success_increment=None: {WANTED} 1"),
        ({"refill_per_second": -0.5}, ValueError, f"TokenBucket refill_per_second=-0.5: {WANTED} 10"),
        ({"refill_per_second": nan}, ValueError, f"TokenBucket refill_per_second=nan: {WANTED} 10"),
        ({"refill_per_second": [1]}, TypeError, f"TokenBucket refill_per_second=[1]: {WANTED} 10"),
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
def test_what_a_retry_costs(costs: Any, expected: dict[Kind | None, float]) -> None:
    """None stands for all kinds that are not named."""
    for kind in Kind:
        bucket = TokenBucket() if costs is None else TokenBucket(costs=costs)
        cost = expected.get(kind, expected.get(None, 5))
        assert bucket.spend(kind, 0.0) == Grant(cost)
        assert tokens(bucket) == 500 - cost


def test_costs_are_read_once() -> None:
    costs: dict[Kind | None, float] = {None: 1}
    bucket = TokenBucket(costs=costs)
    costs[None] = 100
    assert bucket.spend(ANY, 0.0) == Grant(1)
    assert bucket.costs == {None: 1}
    with pytest.raises(TypeError):
        bucket.costs[None] = 0  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


def test_what_is_not_there_is_not_taken() -> None:
    """A kind that costs less may still be paid for."""
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


# ---------------------------------------------------------------------------- what comes back


def test_a_success_brings_a_little_one_after_retries_what_its_last_cost() -> None:
    bucket = TokenBucket(100)
    first = bucket.spend(Kind.network, 0.0)
    last = bucket.spend(Kind.timeout, 0.0)
    assert (first, last, tokens(bucket)) == (Grant(5), Grant(10), 85)
    bucket.credit(last, 0.0)
    assert tokens(bucket) == 95
    bucket.credit(None, 0.0)
    assert tokens(bucket) == 96


def test_only_successes_and_time_bring_anything() -> None:
    bucket = made(refill_per_second=1)
    assert emptied(bucket, 5.0) == 10
    bucket.start(5.0)
    bucket.failed(ANY, 5.0)
    assert tokens(bucket, 5.0) == 0


@pytest.mark.parametrize("rate", [0, 3])
def test_never_more_than_its_capacity(rate: float) -> None:
    bucket = made(cost=4, refill_per_second=rate, success_increment=7)
    grant = bucket.spend(ANY, 1.0)
    assert grant is not None
    bucket.credit(None, 1.0)
    assert tokens(bucket, 1.0) == 10
    bucket.refund(grant, 1.0)
    bucket.credit(grant, 1.0)
    assert tokens(bucket, 1000.0) == 10
    assert emptied(bucket, 1000.0) == 2


def test_a_refund_brings_back_what_was_taken() -> None:
    bucket = TokenBucket(20)
    grants = [bucket.spend(kind, 0.0) for kind in (Kind.throttled, Kind.network, Kind.network)]
    for left, grant in zip((10, 15, 20), grants, strict=True):
        assert grant is not None
        bucket.refund(grant, 0.0)
        assert tokens(bucket) == left


def test_fractions_that_a_success_brings() -> None:
    """Ten tenths are one, despite rounding."""
    bucket = made(1, success_increment=0.1)
    assert emptied(bucket, 0.0) == 1
    for _ in range(10):
        assert bucket.spend(ANY, 0.0) is None
        bucket.credit(None, 0.0)
    assert bucket.spend(ANY, 0.0) is not None


def test_without_a_time_it_is_now() -> None:
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
