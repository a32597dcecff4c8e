"""The schema on which dashboards rely: the names, labels and units of all metrics."""

from __future__ import annotations

import re

import pytest

from redouble import instruments
from redouble.instruments import METRICS, Metric, _metric_definitions, opentelemetry, prometheus
from redouble.instruments._metrics_recorder import READERS

# Entries may be added; existing ones never change.
STABLE = [
    ("calls", "counter", ("name", "ok"), "call"),
    ("attempts", "counter", ("name", "kind", "result"), "attempt"),
    ("retries", "counter", ("name", "reason"), "retry"),
    ("errors", "counter", ("name", "code"), "error"),
    ("given_up", "counter", ("name", "reason"), "call"),
    ("rejected", "counter", ("name", "by"), "call"),
    ("timeouts", "counter", ("name",), "call"),
    ("tokens", "counter", ("name", "type"), "token"),
    ("cost", "counter", ("name",), "currency"),
    ("hedges", "counter", ("name",), "attempt"),
    ("hedges_won", "counter", ("name",), "attempt"),
    ("fallbacks", "counter", ("name", "code"), "call"),
    ("coalesced", "counter", ("name",), "call"),
    ("call_duration", "histogram", ("name",), "s"),
    ("attempt_duration", "histogram", ("name",), "s"),
    ("delay", "histogram", ("name",), "s"),
    ("time_to_first_item", "histogram", ("name",), "s"),
    ("gate_wait", "histogram", ("name", "by"), "s"),
    ("budget_tokens", "gauge", ("name",), "retry"),
    ("budget_in_flight", "gauge", ("name",), "retry"),
    ("breaker_state", "gauge", ("name", "state"), "breaker"),
    ("bulkhead_in_use", "gauge", ("name",), "call"),
    ("bulkhead_queued", "gauge", ("name",), "call"),
    ("gate_limit", "gauge", ("name", "by"), "call"),
    ("gate_in_use", "gauge", ("name", "by"), "call"),
    ("gate_queued", "gauge", ("name", "by"), "call"),
    ("gate_class_in_use", "gauge", ("name", "by", "priority"), "call"),
    ("gate_class_queued", "gauge", ("name", "by", "priority"), "call"),
    ("gate_rate", "gauge", ("name", "by"), "call/s"),
    ("worker_abandoned", "gauge", ("name",), "attempt"),
    ("throttle_requests", "gauge", ("name",), "call"),
    ("throttle_accepts", "gauge", ("name",), "call"),
]
FEW_VALUES = {"name", "ok", "kind", "result", "reason", "code", "by", "state", "type", "priority"}


def test_the_metrics_are_the_stable_ones() -> None:
    assert [metric[:4] for metric in METRICS] == STABLE
    assert instruments.METRICS is METRICS


def test_metric_names_are_unique() -> None:
    for export in (prometheus.exported_name, opentelemetry.exported_name):
        assert len({export(metric) for metric in METRICS}) == len(METRICS)
    declared = [thing for thing in vars(_metric_definitions).values() if isinstance(thing, Metric)]
    assert declared == list(METRICS)


def test_every_gauge_has_a_reader() -> None:
    assert set(READERS) == {metric for metric in METRICS if metric.kind == "gauge"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_labels_have_few_values(metric: Metric) -> None:
    """No attempt number, argument, address or key is a label, because each value costs a series."""
    assert metric.labels[0] == "name"
    assert set(metric.labels) <= FEW_VALUES
    assert len(set(metric.labels)) == len(metric.labels)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_has_a_help_text(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
    assert re.fullmatch(r"[A-Z][^\n]+\.|[A-Z][^\n]+\.\.\.", metric.help)


def test_buckets_rise_from_one_millisecond_to_five_minutes() -> None:
    assert list(_metric_definitions.BUCKETS) == sorted(set(_metric_definitions.BUCKETS))
    assert (_metric_definitions.BUCKETS[0], _metric_definitions.BUCKETS[-1]) == (0.001, 300)
