"""The log line of an event: its level, message and fields. It never contains an argument or a result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import Final, Protocol

from redouble._engine.run_results import OUTCOMES
from redouble._internal.locks import ForkSafe
from redouble._internal.validation import format_seconds
from redouble._redaction.rendering import described, one_line
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.events import Event, What
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
# Logged at INFO too, but once in an interval for each name: in an outage every call may have one.
FREQUENT_EVENTS: Final[tuple[What, ...]] = ("limit_changed", "fallback")
# Logged only if DEBUG is enabled.
DEBUG_EVENTS: Final[tuple[What, ...]] = (
    "success",
    "failure",
    "rejected",
    "timeout",
    "waited",
    "hedged",
    "hedge_won",
    "coalesced",
)
INTERVAL: Final = 10.0  # seconds between two log lines of a frequent event
MAX_NAMES: Final = 1000  # whose events are counted apart

# The attributes of a LogRecord.
RECORD_ATTRIBUTES = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})

LEVELS: Mapping[What, int] = {
    **dict.fromkeys(INFO_EVENTS + FREQUENT_EVENTS, logging.INFO),
    **dict.fromkeys(DEBUG_EVENTS, logging.DEBUG),
    "give_up": logging.WARNING,
}
# The fields for the level of an event.
LEVEL_FIELDS: Mapping[What, str] = {"limit_changed": "limit", "fallback": "age"}

# Other events come before a decision.
DECISIONS: Mapping[What, str] = {"success": "accept", "retry": "retry", "give_up": "stop"}


class LogWriter(Protocol):
    """It logs an event; ``skipped``: how many events like it were not logged since the last one."""

    def __call__(self, event: Event, *, skipped: int) -> None: ...


class Sampler(ForkSafe):
    """An observer that logs the first of the events of one type and name in each interval."""

    def __init__(self, write: LogWriter) -> None:
        super().__init__()
        self._write = write
        self._skipped: dict[tuple[What, str], tuple[float, int]] = {}  # when logged, and how many since then

    def __call__(self, event: Event) -> None:
        key: tuple[What, str] = (event.what, event.name)
        now = SYSTEM.now()
        with self._lock:
            if len(self._skipped) > MAX_NAMES:
                self._skipped.clear()
            logged, skipped = self._skipped.get(key, (-inf, 0))
            due = not 0 <= now - logged < INTERVAL  # also if the clock of a test was set back
            self._skipped[key] = (now, 0) if due else (logged, skipped + 1)
        if due:
            self._write(event, skipped=skipped)


def log_events(write: LogWriter, debug_enabled: Callable[[], bool]) -> Observation:
    """Pass the events to a function that logs them; those of level DEBUG only while it is enabled."""
    handle, each = Observation(), partial(write, skipped=0)
    try:
        handle.ends.append(observing(each, INFO_EVENTS).remove)
        handle.ends.append(observing(Sampler(write), FREQUENT_EVENTS).remove)
        handle.ends.append(observing(each, DEBUG_EVENTS, debug_enabled).remove)
    except BaseException:
        handle.remove()  # the caller will have no handle
        raise
    return handle


def level_of(event: Event) -> int:
    """Return the log level; DEBUG if the first error is not retryable, because its caller handles it."""
    if event.what == "give_up" and event.reason is Reason.stopped and event.attempt == 1:
        return logging.DEBUG
    return LEVELS[event.what]


def line(event: Event, taken: Collection[str], skipped: int) -> tuple[str, dict[str, object]]:
    """Return the message of an event, without a line break, and its fields.

    taken: the names that the logger uses itself; bound fields with these names are renamed.
    skipped: how many events like it were not logged.
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
    if event.level is not None and event.what in LEVEL_FIELDS:
        fields[LEVEL_FIELDS[event.what]] = event.level
    for key, value in event.bound.items():
        free = one_line(key)
        while free in fields or free in taken:
            free = f"bound_{free}"
        fields[free] = one_line(value) if isinstance(value, str) else value
    more = f" (and {skipped} more since the last such line)" if skipped else ""
    return one_line(f"{event.name}: {_message(event)}{more}"), fields


def _fallback(event: Event) -> str:
    by = "" if event.level is None else f" by a result that is {format_seconds(event.level)} old"
    return (
        f"a fallback replaced {'a refused result' if event.error is None else 'an error'}{by}{_error(event)}"
    )


LAYER_MESSAGES: Mapping[What, Callable[[Event], str]] = {
    "waited": lambda event: f"admitted by {event.by} after {format_seconds(event.delay or 0)}",
    "limit_changed": lambda event: f"the limit of {event.by} is now {event.level or 0:.4g}",
    "hedged": lambda event: f"extra attempt {event.attempt} started after {format_seconds(event.elapsed)}",
    "hedge_won": lambda event: f"extra attempt {event.attempt} was the first to end well",
    "fallback": _fallback,
    "coalesced": lambda event: f"shared a call in flight for {format_seconds(event.elapsed)}",
}


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
    if what in LAYER_MESSAGES:
        return LAYER_MESSAGES[what](event)
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
