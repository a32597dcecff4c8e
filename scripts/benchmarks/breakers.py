"""The cost of a closed breaker, of a bulkhead with free slots, and of a pipeline of both with a retry.

The hand-written breaker acquires a lock before and after the call; the hand-written bulkhead is a semaphore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from time import perf_counter_ns

from benchmarks.table_row import Row
from benchmarks.time_limits import one_processor
from benchmarks.timing import Effort, Sample, Timing, async_calls, calls, failing_calls, race
from benchmarks.workloads import AsyncCall, Call, Guards

MODULES = {
    "by hand": "handwritten_guards",
    "redouble": "with_redouble",
    "circuitbreaker": "with_circuitbreaker",
    "pybreaker": "with_pybreaker",
    "pyresilience": "with_pyresilience",
}
THREADS = 4


def breakers(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    competitors: dict[str, Guards] = {
        name: import_module(f"benchmarks.{module}").GUARDS for name, module in MODULES.items()
    }

    def timed(
        shape: Callable[[Guards], Call | None], sampled: Callable[[Call], Sample] = calls
    ) -> dict[str, Timing]:
        shapes = {name: shape(competitor) for name, competitor in competitors.items()}
        return race({name: sampled(call) for name, call in shapes.items() if call is not None}, effort)

    def awaited(shape: Callable[[Guards], AsyncCall | None]) -> dict[str, Timing]:
        shapes = {name: shape(competitor) for name, competitor in competitors.items()}
        with asyncio.Runner() as runner:
            samples = {name: async_calls(runner, call) for name, call in shapes.items() if call is not None}
            return race(samples, effort)

    row = partial(Row, about="guards")
    peers = {"circuitbreaker": 3, "pybreaker": 8}
    yield row("closed breaker, sync success", timed(lambda g: g.breaker), 0.5, faster_than=peers)
    yield row("closed breaker, async success", awaited(lambda g: g.abreaker), None)
    in_ratio = timed(lambda g: g.ratio)
    yield row("closed breaker by ratio, sync success", in_ratio, None, base="pyresilience")
    yield row("open breaker, a call rejected", timed(lambda g: g.opened, rejected_calls), 2.5)
    yield row("bulkhead with room, sync success", timed(lambda g: g.bulkhead), None)
    yield row("bulkhead with room, async success", awaited(lambda g: g.abulkhead), 1.0)
    with one_processor(), ThreadPoolExecutor(THREADS) as pool:
        crowded = timed(lambda g: g.contended, partial(crowd, pool))
        yield row(f"bulkhead of 2, {THREADS} threads at once, one processor", crowded, None)
    piped = timed(lambda g: g.pipeline)
    work = "pipeline of `Bulkhead`, `Retry` and `CircuitBreaker`, sync success"
    yield row(work, piped, 0.24, faster_than={"pyresilience": 5})


def rejected_calls(call: Call) -> Sample:
    """Sample calls that are rejected; an admitted call would raise a `ConnectionError`."""
    try:
        call(1)
    except ConnectionError:
        raise AssertionError("this was to be rejected") from None
    except Exception:
        return failing_calls(call, Exception)
    raise AssertionError("this was to fail")


def crowd(pool: ThreadPoolExecutor, call: Call) -> Sample:
    """Sample concurrent calls of several threads."""
    alone = calls(call)

    def sample(count: int) -> float:
        started = perf_counter_ns()
        list(pool.map(alone, [count] * THREADS))
        return (perf_counter_ns() - started) / (count * THREADS)

    return sample
