"""Where time and chance enter the library, and nowhere else.

A `Clock` tells the time and waits, in blocking and in async code. `SYSTEM` is the real one: it finds
out by itself, and without importing either, whether asyncio or Trio is running. Nothing else in the
library may import `time`, `asyncio` or `trio`; a test sees to it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from sys import modules
from time import monotonic
from typing import Any, Protocol

__all__ = ["SYSTEM", "Borrowed", "Chance", "Clock", "backend", "cancelling", "in_event_loop", "one_time"]

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


class _System(Clock):
    """The real clock. Under Trio async code follows Trio's clock, so that a MockClock is obeyed."""

    # The C function itself: on the path of every successful call there is no frame of ours.
    now: Any = staticmethod(time.monotonic)

    def anow(self) -> float:
        if "trio" in modules:
            return backend().now()
        return monotonic()

    def __repr__(self) -> str:
        return "SYSTEM"


SYSTEM: Clock = _System()


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


def one_time() -> bool:
    """Say whether blocking and async code here go by the same clock: not under Trio, which has its own."""
    trio: Any = modules.get("trio")
    return trio is None or not trio.lowlevel.in_trio_task()


def in_event_loop() -> bool:
    """Say whether this thread is inside a running event loop, which a blocking wait would stall."""
    events = modules.get("asyncio.events")
    if events is not None and events._get_running_loop() is not None:
        return True
    return not one_time()
