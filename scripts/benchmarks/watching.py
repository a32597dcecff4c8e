"""What being watched costs a call that succeeds at once; and what it takes to load a configuration."""

from __future__ import annotations

import asyncio
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from time import perf_counter_ns

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from benchmarks import by_hand
from benchmarks.row import Row
from benchmarks.timing import Effort, Sample, Timing, async_calls, calls, race
from benchmarks.work import awork, work
from redouble import Retry, config, observe
from redouble.instruments import logging, memory, opentelemetry, prometheus
from redouble.types import Event

OFF, PARSING = "off", "`tomllib`"
MICROSECOND = 1000.0  # nanoseconds
POLICIES = 1000

row = partial(Row, about="watching")

policy = Retry(on=ConnectionError)
retried, aretried = policy(work), policy(awork)


def kept() -> AbstractContextManager[object]:
    """Listen to everything, and keep the last of it."""
    return observe(deque[Event](maxlen=1000).append)


def only_retries() -> AbstractContextManager[object]:
    """Listen to what goes wrong."""
    return observe(deque[Event](maxlen=1000).append, only=("retry", "give_up"))


def with_sdk() -> AbstractContextManager[object]:
    """Measure, with an SDK that keeps it in memory."""
    return opentelemetry.instrument(MeterProvider([InMemoryMetricReader()]))


WATCHERS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "observed for retries only": only_retries,
    "logged, DEBUG off": logging.instrument,
    "metrics in memory": memory.instrument,
    "Prometheus": lambda: prometheus.instrument(CollectorRegistry()),
    "OpenTelemetry with its SDK": with_sdk,
}


def watched(watch: Callable[[], AbstractContextManager[object]], sample: Sample) -> Sample:
    """Sample while somebody watches."""

    def sampled(count: int) -> float:
        with watch():
            return sample(count)

    return sampled


def watching(effort: Effort) -> Iterator[Row]:
    """Measure."""
    off = calls(retried)
    samples = {"redouble": watched(kept, off), OFF: off, "by hand": calls(by_hand.looped)}
    yield row("one listener in memory, sync success", race(samples, effort), 6.0)
    with asyncio.Runner() as runner:
        aoff = async_calls(runner, aretried)
        asamples = {"redouble": watched(kept, aoff), OFF: aoff}
        asamples["by hand"] = async_calls(runner, by_hand.alooped)
        yield row("one listener in memory, async success", race(asamples, effort), 6.0)
    taken = race({"redouble": watched(opentelemetry.instrument, off), OFF: off}, effort)
    added = taken["redouble"].best - taken[OFF].best
    problems = () if added <= MICROSECOND else (f"{added:.0f} ns more, to reach <= 1000 ns",)
    yield row("OpenTelemetry without an SDK, sync success", taken, None, base=OFF, problems=problems)
    for name, watch in WATCHERS.items():
        samples = {"redouble": watched(watch, off), OFF: off}
        yield row(f"{name}, sync success", race(samples, effort), None, base=OFF)
    yield loading(effort)


def loading(effort: Effort) -> Row:
    """Load a thousand policies, beside only parsing the file."""
    text = "".join(written(number) for number in range(POLICIES))

    def taken(load: Callable[[str], object]) -> float:
        started = perf_counter_ns()
        load(text)
        return float(perf_counter_ns() - started)

    def loaded(said: str) -> object:
        return config.from_mapping(tomllib.loads(said))

    rounds = max(3, effort.rounds // 10)
    both = {PARSING: [taken(tomllib.loads) for _ in range(rounds)]}
    both["redouble"] = [taken(loaded) for _ in range(rounds)]
    timings = {name: Timing(min(times), sorted(times)[len(times) // 2]) for name, times in both.items()}
    return row(f"loading {POLICIES:,} policies from TOML", timings, 10.0, base=PARSING)


def written(number: int) -> str:
    """Write one policy as a team would."""
    return f"""
[policies.service-{number}]
on = ["transient", "ConnectionError"]
attempts = {number % 5 + 1}
timeout = "{number % 30 + 1}s"
backoff = {{ type = "exponential", initial = "{number % 300 + 50}ms", maximum = "2s", jitter = "full" }}
labels = {{ team = "team-{number % 7}" }}
"""
