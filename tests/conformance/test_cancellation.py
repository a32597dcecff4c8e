"""Cancellation: qubit-retry 0.19 (N), Swift (S), and facts on which Polly, smithy, AWS and others agree.

Here the event loop cancels, not a token: asyncio's ``task.cancel()``, and Trio's cancel scopes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Backoff, Reason, Retry, report
from tests.conformance.flows import ASYNC
from tests.conformance.observables import asserts
from tests.support.scripted import Bucket, ScriptedError, Virtual


@dataclass
class Call:
    """One call that is cancelled at some point, and its result."""

    clock: Virtual = field(default_factory=Virtual)
    budget: Bucket = field(default_factory=Bucket)
    events: list[str] = field(default_factory=list[str])
    calls: int = 0
    result: object = None
    cancel: Callable[[], object] = lambda: None

    def at(self, moment: str, fault: str) -> Callable[[Any], bool]:
        def observer(event: Any) -> bool:
            self.events.append(moment)
            if moment == fault:
                self.cancel()
            return True

        return observer

    def policy(self, fault: str) -> Retry:
        return Retry(
            on=self.at("rule", fault),
            attempts=2,
            backoff=Backoff.constant(3000),
            give_up_after=None,
            budget=self.budget,
            on_failure=self.at("failed", fault),
            on_retry=self.at("scheduled", fault),
            on_give_up=self.at("gave up", fault),
            clock=self.clock,
        )


def run(colour: str, call: Call, main: Callable[[], Awaitable[object]]) -> str:
    """Run ``main`` so that ``call.cancel`` cancels it, and return how it ended."""
    outcomes = ["cancelled"]

    # Recorded inside, because asyncio drops the result of a cancelled task that returns nevertheless.
    async def inside() -> None:
        try:
            call.result = await main()
        except ScriptedError as error:
            found = report(error)
            outcomes.append(f"error, {found.reason if found else None}")
        else:
            outcomes.append("returned")

    async def in_asyncio() -> None:
        task = asyncio.ensure_future(inside())
        call.cancel = task.cancel
        await asyncio.wait([task])

    async def in_trio() -> None:
        with trio.CancelScope() as scope:
            call.cancel = scope.cancel
            await inside()

    if colour == "asyncio":
        asyncio.run(in_asyncio())
    else:
        trio.run(in_trio)
    return outcomes[-1]


STOPPED = f"error, {Reason.stopped}"
GAVE_UP, SCHEDULED = ["rule", "failed", "gave up"], ["rule", "failed", "scheduled"]


@asserts("N-16", "attempts", "calls", "events", "last_failure", "rule_calls", "sleeps", "terminal")
@pytest.mark.parametrize(
    ("colour", "fault", "outcome", "events"),
    [
        # A task that is being cancelled is not retried. The error of the operation is raised, and the
        # cancellation is delivered at the caller's next await.
        pytest.param("asyncio", "rule", STOPPED, GAVE_UP, id="N-16.rule-asyncio"),
        pytest.param("asyncio", "failed", STOPPED, GAVE_UP, id="N-16.failed-asyncio"),
        # Trio delivers a cancellation at every checkpoint until its scope ends, so the delay raises it.
        pytest.param("trio", "rule", "cancelled", SCHEDULED, id="N-16.rule-trio"),
        pytest.param("trio", "failed", "cancelled", SCHEDULED, id="N-16.failed-trio"),
        pytest.param("asyncio", "scheduled", "cancelled", SCHEDULED, id="N-16.scheduled-asyncio"),
        pytest.param("trio", "scheduled", "cancelled", SCHEDULED, id="N-16.scheduled-trio"),
    ],
)
def test_cancellation_between_attempts_ends_the_call(
    colour: str, fault: str, outcome: str, events: list[str]
) -> None:
    """There is no delay and no second attempt, and the grant is refunded."""
    call = Call()

    async def operation() -> None:
        call.calls += 1
        raise ScriptedError("e")

    policy = call.policy(fault)
    assert run(colour, call, lambda: policy.call(operation)) == outcome
    assert (call.calls, call.clock.waits, call.events) == (1, [], events)
    assert call.budget.tokens == 500


@asserts("N-16", "next_delay")
@asserts("S-10", "calls", "raises")
@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("delay", [3000, 0], ids=["N-16.backoff", "S-10.zero"])
def test_cancellation_during_a_delay_ends_the_call(colour: str, delay: float) -> None:
    """Even during a delay of zero; the grant is refunded."""
    call, begun = Call(), list[float]()

    class Cancelling(Virtual):
        async def asleep(self, seconds: float) -> None:
            begun.append(seconds)
            call.cancel()
            await SYSTEM.asleep(0)
            self.waits.append(seconds)

    async def operation() -> None:
        call.calls += 1
        raise ScriptedError("e")

    policy = Retry(
        on=ScriptedError, backoff=[delay], budget=call.budget, give_up_after=None, clock=Cancelling()
    )
    assert run(colour, call, lambda: policy.call(operation)) == "cancelled"
    assert (call.calls, begun) == (1, [delay])
    assert (call.budget.spent, call.budget.refunded, call.budget.tokens) == (1, 1, 500)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("fact", ["N-16.attempt", "retry.cancellation.during-attempt"])
def test_cancellation_during_an_attempt_is_not_retried(colour: str, fact: str) -> None:
    """The rule, which would retry everything, is not called."""
    call = Call()

    async def operation() -> None:
        call.calls += 1
        call.cancel()
        await SYSTEM.asleep(0)

    policy = call.policy("nowhere")
    assert run(colour, call, lambda: policy.call(operation)) == "cancelled"
    assert (call.calls, call.clock.waits, call.events) == (1, [], [])


@pytest.mark.parametrize(("colour", "outcome"), [("asyncio", STOPPED), ("trio", "cancelled")])
def test_retry_cancellation_turned_into_an_error(colour: str, outcome: str) -> None:
    """retry.cancellation: an operation that turns its cancellation into an error is not retried either."""
    call = Call()

    async def operation() -> None:
        call.calls += 1
        call.cancel()
        raise ScriptedError("connection lost")

    policy = call.policy("nowhere")
    assert run(colour, call, lambda: policy.call(operation)) == outcome
    assert (call.calls, call.clock.waits) == (1, [])


@asserts("N-17", "attempts", "ok")
@pytest.mark.parametrize("colour", ASYNC)
def test_n_17_a_result_is_returned_in_spite_of_a_cancellation(colour: str) -> None:
    """N-17: the operation cancels its own task and returns."""
    call = Call()

    async def operation() -> str:
        call.calls += 1
        call.cancel()
        return "completed"

    policy = call.policy("nowhere")
    assert run(colour, call, lambda: policy.call(operation)) == "returned"
    assert (call.calls, call.result) == (1, "completed")


@pytest.mark.parametrize("fact", ["N-16.before", "retry.cancellation.already-cancelled"])
def test_a_task_cancelled_before_it_starts_makes_no_call(fact: str) -> None:
    """In asyncio."""
    call = Call()

    async def operation() -> None:
        call.calls += 1

    async def main() -> bool:
        task = asyncio.ensure_future(call.policy("nowhere").call(operation))
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())
    assert call.calls == 0


@pytest.mark.parametrize("colour", ASYNC)
def test_n_16_cancelled_by_an_observer_of_the_start_deviates(colour: str) -> None:
    """N-16.started: qubit makes no attempt; here the attempt starts, and ends at its first await."""
    call = Call()

    async def operation() -> None:
        call.calls += 1
        await SYSTEM.asleep(0)
        raise ScriptedError("not reached")

    policy = Retry(on=ScriptedError, before_attempt=lambda _: call.cancel(), clock=call.clock)
    assert run(colour, call, lambda: policy.call(operation)) == "cancelled"
    assert (call.calls, call.clock.waits) == (1, [])
