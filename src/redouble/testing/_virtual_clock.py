"""The virtual clock: it moves when somebody sleeps, or when told to.

Only `redouble.testing` uses it. asyncio's own loops are made to go by it (`_turned`). Other loops keep their
own time, so there only our delays are virtual. Trio has a clock for tests already, which is followed.
"""

from __future__ import annotations

import asyncio
import time
from _thread import allocate_lock
from asyncio.events import _get_running_loop
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from redouble._internal.public import public
from redouble._internal.validation import Duration
from redouble._internal.validation import seconds as checked
from redouble._runtime.backend import backend, under_trio
from redouble._runtime.clock import LOOPS, Clock

__all__ = ["HOLDS", "Timeline", "VirtualClock"]


TURNS = 10  # of a loop that keeps its own time: enough for everybody to fall asleep before the first wakes


# How the clocks of loops that go by virtual time are held while a worker is at work.
HOLDS: dict[object, Callable[[int], None]] = {}


class Timeline:
    """The course of time itself: one for a block of virtual time and all blocks inside it."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._passed = 0.0
        self._trio: Any = None  # Trio's clock for tests, if it runs: what it shows comes on top
        self._ended: float | None = None
        self._queues: dict[object, SleeperQueue] = {}
        self._users = 0
        self._workers = 0
        if under_trio():
            self._trio = _trio_clock()

    def now(self) -> float:
        """Tell how much time has passed."""
        if under_trio() and self._ended is None and self._trio is not (theirs := _trio_clock()):
            self._passed, self._trio = self.now_as_known(), theirs  # it began at zero, and after us
        return self.now_as_known()

    def now_as_known(self) -> float:
        """Tell it by the clocks that are known already."""
        theirs: float = 0.0 if self._trio is None else self._trio.current_time()
        return self._passed + theirs + (0.0 if self._ended is None else time.monotonic() - self._ended)

    def advance(self, step: float) -> None:
        """Let time pass."""
        if under_trio():
            self.now()
            self._trio.jump(step)
        else:
            with self._lock:
                self._passed += step

    def move_to(self, moment: float) -> None:
        """Move forwards to a moment; time never goes back."""
        with self._lock:
            theirs = 0.0 if self._trio is None else self._trio.current_time()
            self._passed = max(self._passed, moment - theirs)

    def turns(self) -> bool:
        """Say whether the event loop that is running goes by it too."""
        turned = LOOPS.get(_get_running_loop())
        return under_trio() or (isinstance(turned, VirtualClock) and turned._course is self)

    def wait(self, seconds: float) -> Awaitable[None]:
        """Wait in async code, as long as nobody has anything to do before."""
        self.now()
        if self.turns():
            return backend().sleep(seconds)
        return self._queues.setdefault(_get_running_loop(), SleeperQueue(self)).wait(seconds)

    def busy(self, workers: int) -> None:
        """Count workers in (1) and out (-1), in async code: meanwhile time passes as it really does."""
        if not under_trio():
            hold = HOLDS.get(_get_running_loop())
            if hold is not None:
                hold(workers)
            return
        self.now()
        if not self._workers:
            self._jumping = (self._trio.rate, self._trio.autojump_threshold)
            self._trio.rate, self._trio.autojump_threshold = 1.0, inf
        self._workers += workers
        if not self._workers:
            self._trio.rate, self._trio.autojump_threshold = self._jumping

    def hold(self, users: int) -> None:
        """Count blocks in (1) and out (-1); after the last, time is real again, from where it is."""
        with self._lock:
            self._users += users
            if not self._users:
                self._ended = time.monotonic()


def _trio_clock() -> Any:
    """Find Trio's clock for tests, and see that it moves by itself."""
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
    """Who sleeps on a loop that keeps its own time, and is woken in turn."""

    def __init__(self, course: Timeline) -> None:
        self._course = course
        self._numbers = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    async def wait(self, seconds: float) -> None:
        """Sleep until it is time, and everybody due before has been woken."""
        loop = asyncio.get_running_loop()
        awake = loop.create_future()
        if not self._sleepers:
            loop.call_soon(self._turn, loop, TURNS)
        heappush(self._sleepers, (self._course.now() + seconds, next(self._numbers), awake))
        await awake

    def _turn(self, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        """Let the others have their turns; then wake whoever is to wake first, and begin again."""
        while not turns and self._sleepers:
            moment, _, awake = heappop(self._sleepers)
            if not awake.done():  # cancelled meanwhile
                self._course.move_to(moment)
                awake.set_result(None)
                turns = TURNS + 1
        if self._sleepers:
            loop.call_soon(self._turn, loop, turns - 1)


@public("redouble.testing")
class VirtualClock(Clock):
    """A clock that moves when somebody sleeps, or when told to.

    ``delays`` are the waits of policies, in the order in which they began.
    """

    def __init__(self, outer: VirtualClock | None = None) -> None:
        self.delays: list[float] = []
        self._outer = outer
        self._course: Timeline = Timeline() if outer is None else outer._course
        self._began = self._course.now()
        self._end: float | None = None
        self._over = False

    def now(self) -> float:
        """Return the seconds since it began."""
        return self._going() if self._end is None else self._end

    def _going(self) -> float:
        """Return the same, and after the block go on as real time does."""
        return self._since(self._course.now())

    def _finish(self) -> None:
        """Stand still: the block of virtual time is over, also where somebody still refers to its clock."""
        self._end = self._since(self._course.now_as_known())
        self._over = True

    def _since(self, now: float) -> float:
        # Off another beginning, a second is 1.0000000000009: nobody wants to read that in a test.
        passed = now - self._began
        return round(passed, 9) if self._began else passed

    def _reach(self, moment: float) -> None:
        """Move forwards to a moment by this clock."""
        self._course.move_to(self._began + moment)

    def _turns(self) -> bool:
        """Say whether the event loop that is running goes by it too."""
        return self._course.turns()

    def _lapse(self, seconds: float) -> Awaitable[None]:
        """Let time pass in async code, without recording it."""
        return self._course.wait(seconds)

    def _hold(self, workers: int) -> None:
        """Let time pass as it really does while a worker is at work."""
        self._course.busy(workers)

    def advance(self, seconds: Duration) -> None:
        """Let time pass."""
        self._course.advance(checked(seconds, "seconds"))

    def sleep(self, seconds: float) -> None:
        """Let a delay pass at once, and record it."""
        self._record(seconds)
        self._course.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Let a delay pass as soon as nobody has anything to do before, and record it."""
        self._record(seconds)
        await self._course.wait(seconds)

    def _record(self, seconds: float) -> None:
        clock: VirtualClock | None = self
        while clock is not None:
            clock.delays.append(seconds)
            clock = clock._outer

    def __repr__(self) -> str:
        return f"<virtual clock at {self.now():g} s>"
