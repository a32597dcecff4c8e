"""Times calls: every round samples each competitor, in rotated order; the best and the median are kept.

Other programs can only add time, so the minimum over many short samples is the cost of the code itself;
and because the samples alternate, a slow second of the machine affects all competitors alike. The garbage
collector is off while a sample runs. The loop around the calls is part of every sample.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from statistics import median
from time import perf_counter_ns
from timeit import Timer
from unittest.mock import patch

from benchmarks.workloads import AsyncCall, Call

Sample = Callable[[int], float]  # number of calls -> nanoseconds per call


@dataclass(frozen=True)
class Timing:
    """The cost of one competitor, in nanoseconds (or bytes) per call."""

    best: float
    median: float


@dataclass(frozen=True)
class Effort:
    """The number and the length of measurements."""

    rounds: int
    sample: float  # seconds of one sample
    imports: int  # fresh interpreters per library
    asleep: int  # calls asleep at once
    in_flight: int  # calls under a limit at once
    budgeted: int  # calls under a budget, one after the other


THOROUGH = Effort(rounds=90, sample=0.005, imports=40, asleep=100_000, in_flight=10_000, budgeted=1_000_000)
QUICK = Effort(rounds=5, sample=0.001, imports=3, asleep=5_000, in_flight=1_000, budgeted=20_000)


def calls(call: Call) -> Sample:
    """Sample calls that return."""

    def sample(count: int) -> float:
        started = perf_counter_ns()
        for x in repeat(1, count):
            call(x)
        return (perf_counter_ns() - started) / count

    return sample


def failing_calls(call: Call, expected: type[Exception] = ConnectionError) -> Sample:
    """Sample calls that raise."""

    def sample(count: int) -> float:
        started = perf_counter_ns()
        for x in repeat(1, count):
            try:
                call(x)
            except expected:
                pass
            else:
                raise AssertionError("this was to fail")
        return (perf_counter_ns() - started) / count

    return sample


def statement(line: str, **names: object) -> Sample:
    """Sample a line of code with these names as globals, for competitors with different APIs."""
    timer = Timer(line, timer=perf_counter_ns, globals=names)
    return lambda count: timer.timeit(count) / count


def async_calls(runner: asyncio.Runner, call: AsyncCall) -> Sample:
    """Sample calls that are awaited one after the other in one task."""

    async def sample(count: int) -> float:
        started = perf_counter_ns()
        for x in repeat(1, count):
            await call(x)
        return (perf_counter_ns() - started) / count

    return lambda count: runner.run(sample(count))


def zero_sleeps_free() -> AbstractContextManager[object]:
    """Replace ``time.sleep`` by a no-op, for the rows without delays.

    Every other library calls ``time.sleep(0)`` there, which takes tens of microseconds on Linux. That is the
    system's time, not theirs. The hand-written loop and Redouble do not sleep at all.
    """

    def sleep(seconds: float) -> None:
        if seconds:
            raise AssertionError("there was to be no delay")

    return patch("time.sleep", sleep)


def race(samples: Mapping[str, Sample], effort: Effort) -> dict[str, Timing]:
    """Time all samples in alternation."""
    names = list(samples)
    counts = {name: _count(samples[name], effort.sample) for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(effort.rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            taken[name].append(_undisturbed(partial(samples[name], counts[name])))
    return {name: Timing(min(times), median(times)) for name, times in taken.items()}


def _undisturbed(measure: Callable[[], float]) -> float:
    gc.collect()
    gc.disable()
    try:
        return measure()
    finally:
        gc.enable()


def _count(sample: Sample, seconds: float) -> int:
    """Return the number of calls that fill a sample, once the code is warm."""
    sample(100)
    return max(10, int(seconds * 1e9 / sample(200)))
