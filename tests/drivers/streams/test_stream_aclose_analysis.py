"""Whether closing a stream has to wait: asked under Trio, before an abandoned one is closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Retry
from redouble._drivers.stream_source import may_suspend
from tests.support.fakes import Boom, in_colour
from tests.support.streams import GENERATORS, Shape, stacked

POLICY = Retry(on=Boom)
LOG: list[str] = []


@pytest.fixture(autouse=True)
def counting() -> None:
    LOG.clear()


async def pause() -> None:
    """Wait."""
    await SYSTEM.asleep(0)
    await SYSTEM.asleep(0)


@asynccontextmanager
async def scope() -> AsyncGenerator[None]:
    yield
    await pause()


class Quick:
    """Its ``with`` waits for nothing."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


# ------------------------------------------------------- generators that wait for nothing


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


# --------------------------------------------------------------------- and those that wait


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


# ------------------------- those that do not, but could if an error were swallowed on the way


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


NO = [plain, logs, loops]
YES = [waiting, in_a_with, in_a_loop, after_catching, outermost]
PERHAPS = [within, catches_others]


def told(make: Callable[[], AsyncGenerator[int]], items: int = 1) -> list[bool]:
    """Ask before it begins, at an item, and when it is over."""
    said: list[bool] = []

    async def main() -> None:
        stream = make()
        said.append(may_suspend(stream))
        for _ in range(items):
            await anext(stream)
        said.append(may_suspend(stream))
        await stream.aclose()
        said.append(may_suspend(stream))

    trio.run(main)
    return said


@pytest.mark.parametrize("make", NO)
def test_generators_that_wait_for_nothing(make: Callable[[], AsyncGenerator[int]]) -> None:
    assert told(make) == [False, False, False]


@pytest.mark.parametrize("make", YES + PERHAPS)
def test_generators_that_wait_or_might(make: Callable[[], AsyncGenerator[int]]) -> None:
    assert told(make) == [False, True, False]


def test_where_it_stands_matters() -> None:
    assert told(opened_later, 1) == [False, False, False]
    assert told(opened_later, 2) == [False, True, False]


@pytest.mark.parametrize("shape", [*GENERATORS.values(), stacked])
def test_streams_of_ours_know(shape: Shape) -> None:
    """Whatever stands around it."""
    for make, expected in [(logs, False), (waiting, True)]:
        assert told(lambda: shape(POLICY, make)) == [False, expected, False]  # noqa: B023  used at once


# -------------------------------------------------------------------------- no generators


class Ticks:
    """A source that is no generator, and that nobody has to close."""

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
def test_no_generator(colour: str, make: Callable[[], Any], at_once: bool) -> None:
    """However it is closed, it is closed to the end; at once if that waits for nothing."""
    assert may_suspend(make()) is not at_once

    async def main() -> None:
        async for _ in POLICY.stream(make):
            break
        LOG.append("left")
        for _ in range(5):
            await pause()

    in_colour(colour, lambda: None, main)
    assert (["clean", "left"] if at_once else ["left", "clean"]) == LOG


def test_nothing_to_close() -> None:
    assert not may_suspend(Ticks())


class Odd(Ticks):
    @property
    def aclose(self) -> Any:
        raise LookupError("aclose")


def test_where_it_is_unknown_it_may_wait() -> None:
    assert may_suspend(Odd())
