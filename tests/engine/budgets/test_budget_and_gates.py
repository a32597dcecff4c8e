"""Budgets and gates: a retry that a gate rejects has not called the function, and costs nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from types import ModuleType
from typing import Any

import pytest

from redouble import Bulkhead, CircuitBreaker, Gate, Hints, Retry, RetryBudget, errors, report
from tests.conftest import Drive
from tests.support.budgets import RecordingBudget, bucket_of, budget_of
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
    """A gate of one's own."""

    def admit(self, now: float, /) -> None:
        raise errors.Rejected("shut")


def shut(clock: Virtual) -> Shut:
    return Shut()


GATES = pytest.mark.parametrize("gate", [open_breaker, full_bulkhead, shut])


@GATES
@pytest.mark.parametrize("make", [lambda: budget_of(per_second=0.1), lambda: bucket_of(1)])
def test_a_gate_that_refuses_costs_nothing(
    colour: str, gate: Callable[[Virtual], Any], make: Callable[[], Any]
) -> None:
    """No retry has called the function: one grant is enough for any number of them."""
    clock, books = Virtual(), RecordingBudget(make())
    retrying = Retry(attempts=4, backoff=[0.1] * 9, budget=books, clock=clock, hints=Hints(mode="ignore"))
    pipeline = retrying | gate(clock)
    calls: list[None] = []
    before = books.snapshot()

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
        books.lines.clear()
        with pytest.raises(errors.Rejected) as caught:
            in_colour(colour, blocking, waiting)
        said = report(caught.value)
        assert said is not None
        assert (said.attempts, said.reason, calls) == (4, "attempts", [])
        assert books.lines == ["spend 1: 0", "refund 1: 1"] * 3
        assert books.snapshot() == before


def test_a_breaker_that_opens_and_closes_meanwhile(colour: str) -> None:
    """The failure that opens it costs a grant, the retry it rejects does not, the one that succeeds does."""
    clock, books = Virtual(), few()
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
        Retry(on=Exception, backoff=SECONDS, budget=books, clock=clock, hints=Hints(spread=0)) | breaker
    )
    assert in_colour(colour, pipeline(work), pipeline(awork)) == "done"
    assert clock.waits == [1, 4]
    assert books.lines == ["spend 1: 1", "refund 1: 2", "spend 1: 1", "credit 1: 2"]


@pytest.mark.parametrize("kind", [errors.Rejected, errors.CircuitOpen, errors.BulkheadFull])
def test_a_refusal_that_comes_from_the_operation_is_paid_for(
    drive: Drive, kind: type[errors.Rejected]
) -> None:
    """The function was called, and may have had effects before something in it was rejected."""
    refused = kind("full", limit=1) if kind is errors.BulkheadFull else kind("full")
    expected = Call(1, ledger="spend 1: 1, spend 1: 0, credit 1: 1")
    assert expected == drive([refused, refused, ok(1)], budget=few)


def test_attempts_of_an_inner_policy_are_paid_for(colour: str) -> None:
    """The last of them was refused, but not the others."""
    clock, books, calls = Virtual(), few(), list[None]()
    outer = Retry(on=Exception, attempts=2, backoff=[9], budget=books, clock=clock, nested="allow")
    inner = Retry(on=Exception, attempts=2, backoff=[1], clock=clock, hints=Hints(mode="ignore"))

    def work() -> None:
        calls.append(None)
        raise Boom

    async def awork() -> None:
        work()

    pipeline = outer | inner | CircuitBreaker(failures=1, cooldown=5, clock=clock)
    with pytest.raises(errors.CircuitOpen):
        in_colour(colour, pipeline(work), pipeline(awork))
    assert (len(calls), books.lines) == (2, ["spend 1: 1"])


# ------------------------------------------------------- code of ours, and code of the caller's


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
    """Make a module of the caller's, in no file: coverage would count one of this name as ours."""
    module = ModuleType(name)
    exec(compile(MODULE, f"<caller {name}>", "exec"), module.__dict__)  # noqa: S102
    return module


NAMES = pytest.mark.parametrize(
    "name", ["shop.gates", "redouble._layers.gate", "redouble._anything", "redoubled"]
)


@NAMES
def test_a_gate_of_the_callers_may_stand_in_any_module(colour: str, name: str) -> None:
    """And raise the same error every time."""
    clock, books, module = Virtual(), few(), module_named(name)
    pipeline = Retry(on=Exception, attempts=3, backoff=SECONDS, budget=books, clock=clock) | module.Same()

    async def awork() -> None: ...

    for _ in range(2):
        books.lines.clear()
        with pytest.raises(errors.Rejected) as caught:
            in_colour(colour, pipeline(lambda: None), pipeline(awork))
        assert caught.value is module.OLD
        assert books.lines == ["spend 1: 1", "refund 1: 2"] * 2


@NAMES
def test_a_function_of_the_callers_may_stand_in_any_module(colour: str, name: str) -> None:
    """The function itself has raised its error, so the retry costs a grant."""
    clock, books, module = Virtual(), few(), module_named(name)
    retrying = Retry(on=Exception, attempts=3, backoff=SECONDS, budget=books, clock=clock)
    with pytest.raises(errors.Rejected):
        in_colour(colour, retrying(module.refuse), retrying(module.arefuse))
    assert books.lines == ["spend 1: 1", "spend 1: 0"]


@GATES
def test_a_gate_inside_the_function_is_paid_for(colour: str, gate: Callable[[Virtual], Any]) -> None:
    """The function was called before something in it was rejected, by whatever gate."""
    clock, books = Virtual(), few()
    retrying = Retry(
        on=Exception, attempts=3, backoff=SECONDS, budget=books, clock=clock, hints=Hints(mode="ignore")
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
    assert books.lines == ["spend 1: 1", "spend 1: 0"]


def test_an_old_rejection_that_the_function_raises_again_is_paid_for(colour: str) -> None:
    clock, books = Virtual(), few()
    closed = open_breaker(clock)
    with pytest.raises(errors.CircuitOpen) as caught:
        closed(lambda: None)()

    def work() -> None:
        raise caught.value

    async def awork() -> None:
        raise caught.value

    retrying = Retry(
        on=Exception, attempts=3, backoff=[0.1] * 2, budget=books, clock=clock, hints=Hints(mode="ignore")
    )
    through = retrying | CircuitBreaker(failures=9, clock=clock)
    with pytest.raises(errors.CircuitOpen):
        in_colour(colour, through(work), through(awork))
    assert books.lines == ["spend 1: 1", "spend 1: 0"]
