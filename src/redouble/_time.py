"""Where time and chance enter the library, and nowhere else.

A `Clock` tells the time and waits, in blocking and in async code. `SYSTEM` is the real one: it finds
out by itself, and without importing either, whether asyncio or Trio is running. Nothing else in the
library, but what is for tests, may import `time`, `asyncio` or `trio`; a test sees to it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from sys import modules
from time import monotonic
from typing import Any, Protocol

from redouble._ambient import ambient

__all__ = [
    "LOOPS",
    "SYSTEM",
    "VIRTUAL",
    "Borrowed",
    "Chance",
    "Clock",
    "Virtual",
    "backend",
    "cancelling",
    "in_event_loop",
    "reader",
    "reading",
    "under_trio",
    "virtual",
]

LONGEST_SLEEP = 1e9  # 31 years. time.sleep() raises OverflowError a little above 292.


class Chance(Protocol):
    """Where chance comes from: the module `random`, a `random.Random`, or your own."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...


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


class Virtual(Protocol):
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

    def sleep(self, seconds: float) -> None:
        """Let a delay pass."""
        ...

    def asleep(self, seconds: float) -> Awaitable[None]:
        """Let a delay pass in async code."""
        ...


# The virtual time of this context, and of whole event loops; looked at only while the ambient flag is up.
VIRTUAL: ContextVar[Virtual | None] = ContextVar("redouble_virtual_time", default=None)
LOOPS: dict[object, Virtual] = {}


def virtual() -> Virtual | None:
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


def reader(clock: Clock, *, aio: bool) -> Callable[[], float]:
    """Return what tells this clock's time with the least ado, as long as nothing ambient is at work.

    For the real one that is a C function: on the path of every successful call there is no frame of ours.
    """
    if clock is SYSTEM:
        return _async_now if aio else monotonic
    return clock.anow if aio else clock.now


def reading(clock: Clock, *, aio: bool) -> Callable[[], float]:
    """Return what tells the time of a whole call by this clock, or by a virtual one in its place."""
    test = virtual() if clock is SYSTEM else None
    if test is not None:
        return test._going
    return clock.anow if aio else clock.now


class Borrowed(Clock):
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


class Backend(Protocol):
    """What `_asyncio` and `_trio` have in common."""

    def now(self) -> float:
        """Return the event loop's time."""
        ...

    def sleep(self, seconds: float, /) -> Awaitable[None]:
        """Wait, giving way at least once."""
        ...

    def cancelling(self) -> bool:
        """Say whether the running task is being cancelled."""
        ...

    def home(self) -> object:
        """Return what runs tasks here: the same object for the same event loop, None outside of any."""
        ...

    def is_home(self, place: object, /) -> bool:
        """Say whether that is here."""
        ...

    def finish(self, work: Coroutine[Any, Any, None], /) -> None:
        """Do what has to be awaited, though nobody awaits it."""
        ...


def backend() -> Backend:
    """Find the async library that runs the current task."""
    if modules.get("trio") is not None:
        from redouble import _trio  # noqa: PLC0415  only once Trio is there

        if _trio.running():
            return _trio
    from redouble import _asyncio  # noqa: PLC0415  only once async code runs

    return _asyncio


def cancelling() -> bool:
    """Say whether the running task is being cancelled, whatever its operation made of that."""
    return backend().cancelling()


def under_trio() -> bool:
    """Say whether a task of Trio's runs, where async code goes by Trio's clock and blocking code does not."""
    trio: Any = modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


def in_event_loop() -> bool:
    """Say whether this thread is inside a running event loop, which a blocking wait would stall."""
    events = modules.get("asyncio.events")
    if events is not None and events._get_running_loop() is not None:
        return True
    return under_trio()
