"""VirtualClock, the clock of `virtual_time()`, and Timeline, the virtual time that nested clocks share.

Virtual time moves when code sleeps, or by `VirtualClock.advance`. asyncio's own event loops are patched to
run on it (`VirtualTimeLoop`). Other loops keep their own time: only the delays of policies are virtual there.
Trio has its own clock for tests, `MockClock`, which a timeline follows.
"""

from __future__ import annotations

import asyncio
import time
from _thread import allocate_lock
from asyncio.events import _get_running_loop
from collections.abc import Awaitable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from redouble._internal.public import public
from redouble._internal.validation import Duration
from redouble._internal.validation import seconds as checked
from redouble._runtime.backend import backend, under_trio
from redouble._runtime.clock import LOOPS, Clock

if TYPE_CHECKING:
    from redouble.testing._virtual_loop import VirtualTimeLoop

IDLE_TURNS = 10  # iterations of a loop that keeps its own time, so that all tasks sleep before one wakes


# The patches of each loop that is on virtual time.
PATCHED_LOOPS: dict[object, VirtualTimeLoop] = {}


@public("redouble.testing")
class VirtualClock(Clock):
    """A clock that moves when code sleeps, or by `advance`.

    ``delays`` are the delays of policies, in the order in which they started.
    """

    def __init__(self, outer: VirtualClock | None = None) -> None:
        self.delays: list[float] = []
        self._outer = outer
        self._timeline: Timeline = Timeline() if outer is None else outer._timeline
        self._start = self._timeline.now()
        self._end: float | None = None
        self._over = False

    def now(self) -> float:
        """Return the seconds since the clock started; after its block, those at its end."""
        return self._running_now() if self._end is None else self._end

    def _running_now(self) -> float:
        """Return the seconds since the clock started; after its block they continue as real time does."""
        return self._elapsed(self._timeline.now())

    def _finish(self) -> None:
        """Stop the clock: its block is over, even if a task or context still refers to it."""
        if self._end is None:  # pragma: no branch  it may be interrupted, and repeated
            self._end = self._elapsed(self._timeline.last_known())
        self._over = True

    def _elapsed(self, now: float) -> float:
        # With a start other than 0, a second may be 1.0000000000009, which is unreadable in a test.
        passed = now - self._start
        return round(passed, 9) if self._start else passed

    def _move_to(self, moment: float) -> None:
        """Move forwards to a time of this clock."""
        self._timeline.move_to(self._start + moment)

    def _drives_running_loop(self) -> bool:
        """Return True if the running event loop is on this virtual time too."""
        return self._timeline.drives_running_loop()

    def _wait_unrecorded(self, seconds: float) -> Awaitable[None]:
        """Sleep in async code without recording a delay."""
        return self._timeline.wait(seconds)

    def _count_workers(self, workers: int) -> None:
        """Count running workers, +1 or -1: while there are any, time is real."""
        self._timeline.count_workers(workers)

    def advance(self, seconds: Duration) -> None:
        """Move time forwards."""
        self._timeline.advance(checked(seconds, "seconds"))

    def sleep(self, seconds: float) -> None:
        """Record a delay and let it pass at once."""
        self._record(seconds)
        self._timeline.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Record a delay and sleep: time moves as soon as no task has anything to do before."""
        self._record(seconds)
        await self._timeline.wait(seconds)

    def _record(self, seconds: float) -> None:
        clock: VirtualClock | None = self
        while clock is not None:
            clock.delays.append(seconds)
            clock = clock._outer

    def __repr__(self) -> str:
        return f"<virtual clock at {self.now():g} s>"


class Timeline:
    """Virtual time itself: one for a block of `virtual_time()` and all blocks nested in it."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._offset = 0.0
        # Trio's MockClock, if Trio runs: its time is added.
        self._trio: Any = _trio_clock() if under_trio() else None
        self._ended_at: float | None = None
        self._queues: dict[object, SleeperQueue] = {}
        self._blocks: dict[object, None] = {}
        self._workers = 0

    def now(self) -> float:
        """Return the seconds that have passed; follow a Trio clock that was started meanwhile."""
        if under_trio() and self._ended_at is None and self._trio is not (clock := _trio_clock()):
            self._offset, self._trio = self.last_known(), clock  # it started at zero, after this timeline
        return self.last_known()

    def last_known(self) -> float:
        """Return the seconds that have passed, without looking for a new Trio clock."""
        since_end = 0.0 if self._ended_at is None else time.monotonic() - self._ended_at
        return self._offset + self._trio_time() + since_end

    def _trio_time(self) -> float:
        return 0.0 if self._trio is None else float(self._trio.current_time())

    def advance(self, seconds: float) -> None:
        """Move time forwards."""
        if under_trio():
            self.now()
            self._trio.jump(seconds)
        else:
            with self._lock:
                self._offset += seconds

    def move_to(self, moment: float) -> None:
        """Move forwards to a time; never backwards."""
        with self._lock:
            self._offset = max(self._offset, moment - self._trio_time())

    def drives_running_loop(self) -> bool:
        """Return True if the running event loop is on this virtual time too."""
        clock = LOOPS.get(_get_running_loop())
        return under_trio() or (isinstance(clock, VirtualClock) and clock._timeline is self)

    def wait(self, seconds: float) -> Awaitable[None]:
        """Sleep in async code: time moves as soon as no task has anything to do before."""
        self.now()
        if self.drives_running_loop():
            return backend().sleep(seconds)
        return self._queues.setdefault(_get_running_loop(), SleeperQueue(self)).wait(seconds)

    def count_workers(self, workers: int) -> None:
        """Count running workers, +1 or -1, in async code: while there are any, time is real."""
        if not under_trio():
            patched = PATCHED_LOOPS.get(_get_running_loop())
            if patched is not None:
                patched.count_workers(workers)
            return
        self.now()
        if not self._workers:
            self._trio_settings = (self._trio.rate, self._trio.autojump_threshold)
            self._trio.rate, self._trio.autojump_threshold = 1.0, inf
        self._workers += workers
        if not self._workers:
            self._trio.rate, self._trio.autojump_threshold = self._trio_settings

    def add_block(self, block: object) -> None:
        """Add an active block."""
        with self._lock:
            self._blocks[block] = None

    def remove_block(self, block: object) -> None:
        """Remove a block, perhaps again; after the last one time continues as real time, from where it is."""
        with self._lock:
            self._blocks.pop(block, None)
            if not self._blocks and self._ended_at is None:
                self._ended_at = time.monotonic()


def _trio_clock() -> Any:
    """Return Trio's `MockClock`, and make it jump when all tasks sleep."""
    import trio  # noqa: PLC0415  it is running
    from trio.testing import MockClock  # noqa: PLC0415

    clock: Any = trio.lowlevel.current_clock()
    if not isinstance(clock, MockClock):
        raise RuntimeError(
            "virtual_time() cannot move Trio's real clock: "
            "write trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))"
        )
    if clock.rate == 0 and clock.autojump_threshold == inf:
        clock.autojump_threshold = 0
    return clock


class SleeperQueue:
    """The sleeping tasks of a loop that keeps its own time, woken in the order of their times."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._numbers = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    async def wait(self, seconds: float) -> None:
        """Sleep until the time is reached and every task due before has been woken."""
        loop = asyncio.get_running_loop()
        awake = loop.create_future()
        if not self._sleepers:
            loop.call_soon(self._wake_next, loop, IDLE_TURNS)
        heappush(self._sleepers, (self._timeline.now() + seconds, next(self._numbers), awake))
        await awake

    def _wake_next(self, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        """Let the other tasks run for ``turns`` iterations, then wake the earliest sleeper, and repeat."""
        while not turns and self._sleepers:
            moment, _, awake = heappop(self._sleepers)
            if not awake.done():  # else cancelled meanwhile
                self._timeline.move_to(moment)
                awake.set_result(None)
                turns = IDLE_TURNS + 1
        if self._sleepers:
            loop.call_soon(self._wake_next, loop, turns - 1)
