"""`may_suspend`: True if closing a stream may await, which its finaliser has to know beforehand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Retry
from redouble._drivers.opened_stream import may_suspend
from tests.support.fakes import Boom, in_colour
from tests.support.streams import GENERATORS, Shape, stacked

POLICY = Retry(on=Boom)
LOG: list[str] = []


@pytest.fixture(autouse=True)
def clear_log() -> None:
    LOG.clear()


async def pause() -> None:
    """Suspend twice."""
    await SYSTEM.asleep(0)
    await SYSTEM.asleep(0)


@asynccontextmanager
async def scope() -> AsyncGenerator[None]:
    yield
    await pause()


class Quick:
    """A context manager whose exit awaits nothing."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


# ------------------------------------------------- generators whose closing awaits nothing


async def plain() -> AsyncGenerator[int]:
    await pause()
    yield 1
    await pause()


async def logs() -> AsyncGenerator[int]:
    try:
        await pause()
        yield 1
        await pause()
    finally:
        LOG.append("clean")


async def loops() -> AsyncGenerator[int]:
    while True:
        await pause()
        try:
            yield 1
        finally:
            while not LOG:
                LOG.append("clean")


# --------------------------------------------------------- generators whose closing awaits


async def waiting() -> AsyncGenerator[int]:
    try:
        yield 1
    finally:
        await pause()


async def in_a_with() -> AsyncGenerator[int]:
    async with scope():
        yield 1


async def in_a_loop() -> AsyncGenerator[int]:
    try:
        yield 1
    finally:
        for _ in range(2):
            async for _ in logs():
                pass


async def after_catching() -> AsyncGenerator[int]:
    try:
        yield 1
    except GeneratorExit:
        LOG.append("caught")
    await pause()


async def outermost() -> AsyncGenerator[int]:
    try:
        try:
            yield 1
        finally:
            LOG.append("inner")
    finally:
        if LOG:
            await pause()


async def opened_later() -> AsyncGenerator[int]:
    yield 1
    async with scope():
        yield 2


# ----------------- generators whose closing would await only if GeneratorExit were swallowed


async def within() -> AsyncGenerator[int]:
    async with scope():
        pass
    with Quick():
        yield 1
    await pause()


async def catches_others() -> AsyncGenerator[int]:
    for number in range(3):
        try:
            yield number
        except ValueError:
            LOG.append("other")
        else:
            await pause()


AWAIT_NOTHING = [plain, logs, loops]
AWAIT = [waiting, in_a_with, in_a_loop, after_catching, outermost]
MIGHT_AWAIT = [within, catches_others]


def may_suspend_at_each_stage(make: Callable[[], AsyncGenerator[int]], items: int = 1) -> list[bool]:
    """Return `may_suspend` before the start of the generator, at an item and after its end."""
    answers: list[bool] = []

    async def main() -> None:
        stream = make()
        answers.append(may_suspend(stream))
        for _ in range(items):
            await anext(stream)
        answers.append(may_suspend(stream))
        await stream.aclose()
        answers.append(may_suspend(stream))

    trio.run(main)
    return answers


@pytest.mark.parametrize("make", AWAIT_NOTHING)
def test_closing_that_awaits_nothing_does_not_suspend(make: Callable[[], AsyncGenerator[int]]) -> None:
    assert may_suspend_at_each_stage(make) == [False, False, False]


@pytest.mark.parametrize("make", AWAIT + MIGHT_AWAIT)
def test_closing_that_can_reach_an_await_may_suspend(make: Callable[[], AsyncGenerator[int]]) -> None:
    assert may_suspend_at_each_stage(make) == [False, True, False]


def test_the_answer_depends_on_the_position_of_the_generator() -> None:
    assert may_suspend_at_each_stage(opened_later, 1) == [False, False, False]
    assert may_suspend_at_each_stage(opened_later, 2) == [False, True, False]


@pytest.mark.parametrize("shape", [*GENERATORS.values(), stacked])
def test_a_wrapped_stream_answers_as_its_source(shape: Shape) -> None:
    for make, expected in [(logs, False), (waiting, True)]:
        assert may_suspend_at_each_stage(lambda: shape(POLICY, make)) == [False, expected, False]  # noqa: B023  used at once


# ------------------------------------------------------------ sources that are no generators


class Ticks:
    """A source that is not a generator and needs no closing."""

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return 1


class Closes(Ticks):
    def close(self) -> None:
        LOG.append("clean")


class ClosesAtOnce(Ticks):
    async def aclose(self) -> None:
        LOG.append("clean")


class Waits(Ticks):
    async def aclose(self) -> None:
        await pause()
        LOG.append("clean")


class WaitsByClose(Ticks):
    async def close(self) -> None:
        await pause()
        LOG.append("clean")


class ReturnsAwaitable(Ticks):
    def aclose(self) -> Awaitable[None]:
        return Waits().aclose()


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("make", "at_once"),
    [(Closes, True), (ClosesAtOnce, True), (Waits, False), (WaitsByClose, False), (ReturnsAwaitable, False)],
)
def test_an_abandoned_iterator_is_closed_completely(
    colour: str, make: Callable[[], Any], at_once: bool
) -> None:
    """Before the consumer's next line runs if closing awaits nothing, otherwise later."""
    assert may_suspend(make()) is not at_once

    async def main() -> None:
        async for _ in POLICY.stream(make):
            break
        LOG.append("left")
        for _ in range(5):
            await pause()

    in_colour(colour, lambda: None, main)
    assert (["clean", "left"] if at_once else ["left", "clean"]) == LOG


def test_a_source_without_close_does_not_suspend() -> None:
    assert not may_suspend(Ticks())


class Odd(Ticks):
    @property
    def aclose(self) -> Any:
        raise LookupError("aclose")


def test_a_source_whose_aclose_cannot_be_read_may_suspend() -> None:
    assert may_suspend(Odd())
