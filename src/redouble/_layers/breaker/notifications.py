"""The log lines and events of the state changes of a circuit breaker."""

from __future__ import annotations

from collections.abc import Mapping

from redouble._internal.logger import log
from redouble._layers.breaker.circuit import StateChange
from redouble._telemetry.bound_fields import BOUND
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.observers import publish, watch

__all__ = ["dispatch"]


CHANGE_EVENTS: Mapping[str, What] = {
    "open": "circuit_opened",
    "half_open": "circuit_half_open",
    "closed": "circuit_closed",
    "isolated": "circuit_isolated",
    "rejected": "circuit_rejected",
}


def dispatch(change: StateChange, name: str, status: str, observer: Observer | None) -> None:
    """Log the first rejection and the recovery; emit the event to ``observer`` and to global observers."""
    if change.what == "rejected":
        log("%s; further rejections are counted, and not logged", status)
    elif change.what == "closed" and change.rejected:
        log("%s is closed again, after %d rejected calls", name, change.rejected, info=True)
    if observer is not None or watch.by_event[CHANGE_EVENTS[change.what]]:
        publish(_event(change, name), observer)


def _event(change: StateChange, name: str) -> Event:
    nothing = dict.fromkeys(
        ("attempt_elapsed", "error", "value", "verdict", "kind", "delay", "reason", "limit")
    )
    return Event(
        what=CHANGE_EVENTS[change.what],
        name=name,
        attempt=0,
        elapsed=change.lasted,
        hint=change.retry_after,
        labels={},
        rejected=change.rejected,
        bound=BOUND.get(),
        again=False,
        **nothing,
    )
