"""An exhausted budget stops every outer policy too, however the error travels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Retry, report
from redouble.types import Event
from tests.support.fakes import Boom, Ledger, Virtual, in_colour, options


class Relayed(Exception):
    """What a client library makes of another error."""


def same(error: Exception) -> Exception:
    return error


def chained(error: Exception) -> Exception:
    relayed = Relayed()
    relayed.__cause__ = error
    return relayed


def grouped(error: Exception) -> Exception:
    return ExceptionGroup("several", [ValueError("another"), error])


class Tower:
    """Policies around policies around an operation that fails, and what each of them said."""

    def __init__(self, travel: Callable[[Exception], Exception], *floors: dict[str, Any]) -> None:
        """Build it: ``floors`` are the options of the policies, the innermost first."""
        self.calls = 0
        self.reasons: list[str | None] = []
        self.travel = travel
        clock = Virtual()
        self.policies: list[Retry] = []
        for floor in floors:
            said = options(on=Exception, attempts=3, backoff=[1, 1], clock=clock, on_give_up=self.gave_up)
            self.policies.append(Retry(**said | floor))

    def gave_up(self, event: Event) -> None:
        self.reasons.append(event.reason)

    def blocking(self) -> None:
        fn: Callable[[], None] = self.operation
        for policy in self.policies:
            fn = self.floor(policy(fn))
        fn()

    async def waiting(self) -> None:
        fn: Callable[[], Any] = self.aoperation
        for policy in self.policies:
            fn = self.afloor(policy(fn))
        await fn()

    def operation(self) -> None:
        self.calls += 1
        raise Boom

    async def aoperation(self) -> None:
        self.operation()

    def floor(self, fn: Callable[[], None]) -> Callable[[], None]:
        def through() -> None:
            seen: list[Exception] = []
            try:
                fn()
            except Exception as error:
                seen.append(error)
            raise self.travel(seen.pop())

        return through

    def afloor(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        async def through() -> None:
            seen: list[Exception] = []
            try:
                await fn()
            except Exception as error:
                seen.append(error)
            raise self.travel(seen.pop())

        return through


def spent() -> dict[str, Any]:
    return {"budget": Ledger(retries=0)}


@pytest.mark.parametrize("travel", [same, chained, grouped])
@pytest.mark.parametrize("nested", ["allow", "warn", "stop"])
def test_its_mark_goes_on_outwards(
    colour: str, caplog: pytest.LogCaptureFixture, travel: Callable[[Exception], Exception], nested: str
) -> None:
    """Through as many policies as there are, although each leaves a stamp of its own."""
    outer = {"nested": nested}
    tower = Tower(travel, spent(), outer, outer, outer)
    with pytest.raises((Boom, Relayed, ExceptionGroup)):
        in_colour(colour, tower.blocking, tower.waiting)
    assert tower.calls == 1
    assert tower.reasons == ["budget", "nested", "nested", "nested"]
    assert not caplog.records


@pytest.mark.parametrize("travel", [same, chained, grouped])
@pytest.mark.parametrize(
    "between", [{"attempts": 1}, {"on": KeyError}, {"give_up_after": 0.5, "backoff": [1]}]
)
def test_whatever_the_policies_between_say(
    between: dict[str, Any], travel: Callable[[Exception], Exception]
) -> None:
    """One that gives up for a reason of its own passes the mark on too."""
    tower = Tower(travel, spent(), {"nested": "allow", **between}, {"nested": "allow"})
    with pytest.raises((Boom, Relayed, ExceptionGroup)):
        tower.blocking()
    assert tower.calls == 1
    assert tower.reasons[0] == "budget"
    assert tower.reasons[-1] == "nested"


@pytest.mark.parametrize("travel", [same, chained, grouped])
def test_only_that_reason_does(travel: Callable[[Exception], Exception]) -> None:
    """A policy between that stops because of another, and says so, marks nothing."""
    allow, stop = {"nested": "allow"}, {"nested": "stop"}
    tower = Tower(travel, {}, stop, allow)
    with pytest.raises((Boom, Relayed, ExceptionGroup)):
        tower.blocking()
    assert tower.calls == 3 * 3
    assert tower.reasons == ["attempts", "nested"] * 3 + ["attempts"]


def test_one_of_a_group_is_enough() -> None:
    """The members are of this attempt: an old stamp of another call's would not count."""
    clock, calls = Virtual(), list[None]()
    poor = Retry(on=Boom, budget=Ledger(retries=0), clock=clock)
    rich = Retry(on=Boom, attempts=2, backoff=[1], clock=clock)

    def fails() -> None:
        calls.append(None)
        raise Boom

    def several() -> None:
        lost = [policy.run(fails).error for policy in (rich, poor, rich)]
        raise ExceptionGroup("several", [error for error in lost if error is not None])

    with pytest.raises(ExceptionGroup) as caught:
        Retry(on=ExceptionGroup, nested="allow", backoff=[1] * 9, clock=clock).call(several)
    assert len(calls) == 2 + 1 + 2
    said = report(caught.value)
    assert said is not None
    assert said.reason == "nested"
