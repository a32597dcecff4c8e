"""Where time and chance enter the library, and nowhere else.

A `Clock` tells the time and waits, in blocking and in async code. `SYSTEM` is the real one: it finds
out by itself, and without importing either, whether asyncio or Trio is running. Nothing else in the
library may import `time`, `asyncio` or `trio`; a test sees to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable
from datetime import timedelta
from math import isfinite
from types import ModuleType
from typing import Protocol, TypeAlias

__all__ = ["SYSTEM", "Chance", "Clock", "Duration", "backend", "cancelling", "in_event_loop", "seconds"]

Duration: TypeAlias = float | timedelta

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

    # Bound to the C function: on the path of every successful call there is no frame of ours.
    now = staticmethod(time.monotonic)

    def anow(self) -> float:
        if "trio" in sys.modules:
            return backend().now()
        return time.monotonic()

    def __repr__(self) -> str:
        return "SYSTEM"


SYSTEM: Clock = _System()


class Borrowed(Clock):
    """Somebody's object with ``now()`` and ``sleep()``, completed from the real clock."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now  # type: ignore[method-assign]
        self.sleep = clock.sleep  # type: ignore[method-assign]
        self.anow = getattr(clock, "anow", clock.now)  # type: ignore[method-assign]
        self.asleep = getattr(clock, "asleep", super().asleep)  # type: ignore[method-assign]


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
    if "trio" in sys.modules:
        from redouble import _trio  # noqa: PLC0415  only once Trio is there

        if _trio.running():
            return _trio
    from redouble import _asyncio  # noqa: PLC0415  only once async code runs

    return _asyncio


def cancelling() -> bool:
    """Say whether the running task is being cancelled, whatever its operation made of that."""
    return backend().cancelling()


def in_event_loop() -> bool:
    """Say whether this thread is inside a running event loop, which a blocking wait would stall."""
    asyncio: ModuleType | None = sys.modules.get("asyncio.events")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return True
    return "trio" in sys.modules and backend().__name__.endswith("_trio")


def seconds(value: object, option: str) -> float:
    """Turn a duration into seconds, or say what is wrong with it and what to write instead."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        fix = " (a text such as '250ms' is for configuration files)" if isinstance(value, str) else ""
        raise TypeError(f"{option}={value!r}: write seconds as a number, or a timedelta{fix}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{option} is too large for a float: write a number of seconds") from None
    if not isfinite(number) or number < 0:
        raise ValueError(f"{option}={value!r}: write a finite number of seconds, 0 or more")
    return number
