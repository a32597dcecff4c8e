"""Metrics in memory: for tests, and for a page of your own. Nothing leaves the process.

>>> from redouble.instruments import memory
>>> with memory.instrument() as metrics:
...     pass  # calls
>>> metrics.counter("calls", name="fetch", ok="true")
0.0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from redouble._internal.locks import ForkSafe
from redouble._internal.validation import instance
from redouble._telemetry.bound_fields import Handle
from redouble._telemetry.observers import Observation, observing
from redouble.instruments._metric_definitions import METRICS, Metric
from redouble.instruments._metrics_recorder import METRIC_EVENTS, metrics_observer, read_gauge

__all__ = ["Metrics", "Summary", "instrument"]

Labels: TypeAlias = tuple[tuple[str, str], ...]
Key: TypeAlias = tuple[str, str, tuple[str, ...], Labels]  # metric, name, other schema labels, policy labels

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
        self._recorded: dict[Key, Any] = {}  # the value of a counter, or the fields of a `Summary`
        self._observation = Observation()

    def start(self) -> None:
        """Record from now on."""
        self._observation = observing(metrics_observer(self._record), METRIC_EVENTS)

    def counter(self, metric: str, /, **labels: str) -> float:
        """Return a counter, added up over all the labels that are not given."""
        return sum(self._select("counter", metric, labels), 0.0)

    def histogram(self, metric: str, /, **labels: str) -> Summary:
        """Return the summary of a histogram, over all the labels that are not given."""
        summaries = self._select("histogram", metric, labels)
        if not summaries:
            return Summary(0, 0.0, 0.0, 0.0)
        many, totals, least, most = zip(*summaries, strict=True)
        return Summary(sum(many), sum(totals), min(least), max(most))

    def gauge(self, metric: str, /, **labels: str) -> float:
        """Return the current value of a gauge, added up over all the labels that are not given."""
        return sum(self._select("gauge", metric, labels), 0.0)

    def _select(self, kind: str, name: str, labels: Mapping[str, str]) -> list[Any]:
        """Return the values of a metric of this kind, of all series that have these labels."""
        instance(name, "metric", str, "the name of a metric, such as 'calls'")
        metric = BY_NAME.get(name)
        if metric is None or metric.kind != kind:
            known = ", ".join(metric.name for metric in METRICS if metric.kind == kind)
            raise ValueError(f"{name!r} is no {kind}: write one of {known}")
        for label, value in labels.items():
            instance(value, f"{name}: {label}", str, "a text, such as ok='true'")
        series: Mapping[Labels, float | Summary]
        if kind == "gauge":
            series = {_labels(metric, values): value for values, value in read_gauge(metric).items()}
        else:
            series = self.series().get(name, {})
        return [value for own, value in series.items() if labels.items() <= set(own)]

    def series(self) -> dict[str, dict[Labels, float | Summary]]:
        """Return all counters and histograms, by metric and by labels."""
        with self._lock:
            recorded = list(self._recorded.items())
        series: dict[str, dict[Labels, float | Summary]] = {}
        for (metric, name, values, policy_labels), value in recorded:
            labels = (*_labels(BY_NAME[metric], (name, *values)), *policy_labels)
            series.setdefault(metric, {})[labels] = Summary(*value) if isinstance(value, tuple) else value
        return series

    def remove(self) -> None:
        """Stop recording."""
        self._observation.remove()

    def _record(
        self, metric: Metric, amount: float, name: str, values: tuple[str, ...], labels: Mapping[str, str], /
    ) -> None:
        others = tuple(pair for pair in labels.items() if pair[0] not in metric.labels) if labels else ()
        key = (metric.name, name, values, others)
        with self._lock:
            if metric.kind == "counter":
                self._recorded[key] = self._recorded.get(key, 0.0) + amount
            else:
                many, total, least, most = self._recorded.get(key, (0, 0.0, amount, amount))
                self._recorded[key] = (many + 1, total + amount, min(least, amount), max(most, amount))


def instrument() -> Metrics:
    """Record the metrics of all calls in memory, from now on."""
    metrics = Metrics()
    metrics.start()  # not in ``__init__``: after that a signal handler could raise, and lose the handle
    return metrics


def _labels(metric: Metric, label_values: tuple[str, ...]) -> Labels:
    return tuple(zip(metric.labels, label_values, strict=True))
