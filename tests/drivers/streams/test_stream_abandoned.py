"""Streams that are left in the middle: the source is closed at once, under Trio soon, without a warning."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from redouble import SYSTEM, Retry
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.streams import SHAPES, Reader, Shape, stacked, streamed, until_closed

POLICY = Retry(on=Boom, backoff=[0] * 9)
LOG: list[str] = []


EVERY = SHAPES | {"stacked": stacked}
EVERY_SHAPE = pytest.mark.parametrize("shape", EVERY.values(), ids=EVERY)
LOOPS = pytest.mark.parametrize("colour", ASYNC)


def closed_before(colour: str, word: str) -> list[str]:
    """Return the log of a source that is closed before the consumer's next line runs, under Trio after it."""
    return [word, "closed"] if colour == "trio" else ["closed", word]


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector, so that only reference counting closes sources."""
    LOG.clear()
    gc.disable()
    yield
    gc.enable()


def numbers() -> Iterator[int]:
    try:
        yield from range(9)
    finally:
        LOG.append("closed")


async def anumbers() -> AsyncIterator[int]:
    try:
        for number in range(9):
            yield number
    finally:
        LOG.append("closed")


class Numbers:
    """A source that is not a generator: it is closed only if the stream closes it."""

    def __init__(self) -> None:
        self.number = -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.number += 1
        return self.number

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return next(self)

    def close(self) -> None:
        LOG.append("closed")


@EVERY_SHAPE
@pytest.mark.parametrize("way", ["break", "raise", "drop"])
@pytest.mark.parametrize("after", [1, 3])
def test_an_abandoned_source_is_closed_at_once(colour: str, shape: Shape, way: Any, after: int) -> None:
    """The source is closed before the consumer's next line runs; under Trio by a system task."""
    reader, taken = Reader(way, after, LookupError()), list[object]()

    def blocking() -> None:
        with suppress(LookupError):
            reader.read(lambda: shape(POLICY, numbers), taken)
        LOG.append("left")

    async def waiting() -> None:
        with suppress(LookupError):
            await reader.aread(lambda: shape(POLICY, anumbers), taken)
        LOG.append("left")
        await until_closed(colour)

    in_colour(colour, blocking, waiting)
    assert taken == list(range(after))
    assert closed_before(colour, "left") == LOG


def test_an_abandoned_source_that_is_no_generator_is_closed_at_once(colour: str) -> None:

    def blocking() -> None:
        for item in streamed(POLICY, Numbers):
            if item == 1:
                break
        LOG.append("left")

    async def waiting() -> None:
        async for item in streamed(POLICY, Numbers):
            if item == 1:
                break
        LOG.append("left")
        await until_closed(colour)

    in_colour(colour, blocking, waiting)
    assert closed_before(colour, "left") == LOG


@EVERY_SHAPE
def test_a_stream_in_a_reference_cycle_is_closed_when_collected(colour: str, shape: Shape) -> None:
    class Node:
        stream: Any
        itself: Any

    def blocking() -> None:
        node = Node()
        node.stream, node.itself = shape(POLICY, numbers), node
        next(node.stream)
        del node
        assert LOG == []
        gc.collect()
        LOG.append("collected")

    async def waiting() -> None:
        node = Node()
        node.stream, node.itself = shape(POLICY, anumbers), node
        await anext(node.stream)
        del node
        assert LOG == []
        gc.collect()
        LOG.append("collected")
        await until_closed(colour)

    in_colour(colour, blocking, waiting)
    assert closed_before(colour, "collected") == LOG


@EVERY_SHAPE
@pytest.mark.parametrize("late", [False, True])
def test_an_ended_stream_keeps_nothing_alive(colour: str, shape: Shape, late: bool) -> None:
    """Neither a dropped stream nor a failed one keeps a reference to the locals of its source."""

    class Big:
        pass

    alive: list[weakref.ref[Big]] = []

    def source() -> Iterator[int]:
        big = Big()
        alive.append(weakref.ref(big))
        yield 1
        if late:
            raise Boom
        yield 2

    async def asource() -> AsyncIterator[int]:
        big = Big()
        alive.append(weakref.ref(big))
        yield 1
        if late:
            raise Boom
        yield 2

    def blocking() -> None:
        with suppress(Boom):
            for item in shape(POLICY, source):
                assert item == 1
                if not late:
                    break

    async def waiting() -> None:
        with suppress(Boom):
            async for item in shape(POLICY, asource):
                assert item == 1
                if not late:
                    break
        await until_closed(colour)

    in_colour(colour, blocking, waiting)
    assert [big() for big in alive] == [None]


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # Trio's hook warns, correctly
@EVERY_SHAPE
@pytest.mark.parametrize("where", ["thread", "after"])
@LOOPS
def test_a_stream_dropped_outside_its_loop_is_closed_by_the_loop(
    colour: str, shape: Shape, where: str
) -> None:
    """The hooks of the loop close a stream dropped in another thread; a loop that ended has closed it."""
    kept: list[Any] = []

    async def main() -> None:
        kept.append(shape(POLICY, anumbers))
        await anext(kept[0])
        if where == "thread":
            thread = threading.Thread(target=kept.clear)
            thread.start()
            thread.join()
            for _ in range(9):
                await SYSTEM.asleep(0)

    in_colour(colour, lambda: None, main)
    assert LOG == ["closed"]
    kept.clear()
    assert LOG == ["closed"]
