"""Events, and who is told of them.

An event is an immutable note about one step of one call; it never holds the call's arguments.
Observers are plain functions of one event. One that fails is logged, once, and changes nothing.
"""

from __future__ import annotations

import functools
from _thread import allocate_lock  # what threading.Lock is, without importing all of threading
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType, TracebackType
from typing import Any, Literal, NamedTuple

from redouble._ambient import ambient
from redouble._check import hook
from redouble._log import log
from redouble._verdict import Kind, Verdict
from redouble.errors import Limit, Reason

__all__ = ["Event", "Observation", "What", "observe", "publish", "teller", "watched"]

What = Literal[
    "before_attempt",
    "success",
    "failure",
    "retry",
    "give_up",
    "circuit_opened",
    "circuit_half_open",
    "circuit_closed",
    "circuit_isolated",
    "circuit_rejected",
]


class Event(NamedTuple):
    """One step of one call. ``what`` says which; fields that do not apply are None.

    ``attempt`` counts from 1; ``delay`` is the wait before the next attempt; ``hint`` is what the
    other side asked for; ``elapsed`` counts from the start of the call; ``limit`` is the one that cut the
    attempt, or ended the call.

    Those of a circuit breaker begin with ``circuit_``: ``elapsed`` is how long the state before lasted
    (of ``circuit_rejected``: how long this one has), ``hint`` when to come back, ``rejected`` how many calls
    have been turned away since it opened.
    """

    what: What
    name: str
    attempt: int
    elapsed: float
    attempt_elapsed: float | None
    error: Exception | None
    value: object
    verdict: Verdict | None
    kind: Kind | None
    delay: float | None
    hint: float | None
    reason: Reason | None
    limit: Limit | None
    labels: Mapping[str, str]
    rejected: int | None = None

    def __repr__(self) -> str:
        # Without the value: it is the caller's data, and events end up in logs.
        # Of the error only its text: what else its repr tells, of an HTTP client say, is full of secrets.
        shown = self._asdict() | {"error": None if self.error is None else _Shown(self.error)}
        said = [f"{k}={v!r}" for k, v in shown.items() if v is not None and k not in ("value", "labels")]
        from redouble._redact import redacted  # noqa: PLC0415  for those who look

        return redacted(f"Event({', '.join(said)})")

    def __reduce__(self) -> tuple[type[Event], tuple[object, ...]]:
        # A view of the policy's labels cannot be pickled.
        return (Event, (*self[:-2], dict(self.labels), self.rejected))


class _Shown:
    """An error as it is shown."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __repr__(self) -> str:
        try:
            from redouble._redact import redacted  # noqa: PLC0415  for those who look

            return f"{type(self._error).__name__}({redacted(str(self._error))!r})"
        except Exception:
            return f"{type(self._error).__name__}(<no text>)"


Observer = Callable[[Event], object]


class Observation:
    """The handle of an observer: call it, `remove()` it, or use it in a ``with`` to end observing."""

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer) -> None:
        self._observer: Observer | None = observer

    def remove(self) -> None:
        """Stop observing; a second time does nothing."""
        global _observers  # noqa: PLW0603  a tuple replaced whole: readers need no lock
        with _lock:
            observer, self._observer = self._observer, None
            if observer is None:
                return
            index = next(i for i, other in enumerate(_observers) if other is observer)
            _observers = _observers[:index] + _observers[index + 1 :]
        ambient.hold(-1)

    __call__ = remove

    def __enter__(self) -> Observation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.remove()


_observers: tuple[Observer, ...] = ()
_complained: set[tuple[str, str, str, int]] = set()
MOST_COMPLAINTS = 1000
_lock = allocate_lock()


def observe(observer: Observer, /) -> Observation:
    """Tell ``observer`` of every event of every policy in this process, from now on."""
    global _observers  # noqa: PLW0603  a tuple replaced whole: readers need no lock
    hook(observer, "observer")
    with _lock:
        _observers = (*_observers, observer)
    ambient.hold(1)
    return Observation(observer)


def watched() -> bool:
    """Say whether somebody observes every policy."""
    return bool(_observers)


def teller(policy: Any) -> Callable[..., None]:
    """Make the function by which a run tells what happens: the policy's own observer first.

    Options and runs are made of events, so their types cannot be named here.
    """

    def tell(run: Any, what: What, error: Exception | None, delay: float | None) -> None:
        before = what == "before_attempt"
        bad = not before and what != "success" and run.attempt > 0
        event = Event(
            what=what,
            name=run.name,
            attempt=run.attempt + before,
            elapsed=run.now - run.started,
            attempt_elapsed=None if before else run.took,
            error=error,
            value=None if before else run.value,
            verdict=run.verdict if bad else None,
            kind=run.kind(error) if bad else None,
            delay=delay,
            hint=run.verdict.after if bad else None,
            reason=run.reason,
            limit=None if before else run.which(),
            labels=policy.labels,
        )
        publish(event, getattr(policy, what if before else f"on_{what}"))

    return tell


def publish(event: Event, own: Observer | None) -> None:
    """Tell of an event: the observer of whatever it happened to first, then those of everything."""
    if own is not None:
        _safely(own, event)
    for observer in _observers:
        _safely(observer, event)


def _safely(observer: Observer, event: Event) -> None:
    try:
        observer(event)
    except Exception:
        place = (event.what, *_place(observer))
        with _lock:
            new = place not in _complained and len(_complained) < MOST_COMPLAINTS
            if new:
                _complained.add(place)
        if new:
            told = "observer %s failed on %s; it goes on being called, and this is logged once"
            log(told, place[2], place[0], trouble=True)


def _place(observer: object) -> tuple[str, str, int]:
    """Say which code an observer is, without its arguments or its repr."""
    while isinstance(observer, functools.partial):
        observer = observer.func
    if isinstance(observer, FunctionType | MethodType):
        return observer.__module__, observer.__qualname__, observer.__code__.co_firstlineno
    return type(observer).__module__, type(observer).__qualname__, 0
