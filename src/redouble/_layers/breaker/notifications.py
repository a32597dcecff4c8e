"""What a circuit breaker tells of itself: outside its lock, in order, and one thing at a time."""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Callable, Mapping

from redouble._internal.logger import log
from redouble._layers.breaker.circuit import StateChange
from redouble._telemetry.binding import BOUND
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.observers import publish, watch

__all__ = ["ChangeDispatcher", "dispatch"]


WHATS: Mapping[str, What] = {
    "open": "circuit_opened",
    "half_open": "circuit_half_open",
    "closed": "circuit_closed",
    "isolated": "circuit_isolated",
    "rejected": "circuit_rejected",
}


class ChangeDispatcher:
    """Changes that wait to be told. Whoever comes first tells them all; what comes up meanwhile queues."""

    def __init__(self, tell: Callable[[StateChange], None]) -> None:
        self._tell = tell
        self._waiting: deque[StateChange] = deque()
        self._lock = RLock()
        self._telling = False

    def add(self, change: StateChange) -> None:
        """Take one in: under the lock of the breaker, so that they are in order."""
        self._waiting.append(change)

    def publish(self) -> None:
        """Tell what waits, unless somebody is at it; an observer that changes the breaker comes here too."""
        while self._waiting:
            mine = False
            try:
                with self._lock:
                    if self._telling:
                        return
                    mine = self._telling = True
                while self._waiting:
                    self._tell(self._waiting.popleft())
            finally:
                self._telling = self._telling and not mine


def dispatch(change: StateChange, name: str, says: str, own: Observer | None) -> None:
    """Log a change, if it matters to people, and tell the observers: the breaker's own, and all others."""
    if change.what == "rejected":
        log("%s; further rejections are counted, and not logged", says)
    elif change.what == "closed" and change.rejected:
        log("%s is closed again, after %d rejected calls", name, change.rejected, news=True)
    if own is not None or watch.listening[WHATS[change.what]]:
        publish(_event(change, name), own)


def _event(change: StateChange, name: str) -> Event:
    nothing = dict.fromkeys(
        ("attempt_elapsed", "error", "value", "verdict", "kind", "delay", "reason", "limit")
    )
    return Event(
        what=WHATS[change.what],
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
