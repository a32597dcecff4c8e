"""Delivery of the state changes of a circuit breaker: outside its lock, in order, one at a time."""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Callable, Mapping

from redouble._internal.logger import log
from redouble._layers.breaker.circuit import StateChange
from redouble._telemetry.bound_fields import BOUND
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.observers import publish, watch

__all__ = ["ChangeDispatcher", "dispatch"]


CHANGE_EVENTS: Mapping[str, What] = {
    "open": "circuit_opened",
    "half_open": "circuit_half_open",
    "closed": "circuit_closed",
    "isolated": "circuit_isolated",
    "rejected": "circuit_rejected",
}


class ChangeDispatcher:
    """A queue of state changes. One thread at a time delivers all that are pending."""

    def __init__(self, deliver: Callable[[StateChange], None]) -> None:
        self._deliver = deliver
        self._pending: deque[StateChange] = deque()
        self._lock = RLock()
        self._delivering = False

    def add(self, change: StateChange) -> None:
        """Queue a change. The breaker calls it under its lock, which keeps the order."""
        self._pending.append(change)

    def publish(self) -> None:
        """Deliver the pending changes, unless another call does so: an observer may change the breaker."""
        while self._pending:
            mine = False
            try:
                with self._lock:
                    if self._delivering:
                        return
                    mine = self._delivering = True
                while self._pending:
                    self._deliver(self._pending.popleft())
            finally:
                self._delivering = self._delivering and not mine


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
