"""Prometheus: the names and labels listed here, in a registry that is restored afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from redouble import TokenBucket
from redouble.instruments import METRICS, prometheus
from redouble.instruments.prometheus import instrument
from tests.support.fakes import Virtual
from tests.support.instruments.counts import policy
from tests.support.instruments.sample_events import everything
from tests.support.thread_switching import frequent_switches

# The contract with dashboards: each sample, its kind, and its labels.
CONTRACT: dict[str, tuple[str, set[str]]] = {
    "redouble_calls_total": ("counter", {"name", "ok"}),
    "redouble_attempts_total": ("counter", {"name", "kind", "result"}),
    "redouble_retries_total": ("counter", {"name", "reason"}),
    "redouble_errors_total": ("counter", {"name", "code"}),
    "redouble_given_up_total": ("counter", {"name", "reason"}),
    "redouble_rejected_total": ("counter", {"name", "by"}),
    "redouble_timeouts_total": ("counter", {"name"}),
    "redouble_tokens_total": ("counter", {"name", "type"}),
    "redouble_cost_total": ("counter", {"name"}),
    "redouble_hedges_total": ("counter", {"name"}),
    "redouble_hedges_won_total": ("counter", {"name"}),
    "redouble_fallbacks_total": ("counter", {"name", "code"}),
    "redouble_coalesced_total": ("counter", {"name"}),
    "redouble_call_duration_seconds_bucket": ("histogram", {"name", "le"}),
    "redouble_call_duration_seconds_count": ("histogram", {"name"}),
    "redouble_call_duration_seconds_sum": ("histogram", {"name"}),
    "redouble_attempt_duration_seconds_bucket": ("histogram", {"name", "le"}),
    "redouble_attempt_duration_seconds_count": ("histogram", {"name"}),
    "redouble_attempt_duration_seconds_sum": ("histogram", {"name"}),
    "redouble_delay_seconds_bucket": ("histogram", {"name", "le"}),
    "redouble_delay_seconds_count": ("histogram", {"name"}),
    "redouble_delay_seconds_sum": ("histogram", {"name"}),
    "redouble_time_to_first_item_seconds_bucket": ("histogram", {"name", "le"}),
    "redouble_time_to_first_item_seconds_count": ("histogram", {"name"}),
    "redouble_time_to_first_item_seconds_sum": ("histogram", {"name"}),
    "redouble_gate_wait_seconds_bucket": ("histogram", {"name", "by", "le"}),
    "redouble_gate_wait_seconds_count": ("histogram", {"name", "by"}),
    "redouble_gate_wait_seconds_sum": ("histogram", {"name", "by"}),
    "redouble_budget_tokens": ("gauge", {"name"}),
    "redouble_budget_in_flight": ("gauge", {"name"}),
    "redouble_breaker_state": ("gauge", {"name", "state"}),
    "redouble_bulkhead_in_use": ("gauge", {"name"}),
    "redouble_bulkhead_queued": ("gauge", {"name"}),
    "redouble_gate_limit": ("gauge", {"name", "by"}),
    "redouble_gate_in_use": ("gauge", {"name", "by"}),
    "redouble_gate_queued": ("gauge", {"name", "by"}),
    "redouble_gate_class_in_use": ("gauge", {"name", "by", "priority"}),
    "redouble_gate_class_queued": ("gauge", {"name", "by", "priority"}),
    "redouble_gate_rate": ("gauge", {"name", "by"}),
    "redouble_worker_abandoned": ("gauge", {"name"}),
    "redouble_throttle_requests": ("gauge", {"name"}),
    "redouble_throttle_accepts": ("gauge", {"name"}),
}


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    made = CollectorRegistry(auto_describe=True)  # like the default registry
    yield made
    assert list(made.collect()) == []


def exposed(registry: CollectorRegistry) -> dict[str, tuple[str, set[str]]]:
    """Return every exposed sample with its kind and labels."""
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                assert found.setdefault(sample.name, (family.type, set(sample.labels)))[0] == family.type
                assert found[sample.name][1] == set(sample.labels)
    return found


def value(registry: CollectorRegistry, sample: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"redouble_{sample}", labels)


def test_names_and_labels_are_those_of_the_contract(registry: CollectorRegistry) -> None:
    with instrument(registry), everything():
        assert exposed(registry) == CONTRACT


def test_every_metric_has_its_help_text(registry: CollectorRegistry) -> None:
    with instrument(registry), everything():
        families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    helps = {family.name: family.documentation for family in families if "_created" not in family.name}
    assert helps == {prometheus.exported_name(metric): metric.help for metric in METRICS}


def test_the_exported_numbers(registry: CollectorRegistry) -> None:
    with instrument(registry), everything("p "):
        assert value(registry, "calls_total", name="p fetch", ok="true") == 1
        assert value(registry, "calls_total", name="p save", ok="false") == 1
        assert value(registry, "attempts_total", name="p fetch", kind="unknown", result="failed") == 1
        assert value(registry, "attempts_total", name="p fetch", kind="none", result="ok") == 1
        assert value(registry, "retries_total", name="p fetch", reason="unknown") == 1
        assert value(registry, "errors_total", name="p save", code="ScriptedError") == 1
        assert value(registry, "given_up_total", name="p save", reason="attempts") == 1
        assert value(registry, "rejected_total", name="p mail", by="bulkhead") == 1
        assert value(registry, "call_duration_seconds_sum", name="p fetch") == 4
        assert value(registry, "call_duration_seconds_bucket", name="p fetch", le="5.0") == 1
        assert value(registry, "call_duration_seconds_bucket", name="p fetch", le="2.5") == 0
        assert value(registry, "attempt_duration_seconds_count", name="p fetch") == 2
        assert value(registry, "delay_seconds_sum", name="p fetch") == 1
        assert value(registry, "time_to_first_item_seconds_sum", name="p read") == 3
        assert value(registry, "time_to_first_item_seconds_sum", name="p fetch") is None
        assert value(registry, "budget_tokens", name="p bucket") == 10
        assert value(registry, "breaker_state", name="p pay", state="closed") == 1
        assert value(registry, "breaker_state", name="p pay", state="open") == 0
        assert value(registry, "bulkhead_in_use", name="p mail") == 1
        assert value(registry, "bulkhead_queued", name="p mail") == 0
        assert value(registry, "gate_limit", name="p mail", by="bulkhead") == 1
        assert value(registry, "gate_in_use", name="p mail", by="bulkhead") == 1
        assert value(registry, "gate_rate", name="p crawl", by="adaptive_rate") == 0.5
        shares = {"name": "p shares", "by": "two_classes"}
        assert value(registry, "gate_class_in_use", **shares, priority="batch") == 2
        assert value(registry, "gate_class_queued", **shares, priority="interactive") == 0
        assert value(registry, "budget_in_flight", name="p capped") == 0
        assert value(registry, "gate_queued", name="p crawl", by="adaptive_rate") == 0
        assert value(registry, "worker_abandoned", name="p threads") == 0
        assert value(registry, "throttle_requests", name="p search") == 0
        assert value(registry, "hedges_total", name="p region") == 1
        assert value(registry, "hedges_won_total", name="p region") == 1
        assert value(registry, "fallbacks_total", name="p region", code="ConnectionError") == 1
        assert value(registry, "fallbacks_total", name="p region", code="not_accepted") == 1
        assert value(registry, "coalesced_total", name="p region") == 1
        assert value(registry, "gate_wait_seconds_sum", name="p region", by="bulkhead") == 0.25


def test_requested_labels_of_policies_are_exported(registry: CollectorRegistry) -> None:
    """All metrics of policies have the added labels; a policy without one of them has an empty value."""
    with instrument(registry, labels=["team", "tier"]), everything():
        assert value(registry, "calls_total", name="fetch", ok="true", team="x", tier="1") == 1
        assert value(registry, "calls_total", name="save", ok="false", team="", tier="") == 1
        gauges = {name for name, (kind, _) in CONTRACT.items() if kind == "gauge"}
        for name, (_, labels) in exposed(registry).items():
            assert labels == CONTRACT[name][1] | (set() if name in gauges else {"team", "tier"})


def test_buckets_can_be_given(registry: CollectorRegistry) -> None:
    with instrument(registry, buckets=(1, 10)), everything():
        found = [
            value(registry, "call_duration_seconds_bucket", name="fetch", le=le) for le in ("1.0", "10.0")
        ]
    assert found == [0, 1]


def test_the_default_is_the_registry_of_the_client() -> None:
    with instrument():
        policy(name="by default").call(int)
        assert value(REGISTRY, "calls_total", name="by default", ok="true") == 1
    assert "redouble" not in generate_latest(REGISTRY).decode()


def test_instrumenting_a_registry_twice_raises(registry: CollectorRegistry) -> None:
    message = (
        "^this registry has metrics of redouble already: instrument.. once, and remove.. it before another"
    )
    with instrument(registry):
        before = [family.name for family in registry.collect()]
        with pytest.raises(ValueError, match=message):
            instrument(registry)
        policy().call(int)
        assert value(registry, "calls_total", name="work", ok="true") == 1
        assert [family.name for family in registry.collect()] == before


@pytest.mark.parametrize("taken", ["redouble_calls", "redouble_delay_seconds", "redouble_budget_tokens"])
def test_after_a_name_collision_nothing_is_registered(taken: str) -> None:
    registry = CollectorRegistry(auto_describe=True)
    theirs = Gauge(taken, "of somebody else", registry=registry)
    with pytest.raises(ValueError, match="this registry has metrics of redouble already"):
        instrument(registry)
    assert [family.name for family in registry.collect()] == [taken]
    registry.unregister(theirs)
    instrument(registry).remove()


def test_a_metric_that_the_program_has_unregistered_does_not_keep_the_others(
    registry: CollectorRegistry,
) -> None:
    handle = instrument(registry)
    registry.unregister(registry._names_to_collectors["redouble_delay_seconds"])
    with pytest.raises(KeyError):
        handle.remove()
    assert exposed(registry) == {}


def test_instrumentation_can_be_removed_and_added_again(registry: CollectorRegistry) -> None:
    """Metrics restart from zero; removing them twice does nothing."""
    for _ in range(2):
        handle = instrument(registry)
        policy().call(int)
        assert value(registry, "calls_total", name="work", ok="true") == 1
        handle.remove()
        handle()
        policy().call(int)
        assert exposed(registry) == {}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"labels": "team"}, TypeError, r"^labels='team': write a list of names, such as \['team'\]$"),
        ({"labels": 3}, TypeError, "^labels=3: write a list of names"),
        ({"labels": [3]}, TypeError, "^labels\\[0\\]=3: write a text, such as 'team'$"),
        ({"labels": ["name"]}, ValueError, "^labels: 'name' is already the name of a label: choose"),
        ({"labels": ["le"]}, ValueError, "^labels: 'le' is already the name"),
        ({"labels": ["state"]}, ValueError, "^labels: 'state' is already the name"),
        ({"labels": ["team", "team"]}, ValueError, "^labels: 'team' is already the name"),
        ({"labels": ["__team"]}, ValueError, "^labels: '__team' cannot be a label: write letters"),
        ({"labels": [""]}, ValueError, "^labels: '' cannot be a label"),
        ({"labels": ["a-b"]}, ValueError, "^labels: 'a-b' cannot be a label"),
        ({"buckets": (2, 1)}, ValueError, r"^buckets=\(2, 1\): write seconds in rising order"),
        ({"buckets": [1, 1]}, ValueError, "rising order"),
        ({"buckets": [float("nan")]}, ValueError, "rising order"),
        ({"buckets": []}, ValueError, "rising order"),
        ({"buckets": ["1"]}, TypeError, "rising order"),
        ({"buckets": [True]}, TypeError, "rising order"),
        ({"buckets": 3}, TypeError, "^buckets=3: write seconds in rising order"),
        ({"registry": None}, TypeError, "^registry=None: write a prometheus_client.CollectorRegistry$"),
        ({"registry": CollectorRegistry}, TypeError, "^registry=<class .*>: write a prometheus_client"),
    ],
)
def test_a_wrong_option_registers_nothing(
    registry: CollectorRegistry, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"registry": registry, **options}
    with pytest.raises(kind, match=message):
        instrument(**given)


def test_many_threads_count_exactly(registry: CollectorRegistry) -> None:
    def work(number: int) -> None:
        for _ in range(30):
            policy(name=f"thread {number % 2}").call(int)

    with instrument(registry), frequent_switches():
        workers = [threading.Thread(target=work, args=[number]) for number in range(8)]
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
        for name in ("thread 0", "thread 1"):
            assert value(registry, "calls_total", name=name, ok="true") == 120
            assert value(registry, "call_duration_seconds_count", name=name) == 120


# ---------------------------------------------------------------- gauges for many processes


@pytest.mark.parametrize("variable", ["PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"])
def test_in_multiprocess_mode_calls_set_the_gauges(
    registry: CollectorRegistry, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most once a second; the gauge of a freed object is 0."""
    clock = Virtual(100)
    monkeypatch.setattr(prometheus, "SYSTEM", clock)
    monkeypatch.setenv(variable, "")
    seen: list[float | None] = []

    def read_at(*moments: float) -> None:
        for moment in moments:
            clock.time = moment
            policy().call(int)
            seen.append(value(registry, "budget_tokens", name="many"))

    with instrument(registry):
        assert value(registry, "budget_tokens", name="many") is None
        bucket = TokenBucket(10, {None: 1}, name="many")
        read_at(100)
        bucket.spend()
        read_at(100.9, 101)
        del bucket
        read_at(101.5, 102)
    assert seen == [10, 10, 9, 9, 0]
