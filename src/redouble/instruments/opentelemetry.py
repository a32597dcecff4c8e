"""OpenTelemetry metrics, and events on the current span, by the API package alone.

The program chooses the SDK, if any; without one, calls that succeed cost next to nothing.

>>> from redouble.instruments import opentelemetry
>>> handle = opentelemetry.instrument()
>>> handle.remove()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from redouble._internal.extras import missing_extra
from redouble._internal.validation import instance
from redouble._redaction.rendering import one_line
from redouble._telemetry import observers
from redouble._telemetry.events import Event, What
from redouble._telemetry.observers import observing
from redouble.instruments._labels import cause_of, code_of, http_status, is_http
from redouble.instruments._metric_definitions import BUCKETS, GAUGES, METRICS, Metric
from redouble.instruments._metrics_recorder import METRIC_EVENTS, Record, metrics_observer, read_gauge

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise missing_extra("opentelemetry", error, "instruments.opentelemetry") from None

__all__ = ["instrument"]

OF_EVERY_CALL: Final[frozenset[What]] = frozenset({"success", "failure"})
SPAN_EVENTS: Final[tuple[What, ...]] = tuple(event for event in METRIC_EVENTS if event not in OF_EVERY_CALL)
NO_ERROR: Final[frozenset[What]] = frozenset({"waited", "hedged", "hedge_won", "coalesced"})
PREFIXES: Final = "call|attempt|budget|breaker|bulkhead|gate|worker|throttle"  # separated by a dot
RESEND_COUNT: Final = "http.request.resend_count"
INTERNAL: Any = getattr(metrics, "_internal", None)


def instrument(meter_provider: MeterProvider | None = None) -> observers.Observation:
    """Record metrics of all calls, and add span events for retries, from now on.

    meter_provider: the provider of the meter; by default the global one, even if it is set later.

    Attributes are those of the schema and the ``labels`` of the policy. The current span gets an event for
    each retry and each extra attempt of a hedge, and for a call that waits, is given up, rejected or cut, or
    whose outcome is replaced or shared, with the values bound by `redouble.bind`; and
    ``http.request.resend_count`` if an HTTP request is sent again.
    """
    wanted = "a MeterProvider, or None for the global one"
    instance(meter_provider, "meter_provider", MeterProvider | None, wanted)
    meter = metrics.get_meter("redouble", meter_provider=meter_provider)
    gauges = _gauges_of(meter_provider or metrics.get_meter_provider(), meter)
    enabled = None if meter_provider is not None else _has_sdk
    handle = observers.Observation()
    try:
        handle.ends.append(partial(gauges.handles.discard, handle))
        gauges.handles.add(handle)
        handle.ends.append(observing(metrics_observer(_recorder(meter)), METRIC_EVENTS, enabled).remove)
        handle.ends.append(observing(_add_span_event, SPAN_EVENTS).remove)
    except BaseException:
        handle.remove()  # the caller will have no handle
        raise
    return handle


def exported_name(metric: Metric) -> str:
    """Return the exported name of a metric."""
    return "redouble." + re.sub(f"^({PREFIXES})_", r"\1.", metric.name)


def _has_sdk() -> bool:
    """Return True if an SDK is set. The API's own function for this takes longer than a call."""
    if hasattr(INTERNAL, "_METER_PROVIDER"):
        return INTERNAL._METER_PROVIDER is not None
    return type(metrics.get_meter_provider()).__name__ != "_ProxyMeterProvider"


Add = Callable[[float, Mapping[str, AttributeValue]], None]


def _recorder(meter: Meter) -> Record:
    """Create the counters and histograms, and return the function that adds to them."""
    adders: dict[Metric, Add] = {}
    for metric in METRICS:
        name, about = exported_name(metric), metric.help
        if metric.kind == "counter":
            adders[metric] = meter.create_counter(name, f"{{{metric.unit}}}", about).add
        elif metric.kind == "histogram":
            adders[metric] = meter.create_histogram(
                name, metric.unit, about, explicit_bucket_boundaries_advisory=BUCKETS
            ).record

    def record(
        metric: Metric, amount: float, name: str, values: tuple[str, ...], labels: Mapping[str, str], /
    ) -> None:
        adders[metric](amount, {**labels, **dict(zip(metric.labels, (name, *values), strict=True))})

    return record


class Gauges:
    """Gauges that the SDK reads by callback, while at least one of their ``handles`` is open.

    Without any they export nothing: the API cannot unregister a gauge.
    """

    def __init__(self, meter: Meter) -> None:
        self.handles: set[observers.Observation] = set()
        for metric in GAUGES:
            read, unit = partial(self._read, metric), f"{{{metric.unit}}}"
            meter.create_observable_gauge(exported_name(metric), [read], unit, metric.help)

    def _read(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        gauges = read_gauge(metric) if self.handles else {}
        return [
            Observation(n, dict(zip(metric.labels, attributes, strict=True)))
            for attributes, n in gauges.items()
        ]


# The SDK creates a gauge of one name once, so a second `instrument()` reuses the first one's gauges.
_gauges: WeakKeyDictionary[MeterProvider, Gauges] = WeakKeyDictionary()
_early: list[Gauges] = []  # created before an SDK was set; the SDK then adopts them


def _gauges_of(provider: MeterProvider, meter: Meter) -> Gauges:
    is_global = provider is metrics.get_meter_provider()
    gauges = _gauges.get(provider)
    if gauges is None:
        gauges = _gauges[provider] = _early[0] if is_global and _early else Gauges(meter)
        if is_global and not _has_sdk():
            _early.append(gauges)
    return gauges


def _add_span_event(event: Event) -> None:
    span = trace.get_current_span()
    if not span.is_recording():
        return
    status = http_status(event)
    attributes: dict[str, Any] = {
        **{one_line(key): one_line(it) if isinstance(it, str) else it for key, it in event.bound.items()},
        "redouble.name": one_line(event.name),
        "redouble.attempt": event.attempt,
        "redouble.reason": cause_of(event),
        "redouble.kind": None if event.kind is None else str(event.kind),
        "redouble.delay": event.delay,
        "redouble.by": event.by,
        "http.response.status_code": status,
        "error.type": None if event.what in NO_ERROR else code_of(event),
    }
    span.add_event(
        f"redouble.{event.what}", {key: value for key, value in attributes.items() if value is not None}
    )
    if event.what == "retry" and is_http(event):
        span.set_attribute(RESEND_COUNT, event.attempt)
