"""`TokenBucket` and time: the refill, and the waits of its grants with ``when_empty="wait"``."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from redouble import Grant, Kind, TokenBucket
from redouble.testing import virtual_time
from tests.support.budgets import ANY, emptied, tokens
from tests.support.budgets import bucket_of as made


def waiting(**options: Any) -> TokenBucket:
    given: dict[str, Any] = {"refill_per_second": 1, "when_empty": "wait", **options}
    return made(**given)


def wait(bucket: TokenBucket, now: float) -> float:
    grant = bucket.spend(ANY, now)
    assert grant is not None
    return grant.wait


# -------------------------------------------------------------------------------------- refill


@pytest.mark.parametrize("rate", [0.1, 0.3, 1, 100, 1e4])
def test_the_refill_is_exact_however_often_it_is_read(rate: float) -> None:
    """A thousand small steps equal one large one."""
    bucket = made(1000, refill_per_second=rate)
    assert emptied(bucket, 7.0) == 1000
    whole = 900 / rate
    for step in range(1, 1001):
        assert tokens(bucket, 7 + whole * step / 1000) == pytest.approx(0.9 * step)


def test_rounding_does_not_hold_back_a_token() -> None:
    """0.29 s at 100 tokens a second are 28.999999999999996 tokens, which count as 29."""
    for hundredths in range(1, 100):
        bucket = made(100, refill_per_second=100)
        assert emptied(bucket, 0.0) == 100
        assert emptied(bucket, hundredths / 100) == hundredths


def test_a_full_bucket_is_not_refilled() -> None:
    bucket = made(refill_per_second=1)
    assert bucket.spend(ANY, 1000.0) is not None
    assert tokens(bucket, 1000.5) == 9.5
    assert emptied(bucket, 5000.0) == 10
    assert emptied(bucket, 5000.0) == 0


@pytest.mark.parametrize("back", [0.001, 0.5, 0.999])
def test_a_time_before_the_latest_one_refills_nothing(back: float) -> None:
    """Another thread was faster: the same time must not refill twice."""
    bucket = made(refill_per_second=1)
    assert emptied(bucket, 100.0) == 10
    assert bucket.spend(ANY, 101.0) is not None
    for _ in range(5):
        assert bucket.spend(ANY, 101.0 - back) is None
        assert bucket.spend(ANY, 101.0) is None
    assert bucket.spend(ANY, 102.0) is not None


def test_tokens_are_kept_when_the_clock_restarts() -> None:
    """The refill continues with the times of the new clock."""
    bucket = made(refill_per_second=1)
    assert emptied(bucket, 5000.0) == 10
    assert bucket.spend(ANY, 5004.0) is not None
    assert bucket.spend(ANY, 3.0) is not None
    assert tokens(bucket) == 2
    assert tokens(bucket, 5.5) == 4.5
    assert emptied(bucket, 5.5) == 4


@pytest.mark.parametrize("start", [-1e6, -1.5, -1.0, -0.5])
def test_a_clock_may_be_below_zero(start: float) -> None:
    bucket = made(refill_per_second=2)
    assert emptied(bucket, start) == 10
    assert tokens(bucket, start + 0.25) == 0.5
    assert emptied(bucket, start + 1) == 2


@pytest.mark.parametrize("nonsense", [nan, inf, -inf])
def test_an_invalid_time_is_ignored(nonsense: float) -> None:
    """The operation itself counts."""
    bucket = made(refill_per_second=1)
    assert emptied(bucket, 5.0) == 10
    bucket.credit(None, nonsense)
    assert emptied(bucket, 5.0) == 1
    assert emptied(bucket, 7.0) == 2


def test_a_snapshot_of_a_later_time_changes_nothing() -> None:
    bucket = made(refill_per_second=1)
    assert emptied(bucket, 50.0) == 10
    assert tokens(bucket, 1000.0) == 10
    assert tokens(bucket, 52.0) == 2


# --------------------------------------------------------------------------------- when_empty


def test_spend_returns_the_wait_and_does_not_sleep() -> None:
    """The tokens are taken at once, and may be owed."""
    bucket = waiting(capacity=2, refill_per_second=4)
    with virtual_time() as clock:
        assert [wait(bucket, 10.0) for _ in range(5)] == [0, 0, 0.25, 0.5, 0.75]
    assert clock.delays == []
    assert bucket.snapshot() == {"tokens": 0, "owed": 3, "capacity": 2}
    assert bucket.snapshot(11.0) == {"tokens": 1, "owed": 0, "capacity": 2}
    assert [wait(bucket, 11.0) for _ in range(2)] == [0, 0.25]


def test_waiting_retries_keep_their_order() -> None:
    """Each begins when its tokens have been refilled, in the order of the calls of `spend`."""
    bucket = waiting(capacity=1, refill_per_second=2)
    asked = [0.0, 0.1, 0.1, 0.3, 2.0, 2.0, 9.0, 9.0]
    begins = [now + wait(bucket, now) for now in asked]
    assert begins == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 9.0, 9.5])


def test_refunds_and_credits_shorten_the_next_wait() -> None:
    bucket = waiting(capacity=1)
    assert [wait(bucket, 0.0) for _ in range(3)] == [0, 1, 2]
    last = bucket.spend(ANY, 0.0)
    assert last is not None
    assert last == Grant(1, 3)
    bucket.refund(last, 0.0)
    assert wait(bucket, 0.0) == 3
    bucket.credit(None, 0.0)
    bucket.credit(last, 0.0)
    assert wait(bucket, 0.0) == 2


def test_a_retry_that_costs_more_than_the_capacity() -> None:
    """It is refused, or waits for the missing tokens."""
    assert made(3, cost=5, refill_per_second=1).spend(ANY, 0.0) is None
    bucket = waiting(capacity=3, cost=5)
    assert [wait(bucket, 0.0), wait(bucket, 0.0)] == [2, 7]


def test_a_retry_that_costs_nothing_does_not_wait() -> None:
    bucket = TokenBucket(5, {Kind.network: 0}, refill_per_second=1, when_empty="wait")
    assert [wait(bucket, 0.0) for _ in range(3)] == [0, 5, 10]
    assert bucket.spend(Kind.network, 0.0) == Grant(0)
