"""Metrics in memory: for tests, and for a page of your own. Nothing leaves the process.

>>> from redouble.instruments import memory
>>> with memory.instrument() as metrics:
...     pass  # calls
>>> metrics.counter("calls", name="fetch", ok="true")
0.0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from redouble._internal.locks import ForkSafe
from redouble._internal.validation import instance
from redouble._telemetry.bound_fields import Handle
from redouble._telemetry.observers import observing
from redouble.instruments._metric_definitions import METRICS, Metric
from redouble.instruments._metrics_recorder import METRIC_EVENTS, metrics_observer, read_gauge

__all__ = ["Metrics", "Summary", "instrument"]

Labels: TypeAlias = tuple[tuple[str, str], ...]
Key: TypeAlias = tuple[str, str, tuple[str, ...], Labels]  # metric, name, other schema labels, policy labels
T = TypeVar("T")

BY_NAME = {metric.name: metric for metric in METRICS}


class Summary(NamedTuple):
    """The values of a histogram: their number (``many``), sum (``total``), ``least`` and ``most``."""

    many: int
    total: float
    least: float
    most: float


class Metrics(ForkSafe, Handle):
    """The metrics recorded since `instrument` was called; readable also after ``remove()``."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[Key, float] = {}
        self._summaries: dict[Key, Summary] = {}
        self._observation = observing(metrics_observer(self._record), METRIC_EVENTS)

    def counter(self, metric: str, /, **labels: str) -> float:
        """Return a counter, added up over all the labels that are not given."""
        _check(metric, "counter", labels)
        return sum(self._select(self._counts, metric, labels), 0.0)

    def histogram(self, metric: str, /, **labels: str) -> Summary:
        """Return the summary of a histogram, over all the labels that are not given."""
        _check(metric, "histogram", labels)
        summaries = self._select(self._summaries, metric, labels)
        if not summaries:
            return Summary(0, 0.0, 0.0, 0.0)
        many, totals, least, most = zip(*summaries, strict=True)
        return Summary(sum(many), sum(totals), min(least), max(most))

    def gauge(self, metric: str, /, **labels: str) -> float:
        """Return the current value of a gauge, added up over all the labels that are not given."""
        wanted = _check(metric, "gauge", labels)
        gauges = read_gauge(wanted).items()
        shown: dict[Key, float] = {(metric, name, tuple(rest), ()): n for (name, *rest), n in gauges}
        return sum(self._select(shown, metric, labels), 0.0)

    def _select(self, recorded: Mapping[Key, T], metric: str, labels: Mapping[str, str]) -> list[T]:
        """Return the values of a metric, of all series that have these labels."""
        with self._lock:
            series = list(recorded.items())
        return [value for key, value in series if key[0] == metric and labels.items() <= set(_labels(key))]

    def series(self) -> dict[str, dict[Labels, float | Summary]]:
        """Return all counters and histograms, by metric and by labels."""
        with self._lock:
            recorded: dict[Key, float | Summary] = {**self._counts, **self._summaries}
        series: dict[str, dict[Labels, float | Summary]] = {}
        for key, value in recorded.items():
            series.setdefault(key[0], {})[_labels(key)] = value
        return series

    def remove(self) -> None:
        """Stop recording."""
        self._observation.remove()

    def _record(
        self, metric: Metric, amount: float, name: str, values: tuple[str, ...], labels: Mapping[str, str], /
    ) -> None:
        key = (metric.name, name, values, _policy_labels(metric, labels) if labels else ())
        with self._lock:
            if metric.kind == "counter":
                self._counts[key] = self._counts.get(key, 0.0) + amount
            else:
                many, total, least, most = self._summaries.get(key, (0, 0.0, amount, amount))
                self._summaries[key] = Summary(
                    many + 1, total + amount, min(least, amount), max(most, amount)
                )


def instrument() -> Metrics:
    """Record the metrics of all calls in memory, from now on."""
    return Metrics()


def _policy_labels(metric: Metric, labels: Mapping[str, str]) -> Labels:
    return tuple(pair for pair in labels.items() if pair[0] not in metric.labels)


def _labels(key: Key) -> Labels:
    metric, name, label_values, policy_labels = key
    return (*zip(BY_NAME[metric].labels, (name, *label_values), strict=True), *policy_labels)


def _check(name: str, kind: str, labels: Mapping[str, str]) -> Metric:
    instance(name, "metric", str, "the name of a metric, such as 'calls'")
    metric = BY_NAME.get(name)
    if metric is None or metric.kind != kind:
        known = ", ".join(metric.name for metric in METRICS if metric.kind == kind)
        raise ValueError(f"{name!r} is no {kind}: write one of {known}")
    for label, value in labels.items():
        instance(value, f"{name}: {label}", str, "a text, such as ok='true'")
    return metric
