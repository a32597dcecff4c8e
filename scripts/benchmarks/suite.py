"""All rows of the benchmark: how each is measured, and Redouble's target in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module

from benchmarks.breakers import breakers
from benchmarks.budgets import budgets
from benchmarks.classification import classification
from benchmarks.config_loading import config_loading
from benchmarks.gates import gates
from benchmarks.grpc_calls import grpc_calls
from benchmarks.http import http
from benchmarks.imports import race_imports, unwanted
from benchmarks.llm_streams import llm_streams
from benchmarks.memory import grown_by
from benchmarks.observability import observability
from benchmarks.streams import streams
from benchmarks.table_row import Row
from benchmarks.time_limits import time_limits
from benchmarks.timing import (
    Effort,
    Sample,
    Timing,
    async_calls,
    calls,
    failing_calls,
    race,
    zero_sleeps_free,
)
from benchmarks.workloads import Call, Competitor

MODULES = {
    "by hand": "handwritten_retry",
    "redouble": "with_redouble",
    "tenacity": "with_tenacity",
    "stamina": "with_stamina",
    "backoff": "with_backoff",
    "pyresilience": "with_pyresilience",
    "redress": "with_redress",
}


Shape = Callable[[Competitor], Call | None]


def measure(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    competitors: dict[str, Competitor] = {
        name: import_module(f"benchmarks.{module}").COMPETITOR for name, module in MODULES.items()
    }

    def timed(shape: Shape, sampled: Callable[[Call], Sample] = calls) -> dict[str, Timing]:
        shapes = {name: shape(competitor) for name, competitor in competitors.items()}
        return race({name: sampled(call) for name, call in shapes.items() if call is not None}, effort)

    yield Row("sync success without time limits", timed(lambda c: c.unlimited), 1.0)
    peers = {"tenacity": 30, "stamina": 30}
    yield Row("sync success, defaults", timed(lambda c: c.defaults), 0.7, faster_than=peers)
    with asyncio.Runner() as runner:
        samples = {name: async_calls(runner, c.adefaults) for name, c in competitors.items()}
        yield Row("async success, defaults", race(samples, effort), 1.2)
    yield Row("`for`/`with` block, success", timed(lambda c: c.block), 3.5)
    yield Row("the same with `return` inside", timed(lambda c: c.returning_block), 3.5)
    with zero_sleeps_free():
        yield Row("two failures, then success, no delay", timed(lambda c: c.two_failures), 3.5)
        yield Row("exhausted after three", timed(lambda c: c.exhausted, failing_calls), 3.4)
    yield from streams(effort)
    yield from classification(effort)
    yield from time_limits(competitors, effort)
    yield from budgets(effort)
    yield from breakers(effort)
    yield from gates(effort)
    yield from observability(effort)
    yield config_loading(effort)
    yield from llm_streams(effort)
    yield from grpc_calls(effort)
    yield from http(effort)
    loaded = tuple(f"loads {name}" for name in unwanted())
    for work, decorate, most in (("`import`", False, 0.8), ("`import`, one function decorated", True, 0.8)):
        taken = race_imports(effort.imports, decorate=decorate)
        yield Row(work, taken, most, base="tenacity", problems=loaded)
    names = list(competitors)
    yield memory(f"{effort.asleep:,} calls asleep in backoff", "asleep", effort.asleep, names, 1.25)
    limiting = [name for name, competitor in competitors.items() if competitor.limited is not None]
    yield memory(f"{effort.in_flight:,} limited calls in flight", "limited", effort.in_flight, limiting, 1.0)


def memory(work: str, shape: str, count: int, names: list[str], most: float) -> Row:
    """Measure the memory of waiting calls."""
    taken = {name: grown_by(MODULES[name], shape, count) for name in names}
    cycles = taken["redouble"][1]
    return Row(
        f"{work}, memory per call",
        {name: Timing(size, size) for name, (size, _) in taken.items()},
        most,
        unit="bytes",
        problems=(f"{cycles} objects left in cycles",) if cycles else (),
    )
