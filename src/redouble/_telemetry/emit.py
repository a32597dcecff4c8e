"""Emitters: functions that create an event of a run, a gate or a time limit, if an observer wants it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

from redouble._internal.shared_context_manager import Block
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.bound_fields import BOUND
from redouble._telemetry.events import NO_USAGE, Event, Observer, What
from redouble._telemetry.observers import log_failure, publish, watch
from redouble.errors import AttemptTimeout, Rejected

R = TypeVar("R", bound=Rejected)

EMITTED = "__redouble_emitted__"  # an attribute of errors whose rejection has been emitted
INFINITY = float("inf")

# True while a call already emitted as a success is being retried because its response body failed.
CONTINUING: ContextVar[bool] = ContextVar("redouble_continuing_call", default=False)

# Creates an event from all fields in order: twice as fast as by name.
new: Callable[[type[Event], tuple[object, ...]], Event] = vars(tuple)["__new__"]
HOOK_OPTIONS: dict[What, str] = {
    "before_attempt": "before_attempt",
    **{what: f"on_{what}" for what in ("success", "failure", "retry", "give_up")},
}


def make_emitter(policy: Any) -> Callable[..., None] | None:
    """Return the function that emits the events of a run, to the policy's own hooks first.

    Return None if there is neither a hook nor an observer. Policies and runs are typed as Any, because their
    modules import this one.
    """
    if not policy._has_hooks and not watch.entries:
        return None

    def emit(run: Any, what: What, error: Exception | None, delay: float | None) -> None:
        own: Observer | None = getattr(policy, HOOK_OPTIONS[what])
        before = what == "before_attempt"
        if own is None:
            if not watch.by_event[what]:
                return
            if (before or what == "success") and not watch.wants_successes():
                return  # all observers of the event are disabled now
        failed = not before and what != "success" and run.attempt > 0
        event = new(
            Event,
            (
                what,
                run.name,
                run.attempt + before,
                run.now - run.started + run.elapsed_before,
                None if before else run.took + run.attempt_elapsed_before,
                error,
                None if before else run.value,
                run.verdict if failed else None,
                run.kind(error) if failed else None,
                delay,
                run.verdict.after if failed else None,
                run.reason,
                None if before else run.limiting_limit(),
                policy.labels,
                None,
                run.first_item,
                None,
                BOUND.get(),
                CONTINUING.get(),
                MappingProxyType({**run.usage}) if run.usage else NO_USAGE,
                None,
            ),
        )
        publish(event, own)

    return emit


# fmt: off
class FastEmitter:
    """Emits ``before_attempt`` and ``success`` for calls that need no `Run`: the first attempt succeeds."""

    __slots__ = ("_before", "_foreign_clock", "_labels", "_name")

    def __init__(self, policy: Any, name: str) -> None:
        self._name, self._labels = name, policy.labels
        self._foreign_clock = policy.clock is not SYSTEM  # which may return anything
        self._before: Event | None = None  # the event of every attempt while the bound fields are the same

    def attempt(self, now: float) -> float:
        """Emit ``before_attempt``; return ``now``, the start of the call."""
        observer = watch.attempts
        if observer is not None:
            bound = BOUND.get()
            event = self._before
            if event is None or event.bound is not bound:
                self._before = event = new(Event, (
                    "before_attempt", self._name, 1, 0.0, None, None, None, None, None, None, None, None,
                    None, self._labels, None, None, None, bound, False, NO_USAGE, None,
                ))
            try:
                observer(event)
            except Exception:
                log_failure(observer, event)
        return now

    def success(self, value: object, began: float, started: float, now: float) -> None:
        """Emit ``success``: ``began`` is the start of the call, ``started`` that of its attempt."""
        observer = watch.successes
        if observer is not None:
            if self._foreign_clock and not began <= started <= now < INFINITY:
                began = started = now = 0.0  # the clock is broken: report zero durations
            event = new(Event, (
                "success", self._name, 1, now - began, now - started, None, value, None, None, None, None,
                None, None, self._labels, None, None, None, BOUND.get(), False, NO_USAGE, None,
            ))
            try:
                observer(event)
            except Exception:
                log_failure(observer, event)
# fmt: on


def emit_rejected(error: R, by: str, name: str | None) -> R:
    """Emit ``rejected`` for a call that a gate rejects, once for each error; return the error to raise."""
    if watch.by_event["rejected"] and EMITTED not in error.__dict__:
        hint, bound = error.retry_after, BOUND.get()
        publish(Event("rejected", name or by, 0, 0.0, error=error, hint=hint, by=by, bound=bound), None)
        error.__dict__[EMITTED] = True
    return error


def emit_timeout(error: AttemptTimeout, name: str) -> AttemptTimeout:
    """Emit ``timeout`` for a time limit that was reached; return the error to raise."""
    if watch.by_event["timeout"]:
        took = error.seconds or 0.0
        publish(
            Event("timeout", name, 0, took, took, error, limit=error.limit, by="timeout", bound=BOUND.get()),
            None,
        )
    return error


def emit_layer(
    what: What,
    by: str,
    name: str | None,
    *,
    attempt: int = 0,
    elapsed: float = 0.0,
    error: Exception | None = None,
    value: object = None,
    delay: float | None = None,
    level: float | None = None,
) -> None:
    """Emit an event of a layer that is no policy; ``by`` is the type of the layer, as `layer_kind` says.

    Not under a lock: it calls observers. A caller on a path that many calls take checks first whether
    ``watch.by_event[what]`` is true.
    """
    if watch.by_event[what]:
        event = Event(
            what,
            name or by,
            attempt,
            elapsed,
            error=error,
            value=value,
            delay=delay,
            by=by,
            bound=BOUND.get(),
            level=level,
        )
        publish(event, None)


class ContinuingCall(Block[None]):
    """A block whose events are marked as those of a call that was already emitted as a success."""

    def __init__(self) -> None:
        self._before = CONTINUING.get()

    def begin(self) -> None:
        """Mark the events of this context."""
        CONTINUING.set(True)

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        """Mark them as before."""
        CONTINUING.set(self._before)


def layer_kind(thing: object) -> str:
    """Return the type of a layer in snake case, as in metrics and configuration: ``circuit_breaker``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(thing).__name__).lower()
