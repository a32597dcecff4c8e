"""The cost and the precision of time limits.

The hand-written limit is an `asyncio.timeout`, the hand-written thread a call of ``submit(...).result()``.
Only libraries that can cancel a running call are measured; the row about one second has all of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter_ns

from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample, Timing, async_calls, calls, race
from benchmarks.workloads import AsyncCall, Competitor, awork, crowded, endless

Competitors = Mapping[str, Competitor]

SECOND = 1_000_000_000
SHORT = 0.02  # seconds: a limit that is waited for


def time_limits(competitors: Competitors, effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    with asyncio.Runner() as runner:
        variants = limited(competitors, awork, 30)
        samples = {name: async_calls(runner, call) for name, call in variants.items()}
        yield Row("async success within a limit of 30 s", race(samples, effort), 0.35)
        yield in_flight(runner, competitors, effort)
        yield overshoot(runner, competitors, effort)
        yield one_second(runner, competitors)
    with one_processor():
        threads = {name: calls(c.on_thread) for name, c in competitors.items() if c.on_thread is not None}
        yield Row("sync success on a warm thread, one processor", race(threads, effort), 0.85)


def fewer(effort: Effort, times: int) -> Effort:
    """Return an effort with fewer rounds, for long rounds."""
    return replace(effort, rounds=max(5, effort.rounds // times))


def limited(competitors: Competitors, fn: AsyncCall, seconds: float) -> dict[str, AsyncCall]:
    """Return the same function limited by each library that can."""
    return {name: c.limited(fn, seconds) for name, c in competitors.items() if c.limited is not None}


def in_flight(runner: asyncio.Runner, competitors: Competitors, effort: Effort) -> Row:
    """Measure the cost of limits while many are active; the time of the bare tasks is subtracted.

    The hand-written one is a bare `asyncio.timeout` without the retry loop.
    """
    count = effort.in_flight
    variants = {**limited(competitors, crowded, 30), "by hand": bare, "no limit": crowded}
    samples = {name: together(runner, call, count) for name, call in variants.items()}
    taken = race(samples, fewer(effort, 9))
    tasks = taken.pop("no limit")
    added = {name: Timing(t.best - tasks.best, t.median - tasks.median) for name, t in taken.items()}
    return Row(f"{count:,} calls in flight, each limited: what that adds per call", added, 0.6)


async def bare(x: int) -> int:
    """Limit the call without retries."""
    async with asyncio.timeout(30):
        return await crowded(x)


def together(runner: asyncio.Runner, call: AsyncCall, in_flight: int) -> Sample:
    """Sample concurrent calls, one task each; none ends before all have begun."""

    async def sample() -> float:
        started = perf_counter_ns()
        await asyncio.gather(*[call(x) for x in range(in_flight)])
        await asyncio.sleep(0)  # the loop removes the cancelled timers
        return (perf_counter_ns() - started) / in_flight

    return lambda _: runner.run(sample())


def overshoot(runner: asyncio.Runner, competitors: Competitors, effort: Effort) -> Row:
    """Measure how late limits fire on an idle loop."""
    variants = limited(competitors, endless, SHORT)
    taken = race({name: lateness(runner, call) for name, call in variants.items()}, fewer(effort, 3))
    late = taken["redouble"].median
    problems = () if late <= 5e6 else (f"{late / 1e6:.2f} ms, to reach <= 5 ms",)
    middle = {name: Timing(t.median, t.median) for name, t in taken.items()}
    return Row("overshoot of an async limit, the median", middle, 3.0, problems=problems)


def lateness(runner: asyncio.Runner, call: AsyncCall) -> Sample:
    """Sample one call that is cancelled by its limit."""
    return lambda _: runner.run(ended(call)) - SHORT * SECOND


async def ended(call: AsyncCall) -> float:
    """Return the time until a call fails."""
    started = perf_counter_ns()
    try:
        await call(1)
    except Exception:
        return perf_counter_ns() - started
    raise AssertionError("this was to fail")


def one_second(runner: asyncio.Runner, competitors: Competitors) -> Row:
    """Measure when a limit of one second ends a call; concurrently, since the calls only wait."""

    async def all_competitors() -> list[float]:
        return await asyncio.gather(*[ended(c.in_a_second) for c in competitors.values()])

    taken = dict(zip(competitors, runner.run(all_competitors()), strict=True))
    took = taken["redouble"]
    problems = () if took < SECOND else (f"{took / SECOND:.3f} s, to end before 1 s",)
    timings = {name: Timing(time, time) for name, time in taken.items()}
    return Row("a limit of 1 s, attempts of 0.4 s, delays of 2 s", timings, 1.0, problems=problems)


@contextmanager
def one_processor() -> Generator[None]:
    """Pin this thread, and the threads started meanwhile, to one processor.

    Otherwise the time would be that of waking another processor, which is several times as long and varies by
    the same factor from sample to sample.
    """
    get: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    if get is None:
        yield
        return
    before = get(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
