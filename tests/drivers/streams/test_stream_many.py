"""Streams abandoned by cancelled tasks, and a thousand streams abandoned at random."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Retry
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.streams import SHAPES, Shape, stacked, until_closed

EVERY = SHAPES | {"stacked": stacked}
EVERY_SHAPE = pytest.mark.parametrize("shape", EVERY.values(), ids=EVERY)
LOOPS = pytest.mark.parametrize("colour", ASYNC)
POLICY = Retry(on=Boom, backoff=[0] * 9)


async def turns(count: int) -> None:
    """Yield to the event loop this many times."""
    for _ in range(count):
        await SYSTEM.asleep(0)


@EVERY_SHAPE
@pytest.mark.parametrize("where", ["body", "next", "first"])
@LOOPS
def test_a_cancelled_task_closes_its_stream(colour: str, shape: Shape, where: str) -> None:
    ready: list[bool] = []
    log: list[str] = []

    async def waits() -> None:
        ready.append(True)
        await SYSTEM.asleep(1e6)

    async def source() -> AsyncIterator[int]:
        try:
            if where == "first":
                await waits()
            yield 1
            if where == "next":
                await waits()
            yield 2
        finally:
            log.append("closed")

    async def work() -> None:
        try:
            async for _ in shape(POLICY, source):
                if where == "body":
                    await waits()
        except BaseException as error:
            log.append("cancelled")
            error.__traceback__ = None
            raise

    async def in_asyncio() -> None:
        task = asyncio.ensure_future(work())
        await turns(9)
        assert ready
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await turns(9)
            assert ready
            nursery.cancel_scope.cancel()

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)
    assert sorted(log) == ["cancelled", "closed"]


# ------------------------------------------------------------------- a thousand at once


def counted_source(rng: random.Random, opened: list[int]) -> Callable[[], Any]:
    """Return a random source that has one entry in ``opened`` while it is open."""

    def source() -> Iterator[int]:
        if rng.random() < 0.2:
            raise Boom
        opened.append(1)
        try:
            yield from range(rng.randrange(6))
            if rng.random() < 0.3:
                raise Boom
        finally:
            opened.pop()

    return source


def test_a_thousand_abandoned_streams_are_closed(colour: str, recwarn: pytest.WarningsRecorder) -> None:
    """They are of random shapes, read and dropped in random order, without a warning."""
    rng, opened = random.Random(5), list[int]()
    source = counted_source(rng, opened)
    shapes = [*SHAPES.values(), stacked]

    async def asource() -> AsyncIterator[int]:
        for item in source():
            await SYSTEM.asleep(0)
            yield item

    def blocking() -> None:
        streams = [rng.choice(shapes)(POLICY, source) for _ in range(1000)]
        while streams:
            index = rng.randrange(len(streams))
            try:
                next(streams[index])
            except (StopIteration, Boom):
                streams.pop(index)
            if streams and rng.random() < 0.3:
                streams.pop(rng.randrange(len(streams)))
        assert opened == []

    async def waiting() -> None:
        streams = [rng.choice(shapes)(POLICY, asource) for _ in range(1000)]
        while streams:
            index = rng.randrange(len(streams))
            try:
                await anext(streams[index])
            except (StopAsyncIteration, Boom):
                streams.pop(index)
            if streams and rng.random() < 0.3:
                streams.pop(rng.randrange(len(streams)))
        await until_closed(colour)
        assert opened == []

    in_colour(colour, blocking, waiting)
    gc.collect()
    assert not recwarn.list
