"""The mapping from events to metrics, and the readers of gauges. A logical call is counted once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from redouble._engine.worker import Worker
from redouble._layers.gate import Gate
from redouble._telemetry.emit import layer_kind
from redouble._telemetry.events import Event, What
from redouble._telemetry.registry import Section, registered
from redouble._telemetry.stats import snapshot_of
from redouble.instruments import _metric_definitions as schema
from redouble.instruments._labels import code_of, kind_of, label_value, reason_of
from redouble.instruments._metric_definitions import Metric

METRIC_EVENTS: Final[tuple[What, ...]] = (
    "success",
    "failure",
    "retry",
    "give_up",
    "rejected",
    "timeout",
    "waited",
    "hedged",
    "hedge_won",
    "fallback",
    "coalesced",
)
OK, FAILED = ("true",), ("false",)


# It adds to a counter or a histogram: the metric, the amount, the name of the policy, the values of the other
# labels of the metric, and the labels of the policy.
Record: TypeAlias = Callable[[Metric, float, str, tuple[str, ...], Mapping[str, str]], None]


def metrics_observer(record: Record) -> Callable[[Event], None]:
    """Return an observer that records the metrics of each event."""

    def record_event(event: Event) -> None:
        what, name, labels = event.what, event.name, event.labels
        if what == "success" or what == "give_up":  # noqa: PLR1714  a tuple is slower
            if not event.again:
                record(schema.CALLS, 1, name, OK if what == "success" else FAILED, labels)
                record(schema.CALL_DURATION, event.elapsed, name, (), labels)
            if event.first_item is not None:
                record(schema.FIRST_ITEM, event.first_item, name, (), labels)
            if event.usage:
                for used, amount in event.usage.items():
                    metric, values = USAGE[used]
                    record(metric, amount, name, values, labels)
        if what == "success":
            record(schema.ATTEMPTS, 1, name, ("none", "ok"), labels)
            record(schema.ATTEMPT_DURATION, event.attempt_elapsed or 0.0, name, (), labels)
        elif what == "failure":
            if event.again and event.attempt == 1:
                return  # counted as a success before its response body failed
            record(schema.ATTEMPTS, 1, name, (kind_of(event), "failed"), labels)
            record(schema.ATTEMPT_DURATION, event.attempt_elapsed or 0.0, name, (), labels)
        elif what == "retry":
            record(schema.RETRIES, 1, name, (reason_of(event),), labels)
            record(schema.DELAY, event.delay or 0.0, name, (), labels)
        elif what == "give_up":
            record(schema.ERRORS, 1, name, (code_of(event),), labels)
            record(schema.GIVEN_UP, 1, name, (str(event.reason),), labels)
        elif what == "rejected":
            record(schema.REJECTED, 1, name, (label_value(event.by or "gate"),), labels)
        elif what == "waited":
            record(schema.GATE_WAIT, event.delay or 0.0, name, (label_value(event.by or "gate"),), labels)
        elif what == "fallback":
            record(schema.FALLBACKS, 1, name, (code_of(event),), labels)
        elif what in LAYER_COUNTERS:
            record(LAYER_COUNTERS[what], 1, name, (), labels)

    return record_event


# The counters of events that have no other labels.
LAYER_COUNTERS: Mapping[What, Metric] = {
    "timeout": schema.TIMEOUTS,
    "hedged": schema.HEDGES,
    "hedge_won": schema.HEDGES_WON,
    "coalesced": schema.COALESCED,
}

# The metrics of what a call has used, by the names of `Event.usage`, with the values of their other labels.
USAGE: Mapping[str, tuple[Metric, tuple[str, ...]]] = {
    "input_tokens": (schema.TOKENS, ("input",)),
    "cached_tokens": (schema.TOKENS, ("cached",)),
    "output_tokens": (schema.TOKENS, ("output",)),
    "cost": (schema.COST, ()),
}


GaugeValues: TypeAlias = dict[tuple[str, ...], float]


Snapshot: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Mapping[tuple[str, ...], float]
Read: TypeAlias = Callable[[Snapshot, object], Values]  # from the snapshot of an object, and the object


def read_gauge(metric: Metric) -> GaugeValues:
    """Return the current values of a gauge by label values; objects of one name are added up."""
    sections, read = READERS[metric]
    totals: GaugeValues = {}
    for section in sections:
        for name, thing in registered(section):
            try:
                values = read(snapshot_of(thing, section), thing)
            except Exception:  # noqa: S112  a user's subclass raised: skip it and read the others
                continue
            for label_values, value in values.items():
                totals[name, *label_values] = totals.get((name, *label_values), 0.0) + value
    return totals


def _states(snapshot: Snapshot, _: object) -> Values:
    return {(state,): float(snapshot["state"] == state) for state in schema.STATES}


def _tokens(snapshot: Snapshot, _: object) -> Values:
    return {(): float(snapshot["tokens"] if "tokens" in snapshot else snapshot["available"])}


def _value(key: str) -> Read:
    """Return a reader of one value, of the objects whose snapshot has it."""

    def read(snapshot: Snapshot, _: object) -> Values:
        return {} if snapshot.get(key) is None else {(): float(snapshot[key])}

    return read


def _of_gate(key: str) -> Read:
    """Return a reader of one value of gates and workers; the type is the label ``by``."""

    def read(snapshot: Snapshot, thing: object) -> Values:
        if snapshot.get(key) is None or not isinstance(thing, Gate | Worker):
            return {}  # such as the rate of a `Chaos`, which is a share
        return {(label_value(layer_kind(thing)),): float(snapshot[key])}

    return read


def _by_class(key: str) -> Read:
    """Return a reader of the values of each class of calls, such as ``in_use.batch``."""

    def read(snapshot: Snapshot, thing: object) -> Values:
        kind = label_value(layer_kind(thing))
        named = {
            name.partition(".")[2]: value for name, value in snapshot.items() if name.startswith(f"{key}.")
        }
        return {(kind, label_value(priority)): float(value) for priority, value in named.items()}

    return read


GATES: Final[tuple[Section, ...]] = ("bulkheads", "limits", "layers")
READERS: Mapping[Metric, tuple[tuple[Section, ...], Read]] = {
    schema.BUDGET_TOKENS: (("budgets",), _tokens),
    schema.BUDGET_IN_FLIGHT: (("budgets",), _value("retries_in_flight")),
    schema.BREAKER_STATE: (("breakers",), _states),
    schema.BULKHEAD_IN_USE: (("bulkheads",), _value("in_use")),
    schema.BULKHEAD_QUEUED: (("bulkheads",), _value("queued")),
    schema.GATE_LIMIT: (GATES, _of_gate("limit")),
    schema.GATE_IN_USE: (GATES, _of_gate("in_use")),
    schema.GATE_QUEUED: (GATES, _of_gate("queued")),
    schema.GATE_CLASS_IN_USE: (GATES, _by_class("in_use")),
    schema.GATE_CLASS_QUEUED: (GATES, _by_class("queued")),
    schema.GATE_RATE: (GATES, _of_gate("rate")),
    schema.WORKER_ABANDONED: (("limits",), _value("abandoned")),
    schema.THROTTLE_REQUESTS: (("limits",), _value("requests")),
    schema.THROTTLE_ACCEPTS: (("limits",), _value("accepts")),
}
