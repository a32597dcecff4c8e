"""Where time and chance enter the library, and nowhere else.

A `Clock` tells the time and waits, in blocking and in async code. `SYSTEM` is the real one: it finds
out by itself, and without importing either, whether asyncio or Trio is running. Apart from what stands
for those (`_asyncio`, `_timer`, `_taskgroup`, `_trio`) and what is for tests, nothing else in the library may
import `time`, `asyncio` or `trio`; a test sees to it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from sys import modules
from time import monotonic
from typing import Any, Protocol

from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import backend, under_trio

__all__ = [
    "LOOPS",
    "SYSTEM",
    "VIRTUAL",
    "Chance",
    "Clock",
    "ForeignClock",
    "VirtualTime",
    "call_reader",
    "context_clock",
    "fast_reader",
    "virtual",
]


LONGEST_SLEEP = 1e9  # 31 years. time.sleep() raises OverflowError a little above 292.


@public("redouble.types")
class Chance(Protocol):
    """Where chance comes from: the module `random`, a `random.Random`, or your own."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...


@public("redouble")
class Clock:
    """Tells the time and waits. Subclass it to bring your own; override what differs.

    ``now`` and ``sleep`` serve blocking code, ``anow`` and ``asleep`` async code.
    """

    def now(self) -> float:
        """Return seconds from an arbitrary moment; only differences mean anything."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait, blocking this thread."""
        time.sleep(min(seconds, LONGEST_SLEEP))

    def anow(self) -> float:
        """Return the time in async code: by default the same as ``now()``."""
        return self.now()

    def asleep(self, seconds: float) -> Awaitable[None]:
        """Wait in async code, always giving way: a wait of zero is a checkpoint."""
        return backend().sleep(seconds)


class VirtualTime(Protocol):
    """The clock of a test, in place of the real one. Once it is ``over``, time is real again."""

    _over: bool

    def now(self) -> float:
        """Tell the time."""
        ...

    def anow(self) -> float:
        """Tell the time in async code."""
        ...

    def _going(self) -> float:
        """Tell the time of calls that may outlive it: when it is over, it goes on as real time does."""
        ...

    def _reach(self, moment: float) -> None:
        """Move forwards to a moment."""
        ...

    def _turns(self) -> bool:
        """Say whether the event loop that is running goes by it too."""
        ...

    def _lapse(self, seconds: float) -> Awaitable[None]:
        """Let time pass in async code, without it being anybody's delay."""
        ...

    def _hold(self, workers: int) -> None:
        """Count workers in and out, in async code."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let a delay pass."""
        ...

    def asleep(self, seconds: float) -> Awaitable[None]:
        """Let a delay pass in async code."""
        ...


# The virtual time of this context, and of whole event loops; looked at only while the ambient flag is up.
VIRTUAL: ContextVar[VirtualTime | None] = ContextVar("redouble_virtual_time", default=None)
LOOPS: dict[object, VirtualTime] = {}


def virtual() -> VirtualTime | None:
    """Return the virtual clock that is at work here, if there is one."""
    if not ambient.active:
        return None
    clock = VIRTUAL.get()
    if (clock is None or clock._over) and LOOPS:
        events: Any = modules["asyncio.events"]
        clock = LOOPS.get(events._get_running_loop())
    return None if clock is None or clock._over else clock


class _System(Clock):
    """The real clock, or the virtual one of a test. Under Trio async code follows Trio's clock."""

    def now(self) -> float:
        clock = virtual()
        return monotonic() if clock is None else clock.now()

    def sleep(self, seconds: float) -> None:
        (virtual() or REAL).sleep(seconds)

    def anow(self) -> float:
        clock = virtual()
        return _async_now() if clock is None else clock.anow()

    def asleep(self, seconds: float) -> Awaitable[None]:
        return (virtual() or REAL).asleep(seconds)

    def __repr__(self) -> str:
        return "SYSTEM"


REAL = Clock()
SYSTEM: Clock = _System()


def _async_now() -> float:
    return backend().now() if "trio" in modules else monotonic()


def fast_reader(clock: Clock, *, aio: bool) -> Callable[[], float]:
    """Return what tells this clock's time with the least ado, as long as nothing ambient is at work.

    For the real one that is a C function: on the path of every successful call there is no frame of ours.
    """
    if clock is SYSTEM:
        return _async_now if aio else monotonic
    return clock.anow if aio else clock.now


def call_reader(clock: Clock, *, aio: bool) -> Callable[[], float]:
    """Return what tells the time of a whole call by this clock, or by a virtual one in its place."""
    test = virtual() if clock is SYSTEM else None
    if test is not None:
        return test._going
    return clock.anow if aio else clock.now


def context_clock() -> Callable[[], float]:
    """Return what tells the time where we are, also when asked from another thread."""
    test = virtual()
    if test is not None:
        return test._going
    if under_trio():
        from redouble._runtime import trio_backend as _trio  # noqa: PLC0415  it is running

        return _trio.clock()
    return monotonic


class ForeignClock(Clock):
    """Somebody's object with ``now()`` and ``sleep()``; in async code, what it lacks is the real clock's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def anow(self) -> float:
        return getattr(self._clock, "anow", self._clock.now)()

    def asleep(self, seconds: float) -> Awaitable[None]:
        own = getattr(self._clock, "asleep", None)
        return backend().sleep(seconds) if own is None else own(seconds)
