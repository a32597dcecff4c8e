"""The metrics of one policy as short texts, and shapes of calls in addition to those of `call_shapes`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from redouble import Retry
from redouble._telemetry import emit
from redouble.instruments import memory
from redouble.instruments.memory import Metrics, Summary
from redouble.types import Event
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES, AsyncShape, AsyncWork, Shape, Work
from tests.support.fakes import Operation, Panic, Script, Step, Virtual, fail, in_colour, steps

NAME = "work"


def counts(metrics: Metrics, name: str = NAME) -> dict[str, float]:
    """Return all counters of a name: ``{"calls true": 1, "attempts none ok": 1}``."""
    found: dict[str, float] = {}
    for metric, series in metrics.series().items():
        for labels, value in series.items():
            (_, owner), *rest = labels
            if owner == name and not isinstance(value, Summary):
                found[" ".join([metric, *(label for _, label in rest)])] = value
    return found


def policy(**options: Any) -> Retry:
    """Return a policy named ``work`` in virtual time, whose first delay is 1 second."""
    arguments: dict[str, Any] = {"on": Exception, "backoff": [1, 2, 4, 8], "clock": Virtual(), "name": NAME}
    return Retry(**arguments | options)


# ---------------------------------------------------------- streams and context managers


def entered(retrying: Retry, work: Work) -> object:
    @contextmanager
    def manager() -> Generator[object]:
        yield work()

    with retrying.enter(manager) as value:
        return value


def streamed(retrying: Retry, work: Work) -> object:
    (value,) = retrying.stream(lambda: (work() for _ in [0]))
    return value


def generated(retrying: Retry, work: Work) -> object:
    @retrying
    def items() -> Generator[object]:
        yield work()

    (value,) = items()
    return value


async def aentered(retrying: Retry, work: AsyncWork) -> object:
    @asynccontextmanager
    async def manager() -> AsyncGenerator[object]:
        yield await work()

    async with retrying.enter(manager) as value:
        return value


async def astreamed(retrying: Retry, work: AsyncWork) -> object:
    async def items() -> AsyncIterator[object]:
        yield await work()

    (value,) = [item async for item in retrying.stream(items)]
    return value


async def agenerated(retrying: Retry, work: AsyncWork) -> object:
    @retrying
    async def items() -> AsyncGenerator[object]:
        yield await work()

    (value,) = [item async for item in items()]
    return value


EVERY_SHAPE: dict[str, Shape] = SHAPES | {"enter": entered, "stream": streamed, "generator": generated}
EVERY_ASYNC_SHAPE: dict[str, AsyncShape] = ASYNC_SHAPES | {
    "enter": aentered,
    "stream": astreamed,
    "generator": agenerated,
}
JUDGES_RESULTS = ("decorator", "call", "run")


def with_new_errors(script: Script) -> list[Step]:
    """Return the steps of a script, with new instances of the errors."""
    return [
        fail(type(step.error)(*step.error.args), step.takes)
        if isinstance(step.error, BaseException)
        else step
        for step in steps(script)
    ]


def coloured(operation: Operation) -> Callable[[], Any]:
    """Return the operation as a coroutine function."""

    async def later() -> object:
        return operation()

    return later


def every_shape(
    colour: str, script: Script, options: Callable[[], dict[str, Any]]
) -> dict[str, dict[str, float]]:
    """Make a call in every shape of a colour, and return the counts of each."""
    seen: dict[str, dict[str, float]] = {}

    def prepared(shape: str) -> tuple[Retry, Operation] | None:
        retrying = policy(**options())
        if retrying.until is not None and shape not in JUDGES_RESULTS:
            return None  # this shape has no `until`
        clock = retrying.clock
        assert isinstance(clock, Virtual)
        return retrying, Operation(with_new_errors(script), clock)

    def blocking() -> None:
        for shape, make in EVERY_SHAPE.items():
            if (found := prepared(shape)) is not None:
                with memory.instrument() as metrics, suppress(Exception, Panic):
                    make(*found)
                seen[shape] = counts(metrics)

    async def waiting() -> None:
        for shape, make in EVERY_ASYNC_SHAPE.items():
            if (found := prepared(shape)) is not None:
                with memory.instrument() as metrics, suppress(Exception, Panic):
                    await make(found[0], coloured(found[1]))
                seen[shape] = counts(metrics)
        if (found := prepared("call")) is not None:
            with memory.instrument() as metrics, suppress(Exception, Panic):
                await found[0].acall(found[1])
            seen["acall"] = counts(metrics)

    in_colour(colour, blocking, waiting)
    return seen


@contextmanager
def created_events() -> Generator[list[object]]:
    """Yield a list to which the name of every created event is added."""
    names: list[object] = []
    original = emit.new

    def new(kind: type[Event], fields: tuple[object, ...]) -> Event:
        names.append(fields[0])
        return original(kind, fields)

    emit.new = new
    try:
        yield names
    finally:
        emit.new = original
