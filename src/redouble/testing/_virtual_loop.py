"""asyncio loops that go by a virtual clock: whatever waits on them, ours or not, waits in virtual time.

A loop asks two things of the world: how late it is, and what has happened within so many seconds. Both
are answered here instead. Only `redouble.testing` uses this.
"""

from __future__ import annotations

import asyncio
import time
from _thread import allocate_lock
from asyncio.events import _get_running_loop
from collections.abc import Callable, Generator, Sized
from contextlib import contextmanager
from math import ulp
from typing import Any

from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.asyncio_timer import retime
from redouble._runtime.clock import LOOPS, VIRTUAL, virtual
from redouble.testing._switch import Switch
from redouble.testing._virtual_clock import HOLDS, Timeline, VirtualClock

__all__ = ["virtual_time"]


# With sockets open, how long the loop has to be quiet, really, before its time moves: what is on its way
# from another process or thread must not come too late for that.
PATIENCE = 0.01


class VirtualTimeLoop:
    """An asyncio loop that goes by virtual time, until nobody wants that any more."""

    def __init__(self, loop: Any, course: Timeline) -> None:
        self._loop, self._course = loop, course
        self.clocks: list[VirtualClock] = []
        # A loop that runs, or has timers, goes on from where it is; another one begins with the clock.
        self._base: float = loop.time() - course.now() if loop._scheduled or loop.is_running() else 0.0
        self._select: Callable[[float | None], Any] = loop._selector.select
        self._run_in_executor: Callable[..., Any] = loop.run_in_executor
        self._busy = 0
        turned = (
            (loop, "time"),
            (loop, "run_in_executor"),
            (loop, "_clock_resolution"),
            (loop._selector, "select"),
        )
        self._before: list[tuple[Any, str, Any]] = [
            (thing, name, thing.__dict__.get(name)) for thing, name in turned
        ]
        loop.time, loop.run_in_executor = self.time, self.run_in_executor
        loop._selector.select = self.select
        HOLDS[loop] = self.hold
        retime(loop)

    def time(self) -> float:
        """Tell the loop's time."""
        return self._base + self._course.now_as_known()

    def select(self, timeout: float | None = None) -> Any:
        """Wait for something to happen; where nothing does, it is the clock that moves."""
        if timeout is None or timeout <= 0:
            return self._select(timeout)
        if self._busy or self._loop._executor_shutdown_called:
            started = time.monotonic()  # a thread is at work, and nobody knows how long it takes: really wait
            events = self._select(timeout)
            self._course.advance(time.monotonic() - started)
            return events
        watched: Sized = getattr(self._loop._selector, "get_map", tuple)()
        events = self._select(PATIENCE if len(watched) > 1 else 0)  # one of them is the loop's own
        if not events:
            moment = self._loop._scheduled[0].when() - self._base
            # As the clock does: off another base, a second is 1.0000000000009.
            self._course.move_to(round(moment, 9) if self._base else moment)
            # A timer is due if it is earlier than now plus this, which gets lost in large numbers.
            self._loop._clock_resolution = max(1e-9, 4 * ulp(self.time()))
        return events

    def run_in_executor(self, executor: Any, fn: Callable[..., Any], *args: Any) -> Any:
        """Run something in a thread, and hold the clock meanwhile."""
        future = self._run_in_executor(executor, fn, *args)
        self.hold(1)
        future.add_done_callback(self._idle)
        return future

    def _idle(self, _: object) -> None:
        self.hold(-1)

    def hold(self, workers: int) -> None:
        """Count workers in (1) and out (-1)."""
        self._busy += workers

    def back(self) -> None:
        """Let the loop go by real time again; timers that are set keep their distance."""
        ahead = self.time() - time.monotonic()
        for thing, name, value in self._before:
            if value is None:
                delattr(thing, name)
            else:
                setattr(thing, name, value)
        if self._loop._scheduled:
            self._loop.time = lambda: time.monotonic() + ahead
        del HOLDS[self._loop]
        retime(self._loop)


class LoopPatcher:
    """Which loops are turned; while there is virtual time anywhere, also those that are about to start."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._users = 0
        self._turned: dict[Any, VirtualTimeLoop] = {}
        self._run_forever: Any = None

    def turn(self, loop: Any, clock: VirtualClock) -> None:
        """Let a loop go by this clock's time."""
        turned = self._turned.get(loop)
        if turned is None:
            turned = self._turned[loop] = VirtualTimeLoop(loop, clock._course)
        turned.clocks.append(clock)
        LOOPS[loop] = clock

    def turn_back(self, loop: Any, clock: VirtualClock) -> None:
        """Let it go by real time again, unless somebody else goes by virtual time there."""
        turned = self._turned[loop]
        turned.clocks.remove(clock)
        if turned.clocks:
            LOOPS[loop] = turned.clocks[-1]
            return
        del LOOPS[loop], self._turned[loop]
        turned.back()

    def hold(self, users: int) -> None:
        """Count blocks of virtual time in (1) and out (-1)."""
        loop: Any = asyncio.BaseEventLoop
        with self._lock:
            if not self._users:
                self._run_forever, loop.run_forever = loop.run_forever, _run_forever
            self._users += users
            if not self._users:
                loop.run_forever = self._run_forever

    def run(self, loop: Any) -> None:
        """Run a loop, in virtual time if this context has one."""
        clock = VIRTUAL.get()
        if not isinstance(clock, VirtualClock) or clock._over:
            self._run_forever(loop)
            return
        self.turn(loop, clock)
        try:
            self._run_forever(loop)
        finally:
            self.turn_back(loop, clock)


turning = LoopPatcher()


def _run_forever(loop: Any) -> None:
    turning.run(loop)


@public("redouble.testing")
def virtual_time() -> Switch[VirtualClock]:
    """Let time be virtual: sleeping costs nothing and is recorded.

    In blocking code that goes for this context. On asyncio it goes for the whole loop that is running, or
    is started, inside the block, and for your own `asyncio.sleep` too; on uvloop for the delays of policies
    only. Under Trio, run with a `trio.testing.MockClock`, which is followed.

    For a ``with``, which gives the clock, or as a decorator of a test. A block inside a block has a clock of
    its own that goes with the outer one.
    """
    return Switch(_virtual_time)


@contextmanager
def _virtual_time() -> Generator[VirtualClock]:
    outer, before, loop = virtual(), VIRTUAL.get(), _get_running_loop()
    clock = VirtualClock(outer if isinstance(outer, VirtualClock) else None)
    clock._course.hold(1)
    turns = isinstance(loop, asyncio.BaseEventLoop)
    if turns:
        turning.turn(loop, clock)
    VIRTUAL.set(clock)
    turning.hold(1)
    ambient.hold(1)
    try:
        yield clock
    finally:
        ambient.hold(-1)
        turning.hold(-1)
        clock._finish()
        if VIRTUAL.get() is clock:
            VIRTUAL.set(before)
        if turns:
            turning.turn_back(loop, clock)
        clock._course.hold(-1)
