"""Timeouts around our calls keep working, and every wait is a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import trio

from redouble import SYSTEM, Clock, Retry
from redouble._runtime.backend import backend
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES, AsyncShape
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour

EVERY_SHAPE = pytest.mark.parametrize("shape", ASYNC_SHAPES.values(), ids=ASYNC_SHAPES)
LOOPS = pytest.mark.parametrize("colour", ASYNC)


class Endless(Clock):
    """A clock whose waits end only by cancellation."""

    def now(self) -> float:
        return 0.0

    async def asleep(self, seconds: float) -> None:
        await backend().sleep(1e6)


@EVERY_SHAPE
@pytest.mark.parametrize("where", ["attempt", "delay"])
@LOOPS
def test_an_outer_timeout_keeps_working(colour: str, shape: AsyncShape, where: str) -> None:
    """In every phase of a call; afterwards no cancellation request is left."""
    now: list[Callable[[], None]] = []

    async def work() -> None:
        now.pop()()  # let the outer timeout expire
        if where == "attempt":
            await backend().sleep(1e6)
        raise Boom

    async def in_asyncio() -> str:
        try:
            async with asyncio.timeout(None) as scope:
                now.append(lambda: scope.reschedule(0))
                await shape(Retry(on=Boom, clock=Endless()), work)
        except TimeoutError:
            task = asyncio.current_task()
            return f"timeout, {task.cancelling() if task else None}"
        return "ended"

    async def in_trio() -> str:
        with trio.move_on_after(1e6) as scope:
            now.append(scope.cancel)
            await shape(Retry(on=Boom, clock=Endless()), work)
        return f"timeout, {0 if scope.cancelled_caught else 1}"

    main = in_trio if colour == "trio" else in_asyncio
    assert in_colour(colour, lambda: None, main) == "timeout, 0"


@EVERY_SHAPE
@LOOPS
def test_a_delay_of_zero_is_a_checkpoint(colour: str, shape: AsyncShape) -> None:
    """Other tasks run between two attempts, and a pending cancellation is delivered."""
    turns: list[str] = []

    async def work() -> None:
        turns.append("work")
        raise Boom

    async def main() -> None:
        try:
            await shape(Retry(on=Boom, backoff=[0] * 9, attempts=3, clock=SYSTEM), work)
        except Boom:
            turns.append("gave up")

    async def other() -> None:
        while "gave up" not in turns:
            turns.append("other")
            await backend().sleep(0)

    async def in_asyncio() -> None:
        await asyncio.gather(main(), other())

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(main)
            nursery.start_soon(other)

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)
    assert turns.count("work") == 3
    assert turns[: turns.index("gave up")].count("other") >= 2  # in Trio the order of tasks is random


def test_a_delay_of_zero_needs_no_name_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the caller's may replace `asyncio.sleep`, and means its own code only."""

    async def work() -> None:
        calls.append("attempt")
        if len(calls) == 1:
            raise Boom

    def replaced(_: float) -> None:
        calls.append("sleep")

    calls: list[str] = []
    monkeypatch.setattr(asyncio, "sleep", replaced)
    asyncio.run(Retry(on=Boom, backoff=[0]).call(work))
    assert calls == ["attempt", "attempt"]


@pytest.mark.parametrize("shape", SHAPES)
def test_blocking_code_skips_a_delay_of_zero(shape: str) -> None:
    clock = Virtual()

    def work() -> None:
        raise Boom

    with pytest.raises(Boom):
        SHAPES[shape](Retry(on=Boom, backoff=[0, 1, 0], clock=clock), work)
    assert clock.waits == [1]
