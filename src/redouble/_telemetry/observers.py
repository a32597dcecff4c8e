"""Who is told of events. Observers are plain functions; one that fails is logged, once, and changes nothing.

Whoever wants to hear of every call has each of them make an event. Whoever only wants to know what went wrong
costs those that succeed nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from types import FunctionType, MethodType
from typing import NamedTuple

from redouble._internal.handle import Handle
from redouble._internal.locks import ForkSafeLock
from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.validation import hook
from redouble._runtime.ambient import ambient
from redouble._telemetry.events import WHATS, Event, Observer, What

__all__ = ["Observation", "complain", "observe", "observing", "publish", "watch"]


OF_CALLS = frozenset[What]({"before_attempt", "success"})  # what happens to those that succeed, too
MOST_COMPLAINTS = 1000


class Subscription(NamedTuple):
    """One observer, what it wants to hear of, and whether it does now if that changes."""

    observer: Observer
    only: frozenset[What]
    awake: Callable[[], bool] | None

    @property
    def holds(self) -> bool:
        """Whether calls that succeed have to look for it."""
        return not self.only.isdisjoint(OF_CALLS)


class Observers:
    """Who listens, as calls need it. Every attribute is replaced whole, so that readers need no lock."""

    __slots__ = ("attempts", "calls", "conditional", "entries", "listening", "successes")

    def __init__(self) -> None:
        self.become(())

    def become(self, entries: tuple[Subscription, ...]) -> None:
        """Take over who listens from now on."""
        self.entries = entries
        self.listening: Mapping[What, tuple[Observer, ...]] = {
            what: tuple(entry.observer for entry in entries if what in entry.only) for what in WHATS
        }
        self.attempts = _as_one(self.listening["before_attempt"])
        self.successes = _as_one(self.listening["success"])
        self.conditional = tuple(entry.awake for entry in entries if entry.awake is not None and entry.holds)
        self.calls = any(entry.holds and entry.awake is None for entry in entries)

    def of_calls(self) -> bool:
        """Say whether anybody wants to hear of calls that succeed, now."""
        return self.calls or (bool(self.conditional) and self.woken())

    def woken(self) -> bool:
        """Say whether one of those wants to hear of calls that succeed who do not always."""
        try:
            for enabled in self.conditional:
                if enabled():
                    return True
        except Exception:
            return True  # who cannot tell is told, and what is wrong there is seen then
        return False


def _as_one(observers: tuple[Observer, ...]) -> Observer | None:
    """Return one observer for all: nearly always there is no more than one."""
    if len(observers) < 2:
        return observers[0] if observers else None

    def tell(event: Event) -> None:
        for observer in observers:
            try:
                observer(event)
            except Exception:
                complain(observer, event)

    return tell


watch = Observers()
_complained: set[tuple[str, str, str, int]] = set()
_lock = ForkSafeLock()


@public("redouble.types")
class Observation(Handle):
    """The handle of an observer: call it, `remove()` it, or use it in a ``with`` to end observing."""

    __slots__ = ("_ends",)

    def __init__(self, *ends: Callable[[], object]) -> None:
        self._ends = ends

    def remove(self) -> None:
        """Stop observing; a second time does nothing."""
        with _lock:
            ends, self._ends = self._ends, ()
        for end in ends:
            end()


@public("redouble")
def observe(observer: Observer, /, *, only: Collection[What] = ()) -> Observation:
    """Tell ``observer`` of every event of every policy in this process, from now on.

    only: which events, such as ``("retry", "give_up")``. With neither ``before_attempt`` nor ``success``
        among them, calls that succeed at once cost what they cost unobserved.
    """
    return observing(observer, only)


def observing(
    observer: Observer, only: Collection[What] = (), awake: Callable[[], bool] | None = None
) -> Observation:
    """Observe; ``awake`` says, quickly, whether there is any use in telling it of calls that succeed."""
    hook(observer, "observer")
    if isinstance(only, str) or not isinstance(only, Collection):
        raise TypeError(f"only={only!r}: write names of events, such as ('retry', 'give_up')")
    wanted: Collection[str] = only
    for what in wanted:
        if what not in WHATS:
            raise ValueError(f"only={what!r}: write names of events ({', '.join(WHATS)})")
    entry = Subscription(observer, frozenset(what for what in WHATS if what in wanted or not wanted), awake)
    with _lock:
        if entry.holds:
            ambient.watch(1)
        watch.become((*watch.entries, entry))
    return Observation(functools.partial(_forget, entry))


def _forget(entry: Subscription) -> None:
    with _lock:
        place = next(i for i, other in enumerate(watch.entries) if other is entry)
        watch.become(watch.entries[:place] + watch.entries[place + 1 :])
        if entry.holds:
            ambient.watch(-1)


def publish(event: Event, own: Observer | None) -> None:
    """Tell of an event: the observer of whatever it happened to first, then those of everything."""
    if own is not None:
        try:
            own(event)
        except Exception:
            complain(own, event)
    for observer in watch.listening[event.what]:
        try:
            observer(event)
        except Exception:
            complain(observer, event)


def complain(observer: Observer, event: Event) -> None:
    """Log that an observer failed, once for each of its places and each sort of event."""
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
    while isinstance(observer, functools.partial | MethodType):
        observer = observer.func if isinstance(observer, functools.partial) else observer.__func__
    if isinstance(observer, FunctionType):
        return observer.__module__, observer.__qualname__, observer.__code__.co_firstlineno
    return type(observer).__module__, type(observer).__qualname__, 0
