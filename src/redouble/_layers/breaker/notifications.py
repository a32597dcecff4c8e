"""The messages, log lines and events of a circuit breaker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from redouble._internal.logger import log
from redouble._internal.validation import format_seconds
from redouble._layers.breaker.circuit import State, StateChange
from redouble._telemetry.bound_fields import BOUND
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.observers import publish, watch

__all__ = ["RejectionMessage", "dispatch", "new_message"]


DEFAULT_NAME = "the circuit breaker"
CHANGE_EVENTS: Mapping[str, What] = {
    "open": "circuit_opened",
    "half_open": "circuit_half_open",
    "closed": "circuit_closed",
    "isolated": "circuit_isolated",
    "rejected": "circuit_rejected",
}


class RejectionMessage(NamedTuple):
    """The message of a `CircuitOpen`. Its text is made when it is read: of most rejections it never is."""

    name: str | None
    state: State
    retry_after: float | None
    last_failure: str

    def __str__(self) -> str:
        name = self.name or DEFAULT_NAME
        if self.state == "isolated":
            return f"{name} is isolated, until close() is called"
        if self.state == "half_open":
            return f"{name} is half open, and probes are testing whether the service is back"
        return (
            f"{name} is open after {self.last_failure}, for another {format_seconds(self.retry_after or 0)}"
        )

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


# Creates a message from all fields in order: twice as fast as by a call of the class.
new_message: Callable[[type[RejectionMessage], tuple[object, ...]], RejectionMessage] = vars(tuple)["__new__"]


def dispatch(change: StateChange, name: str | None, last_failure: str, observer: Observer | None) -> None:
    """Log the first rejection and the recovery; emit the event to ``observer`` and to global observers."""
    name = name or DEFAULT_NAME
    if change.what == "rejected":
        message = RejectionMessage(name, change.state, change.retry_after, last_failure)
        log("%s; further rejections are counted, and not logged", str(message))
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
