"""Budgets in calls, in every colour and shape: when retries are spent, credited and refunded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import inf, nan
from typing import Any

import pytest

from redouble import (
    SYSTEM,
    Kind,
    Retry,
    RetryBudget,
    TokenBucket,
    Verdict,
    report,
)
from tests.support.budgets import RecordingBudget, bucket_of
from tests.support.call_shapes import ASYNC_SHAPES, AsyncShape
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import ASYNC, Boom, Call, Virtual, always, in_colour, ok
from tests.support.fakes import options as defaults
from tests.support.runtime.cancellation import cancelled, policy

SECONDS = [1.0] * 9
THROTTLED = always(Verdict.retry(kind=Kind.throttled))
FOR_EVER = 1e6
LOST = ConnectionError("lost")


def few() -> RecordingBudget:
    """Grant two retries, and one more for every success."""
    return RecordingBudget(RetryBudget(ratio=1, per_second=0.2))


def fives(capacity: float = 20, **options: Any) -> Callable[[], RecordingBudget]:
    return lambda: RecordingBudget(TokenBucket(capacity, **options))


def patient() -> RecordingBudget:
    return RecordingBudget(bucket_of(5, cost=5, refill_per_second=1, when_empty="wait"))


@pytest.mark.parametrize(
    ("budget", "script", "options", "expected"),
    [
        (fives(), [ok(1)], {}, Call(1, ledger="credit -: 20")),
        (fives(), ["fail", ok(1)], {}, Call(1, ledger="spend 5: 15, credit 5: 20")),
        # a success credits the cost of the last retry only
        (fives(), ["fail", LOST, ok(1)], {}, Call(1, ledger="spend 5: 15, spend 5: 10, credit 5: 15")),
        (fives(), ["fail", ok(1)], {"on": THROTTLED}, Call(1, ledger="spend 10: 10, credit 10: 20")),
        # retries are spent before the delay, so that a refused retry costs no wait
        (
            fives(7),
            ["fail"],
            {},
            Call(
                raises=Boom,
                reason="budget",
                attempts=2,
                sleeps=[1],
                ledger="spend 5: 2, spend -: 2",
            ),
        ),
        (fives(0), ["fail"], {}, Call(raises=Boom, reason="budget", attempts=1, sleeps=[])),
        (
            few,
            ["fail"],
            {},
            Call(
                raises=Boom,
                reason="budget",
                attempts=3,
                sleeps=[1, 1],
                ledger="spend 1: 1, spend 1: 0, spend -: 0",
            ),
        ),
        (few, ["fail", "fail", ok(1)], {}, Call(1, ledger="spend 1: 1, spend 1: 0, credit 1: 1")),
        # nothing is spent if the delay does not fit into the time left
        (few, ["fail"], {"timeout": 0.5}, Call(raises=Boom, reason="timeout", sleeps=[], ledger="")),
        # with `when_empty="wait"` the delay is longer; if it does not fit, the call is given up at once
        (
            patient,
            ["fail", "fail", ok(1)],
            {},
            Call(1, sleeps=[1, 4], ledger="spend 5: 0, spend 5: -4, credit 5: 5"),
        ),
        (
            patient,
            ["fail", "fail", ok(1)],
            {"give_up_after": 5},
            Call(raises=Boom, reason="timeout", sleeps=[1], ledger="spend 5: 0, spend 5: -4, refund 5: 1"),
        ),
        (patient, ["fail", "fail", ok(1)], {"give_up_after": 5.01}, Call(1, sleeps=[1, 4])),
        # tokens are refilled during the delay
        (
            lambda: RecordingBudget(bucket_of(5, cost=5, refill_per_second=1)),
            ["fail"],
            {"backoff": [5, 4.5, 0]},
            Call(raises=Boom, reason="budget", attempts=3, sleeps=[5, 4.5]),
        ),
    ],
)
def test_the_budget_of_one_call(
    drive: Drive, budget: Callable[[], RecordingBudget], script: Any, options: dict[str, Any], expected: Call
) -> None:
    assert expected == drive(script, **defaults(backoff=SECONDS, budget=budget) | options)


def test_an_exhausted_budget_raises_the_last_error_and_stops_outer_policies(colour: str) -> None:
    clock, calls = Virtual(), list[None]()
    inner = Retry(on=Boom, backoff=SECONDS, clock=clock, budget=bucket_of(1))
    outer = Retry(on=Exception, backoff=SECONDS, clock=clock, nested="allow")
    lost = Boom("lost")

    def work() -> None:
        calls.append(None)
        raise lost

    async def awork() -> None:
        work()

    with pytest.raises(Boom) as caught:
        in_colour(colour, (outer | outer | inner)(work), (outer | outer | inner)(awork))
    assert caught.value is lost
    reported = report(lost)
    assert reported is not None
    assert (reported.reason, len(calls), clock.waits) == ("nested", 2, [1])


# -------------------------------------------------------------------------------- cancellation


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", ASYNC_SHAPES.values(), ids=ASYNC_SHAPES)
@pytest.mark.parametrize("make", [few, fives(), patient])
def test_cancellation_during_the_delay_refunds_the_grant(
    colour: str, shape: AsyncShape, make: Callable[[], RecordingBudget]
) -> None:
    budget = make()
    left = budget.left()

    async def work() -> None:
        raise Boom

    assert cancelled(colour, lambda: shape(policy(budget=budget), work)) == "cancelled"
    assert budget.left() == left
    assert [line.split()[0] for line in budget.lines] == ["spend", "refund"]


@pytest.mark.parametrize("colour", ASYNC)
def test_cancellation_during_a_retry_refunds_nothing(colour: str) -> None:
    """The retry had begun."""
    budget, begun = few(), list[None]()

    async def work() -> None:
        begun.append(None)
        if len(begun) == 1:
            raise Boom
        await SYSTEM.asleep(FOR_EVER)

    assert cancelled(colour, lambda: policy(budget=budget, backoff=[0]).call(work)) == "cancelled"
    assert (budget.lines, len(begun)) == (["spend 1: 1"], 2)


class Nonsense(Virtual):
    """A clock that returns NaN, infinity and 5.0 in turn."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return (nan, inf, 5.0)[self.looks % 3]

    def anow(self) -> float:
        return self.now()


@pytest.mark.parametrize("make", [RetryBudget, TokenBucket, lambda: TokenBucket(refill_per_second=1)])
def test_a_broken_clock_does_not_affect_results(colour: str, make: Callable[[], Any]) -> None:
    """The operation's error is raised, and its result is returned."""
    policy = Retry(on=Boom, backoff=[0, 0], attempts=3, budget=make(), clock=Nonsense())

    def work(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 1

    async def awork(error: Exception | None) -> int:
        return work(error)

    for number in range(12):
        error = Boom() if number % 4 == 3 else None
        with pytest.raises(Boom) if error else nullcontext():
            in_colour(colour, lambda: policy(work)(error), lambda: policy(awork)(error))  # noqa: B023


async def nothing() -> None:
    """Do nothing."""


def awaitable() -> object:
    return nothing()


MISUSED: list[Callable[[Retry], object]] = [
    lambda policy: policy(awaitable)(),
    lambda policy: policy.call(awaitable),
    lambda policy: policy.run(awaitable),
    lambda policy: policy(policy(awaitable))(),
]


@pytest.mark.parametrize("misuse", MISUSED)
def test_a_refused_misuse_adds_no_credit(misuse: Callable[[Retry], object]) -> None:
    """A plain function that returned something to await has not run."""
    budget = RetryBudget(credit="request")
    policy = Retry(budget=budget)
    policy.call(int)
    with pytest.raises(TypeError, match="returned something to await"):
        misuse(policy)
    assert budget.snapshot()["credits"] == 1


def test_a_misuse_whose_credit_was_counted_already() -> None:
    budget = RetryBudget(credit="request")

    def looks() -> object:
        assert budget.snapshot()["credits"] == 1
        return nothing()

    with pytest.raises(TypeError, match="returned something to await"):
        Retry(budget=budget).call(looks)
    assert budget.snapshot()["credits"] == 1


def test_a_misuse_takes_no_other_credit() -> None:
    """By success, none was added at the start; and a call that has failed before it was a call."""
    by_success, by_request = RetryBudget(), RetryBudget(credit="request")
    Retry(budget=by_success).call(int)
    with pytest.raises(TypeError, match="returned something to await"):
        Retry(budget=by_success).call(awaitable)
    assert by_success.snapshot()["credits"] == 1

    outcomes = iter([Boom(), None])

    def fails_first() -> object:
        if (error := next(outcomes)) is not None:
            raise error
        return nothing()

    with pytest.raises(TypeError, match="returned something to await"):
        Retry(on=Boom, backoff=[0, 0], budget=by_request).call(fails_first)
    assert by_request.snapshot()["credits"] == 1
