"""Retry budgets: httpware's, Finagle's, Tower's, Envoy's and failsafe-go's.

All of these are credited by requests, and so are the budgets here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from redouble import SYSTEM, Kind, Reason, Retry, RetryBudget
from redouble.testing import VirtualClock
from tests.conformance.flows import ASYNC, EVERY, check, flow
from tests.support.runtime.tasks import together
from tests.support.scripted import Operation, Virtual, fail
from tests.support.virtual_time import in_virtual_colour


def by_requests(ratio: float, per_second: float, window: float) -> RetryBudget:
    return RetryBudget(ratio, per_second, window, credit="request")


def run(budget: RetryBudget, script: str) -> None:
    """Run a script of calls, retries and waits, and check the grants and the balance."""
    now = 0.0
    for step in script.split(", "):
        match step.split():
            case [times, "calls"]:
                for _ in range(int(times)):
                    budget.start(now)
            case [granted, "of", wanted]:
                grants = [budget.spend(Kind.server, now) for _ in range(int(wanted))]
                assert sum(grant is not None for grant in grants) == int(granted), step
            case [seconds, "later"]:
                now += float(seconds)
            case [retries, "left" | "allowed" as word]:
                said = {"left": "available", "allowed": "limit"}[word]
                assert budget.snapshot(now)[said] == int(retries), step
            case _:
                raise ValueError(step)


@pytest.mark.parametrize(
    ("terms", "script"),
    [
        pytest.param((0, 10, 10), "100 of 101", id="HW-BG-01"),
        pytest.param((0.5, 0, 1), "10 calls, 1 of 1, 2 later, 0 of 1", id="HW-BG-03"),
        pytest.param(
            (0.2, 1, 10),
            "10 of 11, 1 calls, 1 of 2, 4 calls, 0 of 1, 1 calls, 1 of 2",
            id="HW-BG-04",
        ),
        pytest.param((0, 10, 1), "10 of 11, 2 later, 1 of 1", id="HW-BG-05"),
        # httpware's window has ten slices and ends up to a tenth early; here it never ends early.
        pytest.param((0, 0.1, 10), "1 of 1, 8.9 later, 0 of 1, 1.2 later, 1 of 1", id="HW-BG-06"),
        pytest.param((0, 0.1, 10), "1 of 1, 9.9 later, 0 of 1", id="HW-BG-06-deviates"),
        pytest.param((1, 0, 3), "100 calls, 1 of 1, 3 later, 0 of 1", id="budget.leaky_bucket.leaks"),
        pytest.param(
            (1, 0, 3),
            "100 calls, 50 of 50, 49 of 49, 1 of 1, 0 of 1, 0 of 50, 1 calls, 1 left, 1 of 1, 0 of 1",
            id="budget.leaky_bucket.fails_when_empty",
        ),
        pytest.param(
            (1, 0, 3),
            "1 calls, 1 left, 1 later, 1 left, 2 calls, 3 left, "
            "1 later, 3 left, 1 later, 2 left, 1 later, 0 left",
            id="budget.windowed_adder.sliding",
        ),
        pytest.param((1, 0, 1), "0 of 1", id="budget.tower_tps.empty"),
        pytest.param(
            (0.5, 0, 1),
            "2 calls, 0.901 later, 1 of 1, 2.001 later, "
            "1 calls, 0.301 later, 1 calls, 0.801 later, 1 calls, 1 of 2",
            id="budget.tower_tps.slots",
        ),
        pytest.param((1, 5, 1), "5 of 6", id="budget.tower_tps.reserve"),
        pytest.param((2, 0, 60), "10000 calls, 20000 left", id="budget.finagle.over_100_percent"),
        pytest.param((0, 0, 10), "0 left, 0 of 1, 1 calls, 0 left, 0 of 1", id="budget.finagle.empty"),
        # Finagle refuses 61 s; here any window takes the same memory.
        pytest.param((1, 0, 3600), "1 calls, 3500 later, 1 of 2", id="budget.finagle.invalid-ttl-deviates"),
        # Envoy takes the larger of its share and its minimum of 5; here the two are added.
        pytest.param(
            (0.2, 50, 0.1),
            "5 allowed, 100 calls, 25 allowed, 0.01 later, 50 calls, 35 allowed, "
            "0.08 later, 35 allowed, 0.011 later, 15 allowed, 0.01 later, 10 calls, 7 allowed",
            id="budget.envoy_interval-deviates",
        ),
    ],
)
def test_retries_granted_over_time(terms: tuple[float, float, float], script: str) -> None:
    """With a window."""
    run(by_requests(*terms), script)


@pytest.mark.parametrize(
    ("window", "per_second", "ratio", "retries"),
    [
        (60, 0, 0.5, 5000),
        (60, 0, 0.25, 2500),
        (60, 0, 0.75, 7500),
        (60, 0, 0.99, 9900),
        (60, 0, 0.999, 9990),
        (60, 0, 0.01, 100),
        (60, 0, 0.001, 10),
        (1, 10, 0.0, 10),
        (2, 5, 0.0, 10),
        (2, 5, 0.5, 5010),
        pytest.param(60, 0, 0.6, 6000, id="budget.fractional_percent_must_not_truncate"),
    ],
)
def test_budget_finagle_of_10000_calls(window: float, per_second: float, ratio: float, retries: int) -> None:
    """budget.finagle: exactly this many of them may be retried."""
    budget = by_requests(ratio, per_second, window)
    granted = 0
    for _ in range(10000):
        budget.start(0.0)
        granted += budget.spend(Kind.server, 0.0) is not None
    assert granted == retries


@pytest.mark.parametrize("colour", EVERY)
def test_budget_finagle_infinite(colour: str) -> None:
    """budget.finagle.infinite: without a budget every call is retried."""
    check(colour, flow("", fail(), attempts=101, budget=lambda: None, expected={"calls": 101}))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(lambda: by_requests(0.2, 10, 0), "window", id="budget.finagle.invalid-ttl"),
        pytest.param(lambda: by_requests(0.2, -1, 10), "per_second", id="budget.finagle.invalid-min"),
        pytest.param(lambda: by_requests(-1.0, 10, 10), "ratio", id="budget.finagle.invalid-percent"),
        pytest.param(lambda: by_requests(0.2, 10, 0), "window", id="HW-RT-24.ttl"),
        pytest.param(lambda: by_requests(0.2, 10, inf), "window", id="HW-RT-24.ttl-inf"),
        pytest.param(lambda: by_requests(0.2, -1, 10), "per_second", id="HW-RT-24.min"),
        pytest.param(lambda: by_requests(-0.1, 10, 10), "ratio", id="HW-RT-24.percent"),
    ],
)
def test_invalid_options_are_rejected(make: Callable[[], object], named: str) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=f"RetryBudget {named}"):
        make()


@pytest.mark.parametrize("colour", EVERY)
def test_budget_finagle_policy_interplay(colour: str) -> None:
    """budget.finagle_policy_interplay: 20 retries are granted of 100 wanted; then the failure is raised."""
    row = flow(
        "",
        fail("original"),
        attempts=101,
        budget=lambda: by_requests(0, 1, 20),
        expected={"calls": 21, "granted": 20, "reason": Reason.budget, "raises": "original", "same": True},
    )
    check(colour, row)


def test_budget_finagle_policy_interplay_marks_the_failure() -> None:
    """budget.finagle_policy_interplay: no outer policy retries it, whatever its ``nested`` option."""
    clock = Virtual()
    operation = Operation([fail("original")], clock)
    inner = Retry(on=Exception, budget=by_requests(0, 0, 20), clock=clock)
    outer = Retry(on=Exception, nested="allow", clock=clock)
    outcome = outer.run(inner(operation))
    assert outcome.report.reason is Reason.nested
    assert operation.calls == 1


@pytest.mark.parametrize(
    ("share", "minimum", "calls", "retries", "more"),
    [
        pytest.param(0.2, 5, 100, 0, 20, id="budget.envoy.100-active"),
        pytest.param(0.2, 5, 50, 0, 10, id="budget.envoy.50-active"),
        pytest.param(0.2, 5, 50 + 50, 0, 20, id="budget.envoy.50-active-50-pending"),
        pytest.param(0.2, 3, 2, 2, 1, id="budget.envoy.2-active"),
        pytest.param(0.2, 3, 20, 3, 1, id="budget.envoy.20-active-3-retries"),
        pytest.param(0.2, 3, 20, 4, 0, id="budget.envoy.20-active-4-retries"),
        pytest.param(0.5, 2, 1, 1, 1, id="budget.failsafe_go.first"),
        # failsafe-go compares before it adds, and so may exceed the share by one.
        pytest.param(0.5, 1, 2, 1, 0, id="budget.failsafe_go-deviates.retry_ok"),
        pytest.param(0.5, 1, 3, 2, 0, id="budget.failsafe_go.hedge_rejected"),
    ],
)
def test_retries_in_flight(share: float, minimum: int, calls: int, retries: int, more: int) -> None:
    """While some calls and retries are in flight: the larger of the share and the minimum."""
    budget = RetryBudget(None, max_in_flight=share, minimum=minimum)
    counter = budget.traits.in_flight
    assert counter is not None
    begun = [counter.call(counted=True) for _ in range(calls)]
    for call in begun:
        call.begin_call()
    others = [counter.call(counted=False) for _ in range(retries + more + 1)]
    for retry in others[:retries]:
        counter.retries.add(retry)
    assert [retry.begin_retry() for retry in others[retries:]] == [True] * more + [False]


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize(
    ("calls", "retries"),
    [
        pytest.param(100, 20, id="budget.envoy.100-calls"),
        pytest.param(20, 4, id="budget.envoy.20-calls"),
        pytest.param(4, 3, id="budget.envoy.4-calls"),
    ],
)
def test_retries_in_flight_of_calls(colour: str, calls: int, retries: int) -> None:
    """Calls that are in flight together fail together; the retries of those that may are in flight then."""
    budget = RetryBudget(None, max_in_flight=0.2)
    attempts, in_flight, ended = [0], set[float](), list[Reason | None]()

    async def waiting(_: VirtualClock) -> None:
        async def fetch() -> None:
            attempts[0] += 1
            in_flight.add(budget.snapshot()["retries_in_flight"])
            await SYSTEM.asleep(1)
            raise ConnectionError

        async def call() -> None:
            outcome = await Retry(attempts=2, backoff=[0], budget=budget).run(fetch)
            ended.append(outcome.report.reason)

        await together(colour, *[call] * calls)

    in_virtual_colour(colour, lambda clock: None, waiting)
    assert (attempts[0] - calls, max(in_flight)) == (retries, retries)
    assert ended.count(Reason.budget) == calls - retries
    assert budget.snapshot()["calls_in_flight"] == budget.snapshot()["retries_in_flight"] == 0


def test_budget_envoy_defaults() -> None:
    """budget.envoy: 20 % and 3."""
    assert RetryBudget(None, max_in_flight=0.2).minimum == 3


@pytest.mark.parametrize(
    ("ratio", "minimum", "calls", "retries", "more"),
    [
        # Beside a cap there is a window, in which a share and a minimum are added.
        pytest.param(0.2, 5, 100, 0, 20 + 5, id="budget.envoy-deviates.100-active"),
        pytest.param(0.5, 2, 1, 1, 2, id="budget.failsafe_go-deviates.first"),
    ],
)
def test_the_share_and_the_minimum_of_a_window_are_added(
    ratio: float, minimum: int, calls: int, retries: int, more: int
) -> None:
    """In one budget."""
    script = f"{calls} calls, {retries} of {retries}, {more} of {more + 1}"
    run(by_requests(ratio, minimum, 1), script)


def test_budget_failsafe_go_shared_by_identity() -> None:
    """budget.failsafe_go: policies with the same object share the budget."""
    budget, clock = by_requests(0, 3, 1), Virtual()
    operation = Operation([fail()], clock)
    for policy in (Retry(on=Exception, backoff=[0], budget=budget, clock=clock) for _ in range(5)):
        policy.run(operation)
    assert operation.calls == 5 + 3
