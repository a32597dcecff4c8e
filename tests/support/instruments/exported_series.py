"""The series that each backend exports after calls of every kind, with their labels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from redouble import Bulkhead, CircuitBreaker, Retry, RetryBudget, Throttle, Timeout, Worker
from redouble._telemetry.observers import publish
from redouble.errors import AttemptTimeout, Rejected
from redouble.instruments import opentelemetry, prometheus
from redouble.testing import virtual_time
from redouble.types import Event
from tests.support.instruments.sample_events import USED, TwoClasses, emit_layer_events, limited_rate

__all__ = ["Instrument", "exported_by_opentelemetry", "exported_by_prometheus"]


class Instrument(NamedTuple):
    """A metric of OpenTelemetry: its unit, and the labels of its points."""

    unit: str
    labels: frozenset[str]


def _unreachable() -> None:
    raise ConnectionError("gone")


def _items() -> Iterator[int]:
    yield 1


def _make_calls() -> tuple[object, ...]:
    """Make calls of every kind, and return the objects whose gauges are exported while they exist."""
    budget, breaker = RetryBudget(name="shared"), CircuitBreaker(name="billing", failures=1)
    bulkhead = Bulkhead(1, wait=0, name="db")
    limits = limited_rate("crawl"), Throttle(name="search"), TwoClasses("shares")
    worker = Worker(limit=20, name="threads")
    capped = RetryBudget(max_in_flight=0.2, minimum=3, name="capped")
    policy = Retry(name="orders", attempts=2, budget=budget)
    with virtual_time():
        policy.run(_unreachable)
        list(policy(_items)())
        breaker.isolate()
        with suppress(Rejected):
            breaker.call(_unreachable)
        with suppress(AttemptTimeout):
            asyncio.run(Timeout(1).call(asyncio.sleep, 2))
    publish(Event("success", "chat", 1, 2.0, 2.0, usage=USED), None)
    emit_layer_events("region")
    return budget, breaker, bulkhead, limits, capped, worker


@cache
def exported_by_prometheus() -> dict[str, frozenset[str]]:
    """Return the labels of each series in the exposed text."""
    registry = CollectorRegistry()
    with prometheus.instrument(registry):
        gauged = _make_calls()
        text = generate_latest(registry).decode()
        del gauged
    series: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                series[sample.name] = frozenset(sample.labels)
    return series


@cache
def exported_by_opentelemetry() -> dict[str, Instrument]:
    """Return the series that a reader of the SDK receives."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with opentelemetry.instrument(provider):
        gauged = _make_calls()
        data = reader.get_metrics_data()
        del gauged
    provider.shutdown()
    assert data is not None
    found: dict[str, Instrument] = {}
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                labels = frozenset(key for point in metric.data.data_points for key in point.attributes or ())
                found[metric.name] = Instrument(metric.unit or "", labels)
    return found
