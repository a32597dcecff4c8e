"""Budgets and gates: a retry that a gate rejects has not called the function, and costs nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from types import ModuleType
from typing import Any

import pytest

from redouble import Bulkhead, CircuitBreaker, Gate, Hints, Retry, RetryBudget, errors, report
from tests.support.budgets import RecordingBudget, bucket_of, budget_of
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import Boom, Call, Virtual, in_colour, ok
from tests.support.streams import Reader

SECONDS = [1.0] * 9


def few() -> RecordingBudget:
    """Grant two retries, and one more for every success."""
    return RecordingBudget(RetryBudget(ratio=1, per_second=0.2))


def open_breaker(clock: Virtual) -> CircuitBreaker:
    breaker = CircuitBreaker(failures=1, cooldown=5, clock=clock)
    breaker.ended(breaker.admit(0.0), Boom(), 0.0)
    return breaker


def full_bulkhead(clock: Virtual) -> Bulkhead:
    bulkhead = Bulkhead(1, wait=0)
    bulkhead.admit(clock.now())
    return bulkhead


class Shut(Gate):
    """A custom gate that rejects every call."""

    def admit(self, now: float, /) -> None:
        raise errors.Rejected("shut")


def shut(clock: Virtual) -> Shut:
    return Shut()


GATES = pytest.mark.parametrize("gate", [open_breaker, full_bulkhead, shut])


@GATES
@pytest.mark.parametrize("make", [lambda: budget_of(per_second=0.1), lambda: bucket_of(1)])
def test_a_retry_that_a_gate_rejects_costs_nothing(
    colour: str, gate: Callable[[Virtual], Any], make: Callable[[], Any]
) -> None:
    """Each grant is refunded, so that one is enough for any number of rejected retries."""
    clock, budget = Virtual(), RecordingBudget(make())
    retrying = Retry(attempts=4, backoff=[0.1] * 9, budget=budget, clock=clock, hints=Hints(mode="ignore"))
    pipeline = retrying | gate(clock)
    calls: list[None] = []
    before = budget.snapshot()

    def work() -> None:
        calls.append(None)

    async def awork() -> None:
        calls.append(None)

    def items() -> Generator[int]:
        calls.append(None)
        yield 1

    async def aitems() -> AsyncGenerator[int]:
        calls.append(None)
        yield 1

    async def aread() -> None:
        await Reader().aread(pipeline(aitems), [])

    for blocking, waiting in [
        (pipeline(work), pipeline(awork)),
        (lambda: pipeline.call(work), lambda: pipeline.call(awork)),
        (lambda: Reader().read(pipeline(items), []), aread),
    ]:
        budget.lines.clear()
        with pytest.raises(errors.Rejected) as caught:
            in_colour(colour, blocking, waiting)
        reported = report(caught.value)
        assert reported is not None
        assert (reported.attempts, reported.reason, calls) == (4, "attempts", [])
        assert budget.lines == ["spend 1: 0", "refund 1: 1"] * 3
        assert budget.snapshot() == before


def test_a_breaker_that_opens_and_closes_meanwhile(colour: str) -> None:
    """A retry that the breaker rejects costs nothing; the other retries cost a grant each."""
    clock, budget = Virtual(), few()
    breaker = CircuitBreaker(failures=1, cooldown=5, clock=clock)
    answers: list[str | Boom] = ["done", Boom()]

    def work() -> str:
        answer = answers.pop()
        if isinstance(answer, Boom):
            raise answer
        return answer

    async def awork() -> str:
        return work()

    pipeline = (
        Retry(on=Exception, backoff=SECONDS, budget=budget, clock=clock, hints=Hints(spread=0)) | breaker
    )
    assert in_colour(colour, pipeline(work), pipeline(awork)) == "done"
    assert clock.waits == [1, 4]
    assert budget.lines == ["spend 1: 1", "refund 1: 2", "spend 1: 1", "credit 1: 2"]


@pytest.mark.parametrize("kind", [errors.Rejected, errors.CircuitOpen, errors.BulkheadFull])
def test_a_rejection_raised_by_the_operation_costs_a_grant(drive: Drive, kind: type[errors.Rejected]) -> None:
    """The function was called, and may have had effects before it raised."""
    refused = kind("full", limit=1) if kind is errors.BulkheadFull else kind("full")
    expected = Call(1, ledger="spend 1: 1, spend 1: 0, credit 1: 1")
    assert expected == drive([refused, refused, ok(1)], budget=few)


def test_a_retry_in_which_an_inner_policy_made_attempts_costs_a_grant(colour: str) -> None:
    """The gate rejected its last attempt, but not the others."""
    clock, budget, calls = Virtual(), few(), list[None]()
    outer = Retry(on=Exception, attempts=2, backoff=[9], budget=budget, clock=clock, nested="allow")
    inner = Retry(on=Exception, attempts=2, backoff=[1], clock=clock, hints=Hints(mode="ignore"))

    def work() -> None:
        calls.append(None)
        raise Boom

    async def awork() -> None:
        work()

    pipeline = outer | inner | CircuitBreaker(failures=1, cooldown=5, clock=clock)
    with pytest.raises(errors.CircuitOpen):
        in_colour(colour, pipeline(work), pipeline(awork))
    assert (len(calls), budget.lines) == (2, ["spend 1: 1"])


# ------------------------------------- gates and functions in modules of any name


MODULE = """
from redouble import Gate
from redouble.errors import Rejected

OLD = Rejected("shut, as before")

class Same(Gate):
    def admit(self, now, /):
        return refuse()

def refuse():
    raise OLD

async def arefuse():
    return refuse()
"""


def module_named(name: str) -> Any:
    """Make a module in no file: coverage would count a file of this name as part of the package."""
    module = ModuleType(name)
    exec(compile(MODULE, f"<caller {name}>", "exec"), module.__dict__)  # noqa: S102
    return module


NAMES = pytest.mark.parametrize(
    "name", ["shop.gates", "redouble._layers.gate", "redouble._anything", "redoubled"]
)


@NAMES
def test_a_gate_may_be_defined_in_a_module_of_any_name(colour: str, name: str) -> None:
    """It may raise the same error object every time."""
    clock, budget, module = Virtual(), few(), module_named(name)
    pipeline = Retry(on=Exception, attempts=3, backoff=SECONDS, budget=budget, clock=clock) | module.Same()

    async def awork() -> None: ...

    for _ in range(2):
        budget.lines.clear()
        with pytest.raises(errors.Rejected) as caught:
            in_colour(colour, pipeline(lambda: None), pipeline(awork))
        assert caught.value is module.OLD
        assert budget.lines == ["spend 1: 1", "refund 1: 2"] * 2


@NAMES
def test_a_function_may_be_defined_in_a_module_of_any_name(colour: str, name: str) -> None:
    """The function itself raised the error, so that each retry costs a grant."""
    clock, budget, module = Virtual(), few(), module_named(name)
    retrying = Retry(on=Exception, attempts=3, backoff=SECONDS, budget=budget, clock=clock)
    with pytest.raises(errors.Rejected):
        in_colour(colour, retrying(module.refuse), retrying(module.arefuse))
    assert budget.lines == ["spend 1: 1", "spend 1: 0"]


@GATES
def test_a_rejection_by_a_gate_inside_the_function_costs_a_grant(
    colour: str, gate: Callable[[Virtual], Any]
) -> None:
    """The function was called before the gate inside it rejected."""
    clock, budget = Virtual(), few()
    retrying = Retry(
        on=Exception, attempts=3, backoff=SECONDS, budget=budget, clock=clock, hints=Hints(mode="ignore")
    )
    closed = gate(clock)

    async def nothing() -> None: ...

    def work() -> None:
        closed(lambda: None)()

    async def awork() -> None:
        await closed(nothing)()

    calls = (retrying | Bulkhead(9))(work), (retrying | Bulkhead(9))(awork)
    with pytest.raises(errors.Rejected):
        in_colour(colour, *calls)
    assert budget.lines == ["spend 1: 1", "spend 1: 0"]


def test_an_old_rejection_that_the_function_raises_again_costs_a_grant(colour: str) -> None:
    clock, budget = Virtual(), few()
    closed = open_breaker(clock)
    with pytest.raises(errors.CircuitOpen) as caught:
        closed(lambda: None)()

    def work() -> None:
        raise caught.value

    async def awork() -> None:
        raise caught.value

    retrying = Retry(
        on=Exception, attempts=3, backoff=[0.1] * 2, budget=budget, clock=clock, hints=Hints(mode="ignore")
    )
    pipeline = retrying | CircuitBreaker(failures=9, clock=clock)
    with pytest.raises(errors.CircuitOpen):
        in_colour(colour, pipeline(work), pipeline(awork))
    assert budget.lines == ["spend 1: 1", "spend 1: 0"]
