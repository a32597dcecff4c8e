"""The observers of this process, and the dispatch of events to them.

Observers are plain functions; the failure of one is logged once, and changes nothing. While an observer wants
``before_attempt`` or ``success``, every call creates events. An observer that wants neither adds no cost to a
call that succeeds at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from types import FunctionType, MethodType

from redouble._internal.locks import ForkSafeLock
from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.validation import hook
from redouble._runtime.ambient import ambient
from redouble._telemetry.bound_fields import Handle
from redouble._telemetry.events import EVENT_NAMES, Event, Observer, What

SUCCESS_EVENTS = frozenset[What]({"before_attempt", "success"})  # of calls that succeed at once
MAX_LOGGED_FAILURES = 1000


class Subscription:
    """An observer, the events it wants, and optionally a function: True while it wants success events."""

    __slots__ = ("enabled", "observer", "only")

    def __init__(self, observer: Observer, only: frozenset[What], enabled: Callable[[], bool] | None) -> None:
        self.observer, self.only, self.enabled = observer, only, enabled

    @property
    def wants_successes(self) -> bool:
        """True if calls that succeed have to emit events for the observer."""
        return not self.only.isdisjoint(SUCCESS_EVENTS)


class Observers:
    """The subscriptions, indexed by event. Each attribute is replaced as a whole: readers need no lock."""

    __slots__ = ("attempts", "by_event", "calls", "conditional", "entries", "successes")

    def __init__(self) -> None:
        self.replace(())

    def replace(self, entries: tuple[Subscription, ...]) -> None:
        """Replace all subscriptions."""
        self.entries = entries
        self.by_event: Mapping[What, tuple[Observer, ...]] = {
            what: tuple(entry.observer for entry in entries if what in entry.only) for what in EVENT_NAMES
        }
        self.attempts = _as_one(self.by_event["before_attempt"])
        self.successes = _as_one(self.by_event["success"])
        self.conditional = tuple(
            entry.enabled for entry in entries if entry.enabled is not None and entry.wants_successes
        )
        self.calls = any(entry.wants_successes and entry.enabled is None for entry in entries)

    def wants_successes(self) -> bool:
        """Return True if an observer currently wants success events."""
        try:
            return self.calls or any(enabled() for enabled in self.conditional)
        except Exception:
            return True  # then the observer is called, and its failure is logged


def _as_one(observers: tuple[Observer, ...]) -> Observer | None:
    """Return one observer that calls all of these, or None for none; nearly always there is at most one."""
    if len(observers) < 2:
        return observers[0] if observers else None
    return functools.partial(_call_all, observers)


def _call_all(observers: tuple[Observer, ...], event: Event) -> None:
    for observer in observers:
        try:
            observer(event)
        except Exception:
            log_failure(observer, event)


watch = Observers()
_logged: set[tuple[str, str, str, int]] = set()
_lock = ForkSafeLock()


@public("redouble.types")
class Observation(Handle):
    """The handle of an observer: call it, `remove()` it, or use it in a ``with`` to end observing."""

    __slots__ = ("ends",)

    def __init__(self, *ends: Callable[[], object]) -> None:
        self.ends = [*ends]  # functions that may be called again, because a signal handler may interrupt them

    def remove(self) -> None:
        """Stop observing; a second call does nothing."""
        for end in reversed([*self.ends]):
            end()
        self.ends.clear()


@public("redouble")
def observe(observer: Observer, /, *, only: Collection[What] = ()) -> Observation:
    """Call ``observer`` with every event of every policy in this process, from now on.

    only: which events, such as ``("retry", "give_up")``. With neither ``before_attempt`` nor ``success``
        among them, calls that succeed at once cost the same as without an observer.
    """
    return observing(observer, only)


def observing(
    observer: Observer, only: Collection[What] = (), enabled: Callable[[], bool] | None = None
) -> Observation:
    """Subscribe an observer; ``enabled``, a fast function, is True while it wants success events."""
    hook(observer, "observer")
    if isinstance(only, str) or not isinstance(only, Collection):
        raise TypeError(f"only={only!r}: write names of events, such as ('retry', 'give_up')")
    wanted: Collection[str] = only
    for what in wanted:
        if what not in EVENT_NAMES:
            raise ValueError(f"only={what!r}: write names of events ({', '.join(EVENT_NAMES)})")
    entry = Subscription(observer, frozenset(only or EVENT_NAMES), enabled)
    handle = Observation(functools.partial(_unsubscribe, entry))
    try:
        with _lock.rlock:
            if entry.wants_successes:
                ambient.add_observer(entry)
            watch.replace((*watch.entries, entry))
    except BaseException:
        handle.remove()  # the caller will have no handle
        raise
    return handle


def _unsubscribe(entry: Subscription) -> None:
    with _lock.rlock:
        watch.replace(tuple(other for other in watch.entries if other is not entry))
        ambient.remove(entry)


def publish(event: Event, own: Observer | None) -> None:
    """Dispatch an event: to the policy's own hook first, then to the observers of this process."""
    observers = watch.by_event[event.what]
    _call_all(observers if own is None else (own, *observers), event)


def log_failure(observer: Observer, event: Event) -> None:
    """Log that an observer failed, once for each observer's code and each type of event."""
    key = (event.what, *_code_location(observer))
    with _lock.rlock:
        first = key not in _logged and len(_logged) < MAX_LOGGED_FAILURES
        if first:
            _logged.add(key)
    if first:
        message = "observer %s failed on %s; it stays registered, and this is logged only once"
        log(message, key[2], key[0], error=True)


def _code_location(observer: object) -> tuple[str, str, int]:
    """Return module, qualified name and line of an observer, without its arguments or its repr."""
    while isinstance(observer, functools.partial | MethodType):
        observer = observer.func if isinstance(observer, functools.partial) else observer.__func__
    if isinstance(observer, FunctionType):
        return observer.__module__, observer.__qualname__, observer.__code__.co_firstlineno
    return type(observer).__module__, type(observer).__qualname__, 0
