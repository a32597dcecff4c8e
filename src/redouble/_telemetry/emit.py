"""Makes events of what happens: to a run, at a gate, under a limit. Only if somebody wants to hear of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from redouble._runtime.clock import SYSTEM
from redouble._telemetry.binding import BOUND
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.observers import complain, publish, watch
from redouble.errors import AttemptTimeout, Rejected

__all__ = [
    "TOLD",
    "FastEmitter",
    "continuing_call",
    "emit_rejected",
    "emit_timeout",
    "layer_kind",
    "make_emitter",
]


R = TypeVar("R", bound=Rejected)

TOLD = "__redouble_told__"
INFINITY = float("inf")

# Whether a call that has been told of as a success goes on, since the body of its answer broke.
GOES_ON: ContextVar[bool] = ContextVar("redouble_goes_on", default=False)

# All fields in order, without a look at them: that is twice as fast as by name.
new: Callable[[type[Event], tuple[object, ...]], Event] = vars(tuple)["__new__"]
options: dict[What, str] = {
    "before_attempt": "before_attempt",
    "success": "on_success",
    "failure": "on_failure",
    "retry": "on_retry",
    "give_up": "on_give_up",
}


def make_emitter(policy: Any) -> Callable[..., None] | None:
    """Make the function by which a run tells what happens: the policy's own observer first.

    None, if there is nobody to tell. Options and runs are made of events: their types cannot be named here.
    """
    if policy._silent and not watch.entries:
        return None

    def tell(run: Any, what: What, error: Exception | None, delay: float | None) -> None:
        own: Observer | None = getattr(policy, options[what])
        before = what == "before_attempt"
        if own is None:
            if not watch.listening[what]:
                return
            if (before or what == "success") and not watch.of_calls():
                return  # those who would hear of it sleep
        bad = not before and what != "success" and run.attempt > 0
        event = new(
            Event,
            (
                what,
                run.name,
                run.attempt + before,
                run.now - run.started + run.earlier,
                None if before else run.took + run.underway,
                error,
                None if before else run.value,
                run.verdict if bad else None,
                run.kind(error) if bad else None,
                delay,
                run.verdict.after if bad else None,
                run.reason,
                None if before else run.limiting_limit(),
                policy.labels,
                None,
                run.first_item,
                None,
                BOUND.get(),
                GOES_ON.get(),
            ),
        )
        publish(event, own)

    return tell


# fmt: off
class FastEmitter:
    """Tells of first attempts that nothing but observers concerns, and that succeed: nearly all there are."""

    __slots__ = ("_before", "_labels", "_name", "_odd")

    def __init__(self, policy: Any, name: str) -> None:
        self._name, self._labels = name, policy.labels
        self._odd = policy.clock is not SYSTEM  # a clock of somebody's own may tell anything
        self._before: Event | None = None  # the same each time

    def attempt(self, now: float) -> float:
        """Tell that it is about to be made; return when the call began, which is now."""
        observer = watch.attempts
        if observer is not None:
            bound = BOUND.get()
            event = self._before
            if event is None or event.bound is not bound:
                self._before = event = new(Event, (
                    "before_attempt", self._name, 1, 0.0, None, None, None, None, None, None, None, None,
                    None, self._labels, None, None, None, bound, False,
                ))
            try:
                observer(event)
            except Exception:
                complain(observer, event)
        return now

    def success(self, value: object, began: float, started: float, now: float) -> None:
        """Tell that it succeeded: the call began, and the attempt started, at these times."""
        observer = watch.successes
        if observer is not None:
            if self._odd and not began <= started <= now < INFINITY:
                began = started = now = 0.0  # a broken clock tells nothing
            event = new(Event, (
                "success", self._name, 1, now - began, now - started, None, value, None, None, None, None,
                None, None, self._labels, None, None, None, BOUND.get(), False,
            ))
            try:
                observer(event)
            except Exception:
                complain(observer, event)


def emit_rejected(error: R, by: str, name: str | None) -> R:
    """Tell that a gate does not let a call in; return the error to raise. Who sees it next tells nothing."""
    if watch.listening["rejected"] and TOLD not in error.__dict__:
        publish(new(Event, (
            "rejected", name or by, 0, 0.0, None, error, None, None, None, None,
            error.retry_after, None, None, {}, None, None, by, BOUND.get(), False,
        )), None)
        error.__dict__[TOLD] = True
    return error


def emit_timeout(error: AttemptTimeout, name: str) -> AttemptTimeout:
    """Tell that a limit was reached; return the error to raise."""
    if watch.listening["timeout"]:
        took = error.seconds or 0.0
        publish(new(Event, (
            "timeout", name, 0, took, took, error, None, None, None, None, None, None, error.limit, {},
            None, None, None, BOUND.get(), False,
        )), None)
    return error
# fmt: on


@contextmanager
def continuing_call() -> Generator[None]:
    """Say of all that is told inside that it is about a call which has succeeded before."""
    before = GOES_ON.set(True)
    try:
        yield
    finally:
        GOES_ON.reset(before)


def layer_kind(thing: object) -> str:
    """Say what sort of thing it is, as metrics and configuration have it: ``circuit_breaker``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(thing).__name__).lower()
