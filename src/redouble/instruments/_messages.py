"""The log line of an event: its level, message and fields. It never contains an argument or a result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from redouble._engine.run_results import OUTCOMES
from redouble._internal.validation import format_seconds
from redouble._redaction.rendering import described, one_line
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.observers import Observation, observing
from redouble.errors import Reason
from redouble.instruments._labels import cause_of, http_status, reason_of

INFO_EVENTS: Final[tuple[What, ...]] = (
    "retry",
    "give_up",
    "circuit_opened",
    "circuit_half_open",
    "circuit_closed",
    "circuit_isolated",
    "circuit_disabled",
    "circuit_metrics_only",
    "circuit_exceeded",
)
# Logged only if DEBUG is enabled.
DEBUG_EVENTS: Final[tuple[What, ...]] = ("success", "failure", "rejected", "timeout")

# The attributes of a LogRecord.
RECORD_ATTRIBUTES = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})

LEVELS: Mapping[What, int] = {
    **dict.fromkeys(INFO_EVENTS, logging.INFO),
    **dict.fromkeys(DEBUG_EVENTS, logging.DEBUG),
    "give_up": logging.WARNING,
}
# Other events come before a decision.
DECISIONS: Mapping[What, str] = {"success": "accept", "retry": "retry", "give_up": "stop"}


def log_events(observer: Observer, debug_enabled: Callable[[], bool]) -> Observation:
    """Pass the events to an observer that logs them; those of level DEBUG only while it is enabled."""
    handle = Observation()
    try:
        handle.ends.append(observing(observer, INFO_EVENTS).remove)
        handle.ends.append(observing(observer, DEBUG_EVENTS, debug_enabled).remove)
    except BaseException:
        handle.remove()  # the caller will have no handle
        raise
    return handle


def level_of(event: Event) -> int:
    """Return the log level; DEBUG if the first error is not retryable, because its caller handles it."""
    if event.what == "give_up" and event.reason is Reason.stopped and event.attempt == 1:
        return logging.DEBUG
    return LEVELS[event.what]


def line(event: Event, taken: Collection[str]) -> tuple[str, dict[str, object]]:
    """Return the message of an event, without a line break, and its fields.

    taken: the names that the logger uses itself; bound fields with these names are renamed.
    """
    fields: dict[str, object] = {
        "policy": one_line(event.name),
        "attempt": event.attempt,
        "delay": event.delay,
        "reason": cause_of(event) or event.by,
        "kind": None if event.kind is None else str(event.kind),
        "http_status": http_status(event),
        "decision": DECISIONS.get(event.what),
        "error": None if event.error is None else one_line(type(event.error).__name__),
        "elapsed": round(event.elapsed, 6),
        "labels": {one_line(key): one_line(value) for key, value in event.labels.items()},
    }
    for key, value in event.bound.items():
        free = one_line(key)
        while free in fields or free in taken:
            free = f"bound_{free}"
        fields[free] = one_line(value) if isinstance(value, str) else value
    return one_line(f"{event.name}: {_message(event)}"), fields


def _message(event: Event) -> str:
    what, took = event.what, format_seconds(event.attempt_elapsed or 0.0)
    if what == "success":
        return f"attempt {event.attempt} succeeded in {took}"
    if what == "failure":
        return f"attempt {event.attempt} failed in {took}{_error(event)}"
    if what == "retry":
        return (
            f"attempt {event.attempt} failed ({reason_of(event)}), next in {format_seconds(event.delay or 0)}"
        )
    if what == "give_up":
        why = OUTCOMES[event.reason or Reason.stopped][0]
        plural = "" if event.attempt == 1 else "s"
        tried = f"{event.attempt} attempt{plural} in {format_seconds(event.elapsed)}"
        return f"gave up after {tried} ({why}){_error(event)}"
    if what == "rejected":
        return f"rejected by {event.by}{_error(event)}"
    if what == "timeout":
        return f"cut by a limit{_error(event)}"
    state = what.removeprefix("circuit_").replace("_", " ")
    hint = "" if event.hint is None else f" for {format_seconds(event.hint)}"
    if what == "circuit_exceeded":
        return f"circuit would have opened{hint}"
    return f"circuit {state}{hint}, {event.rejected or 0} calls rejected"


def _error(event: Event) -> str:
    """Return the type and message of the error, without secrets."""
    if event.error is None:
        return ": the result was not accepted" if event.what == "give_up" and event.attempt else ""
    return f": {described(event.error)}"
