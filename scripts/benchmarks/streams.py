"""The cost of an item of a stream after the first one.

The base is the bare generator, measured twice: one that does nothing for an item, and one that does as little
as a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import repeat
from time import perf_counter_ns

import redouble
from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample, race

LINE = "2026-11-15T23:06:53Z GET /orders/1042 200 0.013\n"

Stream = Callable[[int], Iterator[object]]
AsyncStream = Callable[[int], AsyncIterator[object]]


def plain(count: int) -> Iterator[object]:
    """Yield the same number."""
    for x in repeat(1, count):  # noqa: UP028  `yield from` would not run a Python loop
        yield x


def parsed(count: int) -> Iterator[object]:
    """Yield the fields of a line."""
    for line in repeat(LINE, count):
        yield line.split()


async def aplain(count: int) -> AsyncIterator[object]:
    """Yield the same number without suspending."""
    for x in repeat(1, count):
        yield x


async def awaited(count: int) -> AsyncIterator[object]:
    """Suspend once for each item."""
    for x in repeat(1, count):
        await asyncio.sleep(0)
        yield x


def items(stream: Stream) -> Sample:
    """Sample the items of a stream."""

    def sample(count: int) -> float:
        source = stream(count + 1)
        next(source)
        started = perf_counter_ns()
        for _ in source:
            pass
        return (perf_counter_ns() - started) / count

    return sample


def async_items(runner: asyncio.Runner, stream: AsyncStream) -> Sample:
    """Sample the items of an async stream."""

    async def sample(count: int) -> float:
        source = stream(count + 1)
        await anext(source)
        started = perf_counter_ns()
        async for _ in source:
            pass
        return (perf_counter_ns() - started) / count

    return lambda count: runner.run(sample(count))


def streams(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    for work, stream in (("an item of a stream", plain), ("an item that is a parsed line", parsed)):
        variants = {"by hand": items(stream), "redouble": items(redouble.retry(stream))}
        yield Row(work, race(variants, effort), 1.3)
    with asyncio.Runner() as runner:
        for work, astream in (
            ("an item of an async stream", aplain),
            ("an item that is waited for", awaited),
        ):
            async_variants = {
                "by hand": async_items(runner, astream),
                "redouble": async_items(runner, redouble.retry(astream)),
            }
            yield Row(work, race(async_variants, effort), 2.0)
