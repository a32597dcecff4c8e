"""What a limit on time costs, and whether it holds.

By hand, a limit is an `asyncio.timeout`, and a thread is a call of ``submit(...).result()``. Of the other
libraries those are shown that can cut what runs; in the row about one second all are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter_ns

from benchmarks.row import Row
from benchmarks.timing import Effort, Sample, Timing, async_calls, calls, race
from benchmarks.work import AsyncCall, Competitor, awork, crowded, endless

Competitors = Mapping[str, Competitor]

SECOND = 1_000_000_000
SHORT = 0.02  # seconds: a limit to wait for


def limits(competitors: Competitors, effort: Effort) -> Iterator[Row]:
    """Measure."""
    with asyncio.Runner() as runner:
        ways = limited(competitors, awork, 30)
        samples = {name: async_calls(runner, call) for name, call in ways.items()}
        yield Row("async success within a limit of 30 s", race(samples, effort), 0.35)
        yield in_flight(runner, competitors, effort)
        yield overshoot(runner, competitors, effort)
        yield one_second(runner, competitors)
    with one_processor():
        threads = {name: calls(c.on_thread) for name, c in competitors.items() if c.on_thread is not None}
        yield Row("sync success on a warm thread, one processor", race(threads, effort), 0.85)


def fewer(effort: Effort, times: int) -> Effort:
    """Go fewer rounds, where each takes long."""
    return replace(effort, rounds=max(5, effort.rounds // times))


def limited(competitors: Competitors, fn: AsyncCall, seconds: float) -> dict[str, AsyncCall]:
    """Return the same function, limited by everyone who can."""
    return {name: c.limited(fn, seconds) for name, c in competitors.items() if c.limited is not None}


def in_flight(runner: asyncio.Runner, competitors: Competitors, effort: Effort) -> Row:
    """Measure what limits cost while many are in force: the tasks' own time is subtracted.

    By hand that is a bare `asyncio.timeout`, without the loop.
    """
    count = effort.in_flight
    ways = {**limited(competitors, crowded, 30), "by hand": bare, "no limit": crowded}
    samples = {name: together(runner, call, count) for name, call in ways.items()}
    taken = race(samples, fewer(effort, 9))
    tasks = taken.pop("no limit")
    added = {name: Timing(t.best - tasks.best, t.median - tasks.median) for name, t in taken.items()}
    return Row(f"{count:,} calls in flight, each limited: what that adds per call", added, 0.6)


async def bare(x: int) -> int:
    """Limit it, and nothing else."""
    async with asyncio.timeout(30):
        return await crowded(x)


def together(runner: asyncio.Runner, call: AsyncCall, in_flight: int) -> Sample:
    """Sample calls in a task each, none of which ends before all have begun."""

    async def sample() -> float:
        started = perf_counter_ns()
        await asyncio.gather(*[call(x) for x in range(in_flight)])
        await asyncio.sleep(0)  # the loop clears up what has been cancelled
        return (perf_counter_ns() - started) / in_flight

    return lambda _: runner.run(sample())


def overshoot(runner: asyncio.Runner, competitors: Competitors, effort: Effort) -> Row:
    """Measure how late limits are, when nothing else is going on."""
    ways = limited(competitors, endless, SHORT)
    taken = race({name: lateness(runner, call) for name, call in ways.items()}, fewer(effort, 3))
    late = taken["redouble"].median
    problems = () if late <= 5e6 else (f"{late / 1e6:.2f} ms, to reach <= 5 ms",)
    middle = {name: Timing(t.median, t.median) for name, t in taken.items()}
    return Row("overshoot of an async limit, the median", middle, 3.0, problems=problems)


def lateness(runner: asyncio.Runner, call: AsyncCall) -> Sample:
    """Sample one call that is cut."""
    return lambda _: runner.run(ended(call)) - SHORT * SECOND


async def ended(call: AsyncCall) -> float:
    """Return how long a call takes to fail."""
    started = perf_counter_ns()
    try:
        await call(1)
    except Exception:
        return perf_counter_ns() - started
    raise AssertionError("this was to fail")


def one_second(runner: asyncio.Runner, competitors: Competitors) -> Row:
    """Measure how long one second is; all at the same time, as they do nothing but wait."""

    async def everybody() -> list[float]:
        return await asyncio.gather(*[ended(c.in_a_second) for c in competitors.values()])

    taken = dict(zip(competitors, runner.run(everybody()), strict=True))
    took = taken["redouble"]
    problems = () if took < SECOND else (f"{took / SECOND:.3f} s, to end before 1 s",)
    timings = {name: Timing(time, time) for name, time in taken.items()}
    return Row("a limit of 1 s, attempts of 0.4 s, delays of 2 s", timings, 1.0, problems=problems)


@contextmanager
def one_processor() -> Generator[None]:
    """Stay on one processor, with the threads begun meanwhile.

    Else the time is that of waking another processor, which is several times as long, and differs by the
    same factor from one sample to the next.
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
