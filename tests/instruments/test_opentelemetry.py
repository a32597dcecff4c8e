"""OpenTelemetry's metrics with a real SDK: names, units and attributes are those listed here."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from redouble import TokenBucket
from redouble.instruments import _metric_definitions, opentelemetry
from redouble.instruments.opentelemetry import instrument
from tests.support.fakes import Boom
from tests.support.instruments.counts import created_events, policy
from tests.support.instruments.sample_events import everything

# The contract with dashboards: each metric, its kind, its unit and its attributes.
CONTRACT = {
    "redouble.calls": ("Sum", "{call}", {"name", "ok"}),
    "redouble.attempts": ("Sum", "{attempt}", {"name", "kind", "result"}),
    "redouble.retries": ("Sum", "{retry}", {"name", "reason"}),
    "redouble.errors": ("Sum", "{error}", {"name", "code"}),
    "redouble.given_up": ("Sum", "{call}", {"name", "reason"}),
    "redouble.rejected": ("Sum", "{call}", {"name", "by"}),
    "redouble.timeouts": ("Sum", "{call}", {"name"}),
    "redouble.tokens": ("Sum", "{token}", {"name", "type"}),
    "redouble.cost": ("Sum", "{currency}", {"name"}),
    "redouble.hedges": ("Sum", "{attempt}", {"name"}),
    "redouble.hedges_won": ("Sum", "{attempt}", {"name"}),
    "redouble.fallbacks": ("Sum", "{call}", {"name", "code"}),
    "redouble.coalesced": ("Sum", "{call}", {"name"}),
    "redouble.call.duration": ("Histogram", "s", {"name"}),
    "redouble.attempt.duration": ("Histogram", "s", {"name"}),
    "redouble.delay": ("Histogram", "s", {"name"}),
    "redouble.time_to_first_item": ("Histogram", "s", {"name"}),
    "redouble.gate.wait": ("Histogram", "s", {"name", "by"}),
    "redouble.budget.tokens": ("Gauge", "{retry}", {"name"}),
    "redouble.budget.in_flight": ("Gauge", "{retry}", {"name"}),
    "redouble.breaker.state": ("Gauge", "{breaker}", {"name", "state"}),
    "redouble.bulkhead.in_use": ("Gauge", "{call}", {"name"}),
    "redouble.bulkhead.queued": ("Gauge", "{call}", {"name"}),
    "redouble.gate.limit": ("Gauge", "{call}", {"name", "by"}),
    "redouble.gate.in_use": ("Gauge", "{call}", {"name", "by"}),
    "redouble.gate.queued": ("Gauge", "{call}", {"name", "by"}),
    "redouble.gate.class_in_use": ("Gauge", "{call}", {"name", "by", "priority"}),
    "redouble.gate.class_queued": ("Gauge", "{call}", {"name", "by", "priority"}),
    "redouble.gate.rate": ("Gauge", "{call/s}", {"name", "by"}),
    "redouble.worker.abandoned": ("Gauge", "{attempt}", {"name"}),
    "redouble.throttle.requests": ("Gauge", "{call}", {"name"}),
    "redouble.throttle.accepts": ("Gauge", "{call}", {"name"}),
}


class Meters:
    """A real SDK with its own provider."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def metrics(self) -> dict[str, Any]:
        """Return every metric that is exported, by its name."""
        data = self._reader.get_metrics_data()
        found: dict[str, Any] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "redouble"
                for metric in scope.metrics:
                    assert metric.name not in found
                    found[metric.name] = metric
        return found

    def value(self, metric: str, **labels: str) -> Any:
        """Return the point that has exactly these attributes, or its value."""
        found = self.metrics()
        if f"redouble.{metric}" not in found:
            return None
        for point in found[f"redouble.{metric}"].data.data_points:
            if dict(point.attributes) == labels:
                return getattr(point, "value", point)
        return None


@pytest.fixture
def meters() -> Iterator[Meters]:
    made = Meters()
    yield made
    made.provider.shutdown()


def test_names_units_and_attributes_are_those_of_the_contract(meters: Meters) -> None:
    """Apart from the labels of policies, which are added."""
    with instrument(meters.provider), everything():
        found = meters.metrics()
    exported = {
        name: (
            type(metric.data).__name__,
            metric.unit,
            {key for point in metric.data.data_points for key in point.attributes} - {"team", "tier"},
        )
        for name, metric in found.items()
    }
    assert exported == CONTRACT
    helps = {opentelemetry.exported_name(metric): metric.help for metric in _metric_definitions.METRICS}
    assert {name: metric.description for name, metric in found.items()} == helps


def test_the_exported_numbers(meters: Meters) -> None:
    team = {"team": "x", "tier": "1"}
    with instrument(meters.provider), everything("o "):
        assert meters.value("calls", name="o fetch", ok="true", **team) == 1
        assert meters.value("calls", name="o save", ok="false") == 1
        assert meters.value("attempts", name="o fetch", kind="unknown", result="failed", **team) == 1
        assert meters.value("attempts", name="o fetch", kind="none", result="ok", **team) == 1
        assert meters.value("retries", name="o fetch", reason="unknown", **team) == 1
        assert meters.value("errors", name="o save", code="ScriptedError") == 1
        assert meters.value("given_up", name="o save", reason="attempts") == 1
        assert meters.value("rejected", name="o mail", by="bulkhead") == 1
        durations = meters.value("call.duration", name="o fetch", **team)
        assert (durations.count, durations.sum) == (1, 4)
        assert durations.explicit_bounds == _metric_definitions.BUCKETS
        attempts = meters.value("attempt.duration", name="o fetch", **team)
        assert (attempts.count, attempts.sum, attempts.min, attempts.max) == (2, 3, 1, 2)
        assert meters.value("delay", name="o fetch", **team).sum == 1
        assert meters.value("time_to_first_item", name="o read").sum == 3
        assert meters.value("time_to_first_item", name="o fetch", **team) is None
        assert meters.value("budget.tokens", name="o bucket") == 10
        assert meters.value("breaker.state", name="o pay", state="closed") == 1
        assert meters.value("breaker.state", name="o pay", state="open") == 0
        assert meters.value("bulkhead.in_use", name="o mail") == 1
        assert meters.value("bulkhead.queued", name="o mail") == 0
        assert meters.value("gate.limit", name="o mail", by="bulkhead") == 1
        assert meters.value("gate.rate", name="o crawl", by="adaptive_rate") == 0.5
        shares = {"name": "o shares", "by": "two_classes"}
        assert meters.value("gate.class_in_use", **shares, priority="batch") == 2
        assert meters.value("budget.in_flight", name="o capped") == 0
        assert meters.value("worker.abandoned", name="o threads") == 0
        assert meters.value("throttle.requests", name="o search") == 0
        assert meters.value("hedges", name="o region") == meters.value("hedges_won", name="o region") == 1
        assert meters.value("fallbacks", name="o region", code="ConnectionError") == 1
        assert meters.value("fallbacks", name="o region", code="not_accepted") == 1
        assert meters.value("coalesced", name="o region") == 1
        assert meters.value("gate.wait", name="o region", by="bulkhead").sum == 0.25


def test_labels_of_a_policy_never_override_the_schema(meters: Meters) -> None:
    with instrument(meters.provider):
        policy(labels={"name": "mine", "ok": "mine", "team": "x"}).call(int)
    assert meters.value("calls", name="work", ok="true", team="x") == 1


def test_instrumentation_can_be_removed_and_added_again(meters: Meters) -> None:
    """In between nothing is counted, and no gauge is exported."""
    bucket = TokenBucket(3, name="again")
    for times in (1, 2):
        handle = instrument(meters.provider)
        policy().call(int)
        assert meters.value("calls", name="work", ok="true") == times
        assert meters.value("budget.tokens", name="again") == 3
        handle.remove()
        handle()
        policy().call(int)
        assert meters.value("calls", name="work", ok="true") == times
        assert meters.value("budget.tokens", name="again") is None
    assert bucket.capacity == 3


def test_gauges_are_exported_while_a_handle_is_open(meters: Meters) -> None:
    bucket = TokenBucket(3, name="both")
    with instrument(meters.provider):
        instrument(meters.provider).remove()
        assert meters.value("budget.tokens", name="both") == 3
    assert meters.value("budget.tokens", name="both") is None
    assert bucket.capacity == 3


def test_providers_count_separately(meters: Meters) -> None:
    other = Meters()
    with instrument(meters.provider):
        policy().call(int)
        with instrument(other.provider):
            policy().call(int)
    labels = {"name": "work", "ok": "true"}
    assert (meters.value("calls", **labels), other.value("calls", **labels)) == (2, 1)
    other.provider.shutdown()


def test_a_provider_is_not_kept_alive() -> None:
    gc.collect()  # providers of other tests
    before = len(opentelemetry._gauges)
    other = Meters()
    instrument(other.provider).remove()
    assert len(opentelemetry._gauges) == before + 1
    other.provider.shutdown()
    del other
    gc.collect()
    assert len(opentelemetry._gauges) == before


@pytest.mark.parametrize("wrong", [3, "global", MeterProvider, object()])
def test_a_wrong_provider_raises(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"meter_provider=.*: write a MeterProvider, or None for the global one"
    ):
        instrument(wrong)


# ------------------------------------------------------------------------- without an SDK


def nothing() -> None: ...


def lose() -> None:
    raise Boom


@pytest.mark.parametrize("internal", ["known", "changed"])
def test_without_an_sdk_successful_calls_emit_no_event(
    internal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failing calls do; there is no span, and nothing raises."""
    if internal == "changed":
        monkeypatch.setattr(opentelemetry, "INTERNAL", None)

    with instrument(), created_events() as made:
        policy()(nothing)()
        policy().call(nothing)
        assert made == []
        assert not policy(attempts=2).run(lose).ok
    assert made == ["failure", "retry", "failure", "give_up"]
