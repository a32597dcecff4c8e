"""Clocks and the source of randomness: the only place where time enters the library.

A `Clock` reads the time and sleeps, in blocking and in async code. `SYSTEM` is the real one: it detects
whether asyncio or Trio is running, and imports neither. Apart from the backends (`asyncio_backend`,
`asyncio_timer`, `trio_backend`) and code for tests, no other module may import `time`, `asyncio` or `trio`;
a test of the architecture checks it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from sys import modules
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import backend, under_trio

LONGEST_SLEEP = 1e9  # seconds, 31 years: time.sleep() raises OverflowError a little above 292 years


@public("redouble.types")
class Chance(Protocol):
    """A source of randomness: the module `random`, a `random.Random`, or your own."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...


@public("redouble")
class Clock:
    """A clock: reads the time and sleeps. Subclass it to bring your own; override what differs.

    ``now`` and ``sleep`` serve blocking code, ``anow`` and ``asleep`` async code.
    """

    def now(self) -> float:
        """Return seconds from an arbitrary moment; only differences mean anything."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep, blocking this thread."""
        time.sleep(min(seconds, LONGEST_SLEEP))

    def anow(self) -> float:
        """Return the time in async code: by default the same as ``now()``."""
        return self.now()

    def asleep(self, seconds: float) -> Awaitable[None]:
        """Sleep in async code. It always yields to other tasks: a sleep of zero is a checkpoint."""
        return backend().sleep(seconds)


if TYPE_CHECKING:

    class VirtualTime(Protocol):
        """The clock of a test, which replaces the real one until ``_over`` is True."""

        _over: bool

        def now(self) -> float:
            """Return the virtual time."""
            ...

        def anow(self) -> float:
            """Return the virtual time in async code."""
            ...

        def _running_now(self) -> float:
            """Return the time for calls that may outlive this clock: it continues in real time afterwards."""
            ...

        def _move_to(self, moment: float) -> None:
            """Advance to a moment."""
            ...

        def _drives_running_loop(self) -> bool:
            """Return True if the running event loop uses this clock too."""
            ...

        def _wait_unrecorded(self, seconds: float) -> Awaitable[None]:
            """Advance time in async code, without recording a delay."""
            ...

        def _count_workers(self, workers: int) -> None:
            """Add (1) or remove (-1) a worker, in async code: while one runs, time passes in real time."""
            ...

        def sleep(self, seconds: float) -> None:
            """Advance time by a delay, and record it."""
            ...

        def asleep(self, seconds: float) -> Awaitable[None]:
            """Advance time by a delay in async code, and record it."""
            ...


# The virtual time of this context, and of whole event loops; read only while the ambient flag is set.
VIRTUAL: ContextVar[VirtualTime | None] = ContextVar("redouble_virtual_time", default=None)
LOOPS: dict[object, VirtualTime] = {}


def virtual() -> VirtualTime | None:
    """Return the virtual clock that applies to this context or event loop, if there is one."""
    if not ambient.active:
        return None
    clock = VIRTUAL.get()
    if (clock is None or clock._over) and LOOPS:
        events: Any = modules["asyncio.events"]
        clock = LOOPS.get(events._get_running_loop())
    return None if clock is None or clock._over else clock


class SystemClock(Clock):
    """The real clock, or the virtual one of a test. Under Trio, async code uses Trio's clock."""

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
SYSTEM: Clock = SystemClock()


def _async_now() -> float:
    return backend().now() if "trio" in modules else monotonic()


def fast_reader(clock: Clock, *, aio: bool) -> Callable[[], float]:
    """Return the cheapest callable that reads this clock; valid while no ambient feature is active.

    For the real clock in blocking code that is a C function, so reading it adds no Python frame.
    """
    if clock is SYSTEM:
        return _async_now if aio else monotonic
    return clock.anow if aio else clock.now


# The names with which a compiled wrapper reads the real clock, or a virtual one while there may be one:
# ``redouble_system() if redouble_ambient else redouble_now()``.
WRAPPER_CLOCK: dict[str, Any] = {
    "ambient": ambient.active,
    "system": SYSTEM.now,
    "now": fast_reader(SYSTEM, aio=False),
}


def call_reader(clock: Clock, *, aio: bool) -> Callable[[], float]:
    """Return the callable that reads this clock for a whole call, or a virtual clock in place of `SYSTEM`."""
    virtual_clock = virtual() if clock is SYSTEM else None
    if virtual_clock is not None:
        return virtual_clock._running_now
    return clock.anow if aio else clock.now


def context_clock() -> Callable[[], float]:
    """Return the callable that reads the clock of this context; other threads may call it too."""
    virtual_clock = virtual()
    if virtual_clock is not None:
        return virtual_clock._running_now
    if under_trio():
        from redouble._runtime import trio_backend  # noqa: PLC0415  Trio is running

        return trio_backend.clock()
    return monotonic


class ForeignClock(Clock):
    """An adapter for an object with ``now()`` and ``sleep()``, which may lack ``anow()`` and ``asleep()``.

    Without ``anow()`` async code uses its ``now()``; without ``asleep()`` the real clock's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def anow(self) -> float:
        return getattr(self._clock, "anow", self._clock.now)()

    def asleep(self, seconds: float) -> Awaitable[None]:
        asleep = getattr(self._clock, "asleep", None)
        return backend().sleep(seconds) if asleep is None else asleep(seconds)
