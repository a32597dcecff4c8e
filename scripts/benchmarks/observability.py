"""The cost of observers and instruments for a call that succeeds at the first attempt."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from benchmarks import handwritten_retry
from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample, async_calls, calls, race
from benchmarks.workloads import awork, work
from redouble import Retry, observe
from redouble.instruments import logging, memory, opentelemetry, prometheus
from redouble.types import Event

OFF = "off"
MICROSECOND = 1000.0  # nanoseconds

row = partial(Row, about="observability")

policy = Retry(on=ConnectionError)
retried, aretried = policy(work), policy(awork)


def all_events() -> AbstractContextManager[object]:
    """Observe all events, and keep the last ones."""
    return observe(deque[Event](maxlen=1000).append)


def only_retries() -> AbstractContextManager[object]:
    """Observe retries and give-ups only."""
    return observe(deque[Event](maxlen=1000).append, only=("retry", "give_up"))


def with_sdk() -> AbstractContextManager[object]:
    """Instrument with an SDK that keeps metrics in memory."""
    return opentelemetry.instrument(MeterProvider([InMemoryMetricReader()]))


INSTRUMENTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "observed for retries only": only_retries,
    "logged, DEBUG off": logging.instrument,
    "metrics in memory": memory.instrument,
    "Prometheus": lambda: prometheus.instrument(CollectorRegistry()),
    "OpenTelemetry with its SDK": with_sdk,
}


def observed(observer: Callable[[], AbstractContextManager[object]], sample: Sample) -> Sample:
    """Sample while an observer is active."""

    def sampled(count: int) -> float:
        with observer():
            return sample(count)

    return sampled


def observability(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    off = calls(retried)
    samples = {"redouble": observed(all_events, off), OFF: off, "by hand": calls(handwritten_retry.looped)}
    yield row("one listener in memory, sync success", race(samples, effort), 6.0)
    with asyncio.Runner() as runner:
        aoff = async_calls(runner, aretried)
        asamples = {"redouble": observed(all_events, aoff), OFF: aoff}
        asamples["by hand"] = async_calls(runner, handwritten_retry.alooped)
        yield row("one listener in memory, async success", race(asamples, effort), 6.0)
    taken = race({"redouble": observed(opentelemetry.instrument, off), OFF: off}, effort)
    added = taken["redouble"].best - taken[OFF].best
    problems = () if added <= MICROSECOND else (f"{added:.0f} ns more, to reach <= 1000 ns",)
    yield row("OpenTelemetry without an SDK, sync success", taken, None, base=OFF, problems=problems)
    for name, instrument in INSTRUMENTS.items():
        samples = {"redouble": observed(instrument, off), OFF: off}
        yield row(f"{name}, sync success", race(samples, effort), None, base=OFF)
