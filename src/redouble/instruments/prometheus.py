"""Prometheus metrics (``redouble_calls_total``, ...), by the official client, in one process or several.

>>> from prometheus_client import CollectorRegistry
>>> from redouble.instruments import prometheus
>>> handle = prometheus.instrument(registry=CollectorRegistry())
>>> handle.remove()

With ``PROMETHEUS_MULTIPROC_DIR`` set, metrics also work under servers with several processes, such as
gunicorn; gauges are then refreshed by the calls of each process, once a second at most, and added up over the
live processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, cast

from redouble._internal.extras import missing_extra
from redouble._internal.validation import instance, number
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.events import Event
from redouble._telemetry.observers import Observation, observing
from redouble.instruments._metric_definitions import BUCKETS, GAUGES, METRICS, Metric
from redouble.instruments._metrics_recorder import METRIC_EVENTS, metrics_observer, read_gauge

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise missing_extra("prometheus_client", error, "instruments.prometheus") from None

__all__ = ["instrument"]

NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
MULTIPROCESS = frozenset({"PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"})  # either variable
REFRESH_INTERVAL = 1.0  # seconds between refreshes of the gauges with several processes


def instrument(
    registry: CollectorRegistry = REGISTRY, *, labels: Sequence[str] = (), buckets: Sequence[float] = BUCKETS
) -> Observation:
    """Export metrics of all calls, from now on.

    registry: the registry to export to; by default the one that ``prometheus_client`` exposes.
    labels: names of ``labels`` of policies to add; for a policy without one of them its value is empty.
    buckets: the bucket boundaries of all histograms, in seconds.
    """
    instance(registry, "registry", CollectorRegistry, "a prometheus_client.CollectorRegistry")
    series, edges = Series(registry, _label_names(labels)), _bucket_edges(buckets)
    observer = metrics_observer(series.record)
    try:
        series.create("counter", Counter)
        series.create("histogram", partial(Histogram, buckets=edges))
        if MULTIPROCESS.isdisjoint(os.environ):
            series.register(GaugeCollector())
        else:
            series.create("gauge", partial(Gauge, multiprocess_mode="livesum"))
            observer = GaugeRefresher(observer, series.metrics)
    except Exception as error:
        series.registered.close()  # register all metrics or none
        raise ValueError(
            "this registry has metrics of redouble already: instrument() once, and remove() it before another"
        ) from error
    handle = Observation(series.registered.close)
    try:
        handle.ends.append(observing(observer, METRIC_EVENTS).remove)
    except BaseException:
        handle.remove()  # the caller will have no handle
        raise
    return handle


def exported_name(metric: Metric) -> str:
    """Return the exported name of a metric: with its unit, without the ``_total`` that the client adds."""
    return f"redouble_{metric.name}" + ("_seconds" if metric.unit == "s" else "")


class Series:
    """The metrics of ``prometheus_client``, and a cache of their children by label values.

    registered: removes the metrics from the registry when it is closed.
    """

    def __init__(self, registry: CollectorRegistry, extra_labels: tuple[str, ...]) -> None:
        self._registry, self._extra_labels = registry, extra_labels
        self.metrics: dict[Metric, Any] = {}
        self._children: dict[tuple[str, tuple[str, ...]], Callable[[float], object]] = {}
        self.registered = ExitStack()

    def create(self, kind: str, make: Callable[..., Any]) -> None:
        """Create and register the metrics of one kind: counters and histograms with the extra labels."""
        for metric in METRICS:
            if metric.kind == kind:
                names = metric.labels if kind == "gauge" else (*metric.labels, *self._extra_labels)
                collector = make(exported_name(metric), metric.help, names, registry=None)
                self.register(collector)
                self.metrics[metric] = collector

    def register(self, collector: Collector) -> None:
        """Register a collector, which the client reads at each scrape."""
        self._registry.register(collector)
        self.registered.callback(self._registry.unregister, collector)

    def record(
        self, metric: Metric, amount: float, name: str, values: tuple[str, ...], labels: Mapping[str, str], /
    ) -> None:
        """Add to a counter or observe a value in a histogram."""
        label_values = (name, *values)
        if self._extra_labels:
            label_values += tuple(labels.get(label, "") for label in self._extra_labels)
        add = self._children.get((metric.name, label_values))
        if add is None:
            child = self.metrics[metric].labels(*label_values)
            add = self._children[metric.name, label_values] = (
                child.inc if metric.kind == "counter" else child.observe
            )
        add(amount)


class GaugeCollector(Collector):
    """A collector of gauges, read at each scrape."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current values of the gauges."""
        for metric in GAUGES:
            family = GaugeMetricFamily(exported_name(metric), metric.help, labels=metric.labels)
            for label_values, value in read_gauge(metric).items():
                family.add_metric(label_values, value)
            yield family


class GaugeRefresher:
    """An observer that also refreshes the gauges, because another process may expose them."""

    def __init__(self, observer: Callable[[Event], None], metrics: Mapping[Metric, Any]) -> None:
        self._observer, self._metrics = observer, metrics
        self._next = SYSTEM.now()
        self._values = {metric: dict[tuple[str, ...], float]() for metric in GAUGES}

    def __call__(self, event: Event) -> None:
        self._observer(event)
        now = SYSTEM.now()
        if now >= self._next:
            self._next = now + REFRESH_INTERVAL
            for metric, before in self._values.items():
                self._values[metric] = {**dict.fromkeys(before, 0.0), **read_gauge(metric)}
                for label_values, value in self._values[metric].items():
                    self._metrics[metric].labels(*label_values).set(value)


def _bucket_edges(buckets: object) -> tuple[float, ...]:
    wanted = "seconds in rising order, such as [0.1, 1, 10]"
    instance(buckets, "buckets", list | tuple, wanted)
    given = cast("Sequence[object]", buckets)
    edges = tuple(number(edge, f"buckets[{place}]", 0, inf, wanted) for place, edge in enumerate(given))
    if not edges or not all(low < high for low, high in pairwise([0, *edges])):
        raise ValueError(f"buckets={buckets!r}: write {wanted}")
    return edges


def _label_names(labels: Sequence[str]) -> tuple[str, ...]:
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise TypeError(f"labels={labels!r}: write a list of names, such as ['team']")
    taken = {label for metric in METRICS for label in metric.labels} | {"le"}
    for place, label in enumerate(labels):
        instance(label, f"labels[{place}]", str, "a text, such as 'team'")
        if not NAME.fullmatch(label) or label.startswith("__"):
            raise ValueError(f"labels: {label!r} cannot be a label: write letters, digits and single _")
        if label in taken or label in labels[:place]:
            raise ValueError(f"labels: {label!r} is already the name of a label: choose another one")
    return tuple(labels)
