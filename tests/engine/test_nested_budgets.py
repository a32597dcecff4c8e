"""An exhausted budget stops every outer policy, also if its error is chained or grouped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Retry, report
from redouble.types import Event
from tests.support.fakes import Boom, Ledger, Virtual, in_colour, options


class Relayed(Exception):
    """The error by which a client library replaces another one."""


def same(error: Exception) -> Exception:
    return error


def chained(error: Exception) -> Exception:
    relayed = Relayed()
    relayed.__cause__ = error
    return relayed


def grouped(error: Exception) -> Exception:
    return ExceptionGroup("several", [ValueError("another"), error])


class NestedPolicies:
    """Nested policies around an operation that fails, and the reasons why each gave up."""

    def __init__(self, transform: Callable[[Exception], Exception], *levels: dict[str, Any]) -> None:
        """Create the policies from their options, the innermost first."""
        self.calls = 0
        self.reasons: list[str | None] = []
        self.transform = transform
        clock = Virtual()
        self.policies: list[Retry] = []
        for level in levels:
            given = options(on=Exception, attempts=3, backoff=[1, 1], clock=clock, on_give_up=self.gave_up)
            self.policies.append(Retry(**given | level))

    def gave_up(self, event: Event) -> None:
        self.reasons.append(event.reason)

    def blocking(self) -> None:
        fn: Callable[[], None] = self.operation
        for policy in self.policies:
            fn = self.raising(policy(fn))
        fn()

    async def waiting(self) -> None:
        fn: Callable[[], Any] = self.aoperation
        for policy in self.policies:
            fn = self.araising(policy(fn))
        await fn()

    def operation(self) -> None:
        self.calls += 1
        raise Boom

    async def aoperation(self) -> None:
        self.operation()

    def raising(self, fn: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            seen: list[Exception] = []
            try:
                fn()
            except Exception as error:
                seen.append(error)
            raise self.transform(seen.pop())

        return call

    def araising(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        async def call() -> None:
            seen: list[Exception] = []
            try:
                await fn()
            except Exception as error:
                seen.append(error)
            raise self.transform(seen.pop())

        return call


def exhausted() -> dict[str, Any]:
    return {"budget": Ledger(retries=0)}


@pytest.mark.parametrize("transform", [same, chained, grouped])
@pytest.mark.parametrize("nested", ["allow", "warn", "stop"])
def test_an_exhausted_budget_stops_all_outer_policies(
    colour: str, caplog: pytest.LogCaptureFixture, transform: Callable[[Exception], Exception], nested: str
) -> None:
    """Although each policy leaves its own stamp on the error."""
    outer = {"nested": nested}
    nested_policies = NestedPolicies(transform, exhausted(), outer, outer, outer)
    with pytest.raises((Boom, Relayed, ExceptionGroup)):
        in_colour(colour, nested_policies.blocking, nested_policies.waiting)
    assert nested_policies.calls == 1
    assert nested_policies.reasons == ["budget", "nested", "nested", "nested"]
    assert not caplog.records


@pytest.mark.parametrize("transform", [same, chained, grouped])
@pytest.mark.parametrize(
    "between", [{"attempts": 1}, {"on": KeyError}, {"give_up_after": 5, "backoff": [10]}]
)
def test_an_exhausted_budget_is_recognised_across_a_policy_that_gave_up(
    between: dict[str, Any], transform: Callable[[Exception], Exception]
) -> None:
    """The policy in between gave up for a reason of its own."""
    nested_policies = NestedPolicies(
        transform, exhausted(), {"nested": "allow", **between}, {"nested": "allow"}
    )
    with pytest.raises((Boom, Relayed, ExceptionGroup)):
        nested_policies.blocking()
    assert nested_policies.calls == 1
    assert nested_policies.reasons[0] == "budget"
    assert nested_policies.reasons[-1] == "nested"


@pytest.mark.parametrize("transform", [same, chained, grouped])
def test_other_reasons_do_not_stop_all_outer_policies(transform: Callable[[Exception], Exception]) -> None:
    """A policy that stopped because of a nested one does not stop the policy around it."""
    allow, stop = {"nested": "allow"}, {"nested": "stop"}
    nested_policies = NestedPolicies(transform, {}, stop, allow)
    with pytest.raises((Boom, Relayed, ExceptionGroup)):
        nested_policies.blocking()
    assert nested_policies.calls == 3 * 3
    assert nested_policies.reasons == ["attempts", "nested"] * 3 + ["attempts"]


def test_one_exhausted_budget_in_a_group_is_enough() -> None:
    clock, calls = Virtual(), list[None]()
    without_budget = Retry(on=Boom, budget=Ledger(retries=0), clock=clock)
    with_attempts = Retry(on=Boom, attempts=2, backoff=[1], clock=clock)

    def fails() -> None:
        calls.append(None)
        raise Boom

    def several() -> None:
        lost = [policy.run(fails).error for policy in (with_attempts, without_budget, with_attempts)]
        raise ExceptionGroup("several", [error for error in lost if error is not None])

    with pytest.raises(ExceptionGroup) as caught:
        Retry(on=ExceptionGroup, nested="allow", backoff=[1] * 9, clock=clock).call(several)
    assert len(calls) == 2 + 1 + 2
    reported = report(caught.value)
    assert reported is not None
    assert reported.reason == "nested"
