"""One timer for all time limits of an asyncio event loop.

A limit is rarely reached, so entering and leaving one must be cheap: an entry in a heap, and no timer handle
of the loop. The loop has one handle, for the earliest entry. The block of that entry may have been left when
the handle fires; then nothing expires, and the timer is armed for the next entry.

Rule 1: never early. No task is cancelled before the clock has reached its limit, however imprecise the
        loop's timers are.
Rule 2: a task that is already runnable wins over its limit. Cancellation is delivered two loop iterations
        after the deadline: in the first one the loop notices events of the same moment, in the second it
        runs their callbacks.
Rule 3: the caller's cancellation is never mistaken for ours. We count our own requests, as `asyncio.timeout`
        does, and uncancel no more than these.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, BaseEventLoop, CancelledError, Task, TimerHandle, current_task
from asyncio.events import _get_running_loop
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from time import monotonic
from typing import Any, Self, cast
from weakref import ref

MAX_STALE = 64  # entries that have been left and stay in the heap, because searching for them costs more
ROUNDING = 0.001  # second: added for loops other than asyncio's own, whose timers count in milliseconds

CACHED_TIME = ("uvloop", "winloop")  # loops whose time stands still while a callback runs

# Entries with equal deadlines expire in the order of entering: the outer one first.
_number = count().__next__


class TimerEntry:
    """A time limit: cancels the current task when it is reached, and catches the cancellation.

    The interface is that of Trio's cancel scope. ``cancel_called``: the limit was reached.
    ``cancelled_caught``: the block ended by that cancellation.
    """

    __slots__ = ("_before", "_due", "_task", "_timer", "cancel_called", "cancelled_caught")

    def __init__(self, seconds: float) -> None:
        self.cancel_called = self.cancelled_caught = False
        self._task: Task[Any] | None = None
        if seconds == inf:
            return
        running = _get_running_loop()
        if running is None or (task := current_task(running)) is None:
            return  # the coroutine is driven by hand, without a loop or a task: there is nothing to cancel
        loop: Any = running
        self._task = task
        self._before = task.cancelling()
        try:
            timer: Timer = loop._redouble_timer
        except AttributeError:
            timer = Timer(loop)
        self._timer: Timer | None = timer
        self._due = moment = timer.clock() + seconds
        if timer.stale > MAX_STALE:
            timer.sweep()
        heappush(timer.heap, (moment, _number(), self))
        if moment < timer.armed:
            timer.arm(loop, moment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
        task = self._task
        if task is None:
            return False
        self._task = None
        timer, self._timer = self._timer, None
        if timer is not None:
            heap = timer.heap
            # The newest entry is nearly always the last leaf. On GeneratorExit the garbage collector may run
            # this in any thread, so the heap is left alone.
            if kind is not GeneratorExit and heap and heap[-1][2] is self:
                heap.pop()
            else:
                timer.stale += 1
            if timer.uses_loop_clock:
                timer.disarm_if_idle()
        if self.cancel_called and task.uncancel() <= self._before and isinstance(error, CancelledError):
            self.cancelled_caught = True
        return self.cancelled_caught

    def left(self) -> float:
        """Return the seconds until the limit, 0 once it was reached; infinity if there is none."""
        if self._task is None:
            return inf
        return 0.0 if self._timer is None else self._due - self._timer.clock()

    def expire(self) -> None:
        """Cancel the task, unless the block has been left."""
        if self._task is not None:
            self.cancel_called = True
            self._task.cancel()


class RepeatingTimerEntry(TimerEntry):
    """A limit that can be armed again. Subclasses override ``expire``, which cancels the task by default."""

    __slots__ = ()

    def bind(self) -> None:
        """Belong to the current task without a limit: for an entry made with infinite seconds."""
        running = _get_running_loop()
        task = None if running is None else current_task(running)
        if task is not None:
            self._task, self._before, self._timer = task, task.cancelling(), None

    def rearm(self, seconds: float) -> None:
        """Arm the entry again."""
        loop: Any = _get_running_loop()
        timer: Timer = getattr(loop, "_redouble_timer", None) or Timer(loop)
        self._timer = timer
        moment = timer.clock() + seconds
        heappush(timer.heap, (moment, _number(), self))
        if moment < timer.armed:
            timer.arm(loop, moment)

    def cancel_soon(self) -> None:
        """Cancel the task two loop iterations from now (rule 2), once, unless the block has been left."""
        loop: Any = _get_running_loop()
        loop.call_soon(loop.call_soon, self._end, context=Context())

    def _end(self) -> None:
        if not self.cancel_called:
            super().expire()


class Timer:
    """The heap of limits of one loop, the earliest first. It is an attribute of the loop and ends with it."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.heap: list[tuple[float, int, TimerEntry]] = []
        self.stale = 0  # number of stale entries: their blocks have been left
        self.armed = inf
        self._handle: Callable[[], TimerHandle | None] = _none
        self.exact = isinstance(loop, BaseEventLoop)
        self.choose_clock(loop)
        with suppress(AttributeError):  # a loop that accepts no attributes gets a timer for each limit
            cast("Any", loop)._redouble_timer = self

    def choose_clock(self, loop: AbstractEventLoop) -> None:
        """Choose the clock: the loop's own if its class overrides it, or if virtual time has replaced it.

        Otherwise the system's: the loop's clock is the same one, or stands still while a callback runs.
        """
        real = type(loop).time is BaseEventLoop.time or type(loop).__module__ in CACHED_TIME
        self.uses_loop_clock = not real or "time" in getattr(loop, "__dict__", {})
        self.clock: Callable[[], float] = loop.time if self.uses_loop_clock else monotonic

    def arm(self, loop: AbstractEventLoop, moment: float) -> None:
        """Schedule `fire` for this moment, or slightly later."""
        self.disarm()
        self.armed = moment
        delay = max(0.0, moment - self.clock())
        # In an empty context: the timer outlives the call that arms it.
        if self.exact:
            handle = loop.call_at(loop.time() + delay, self.fire, loop, context=Context())
        else:
            handle = loop.call_later(delay + ROUNDING, self.fire, loop, context=Context())
        self._handle = ref(handle)  # weak: the handle refers to the loop, which refers to this timer

    def disarm(self) -> None:
        """Cancel the scheduled handle."""
        handle, self._handle, self.armed = self._handle(), _none, inf
        if handle is not None:
            handle.cancel()

    def fire(self, loop: AbstractEventLoop) -> None:
        """Expire the entries whose limit is reached (rule 2), and arm for the next one."""
        self._handle, self.armed = _none, inf
        # A loop with virtual time advances to the requested moment only to within its clock resolution.
        now = self.clock() + (getattr(loop, "_clock_resolution", 0.0) if self.uses_loop_clock else 0.0)
        heap = self.heap
        while heap and (heap[0][0] <= now or heap[0][2]._task is None):
            entry = heappop(heap)[2]
            if entry._task is None:
                self.stale -= 1
            else:
                entry._timer = None  # no longer in the heap
                loop.call_soon(loop.call_soon, entry.expire, context=Context())
        if heap:
            self.arm(loop, heap[0][0])

    def sweep(self) -> None:
        """Remove stale entries, unless most entries are in use."""
        if 2 * self.stale > len(self.heap):
            self.heap[:] = [entry for entry in self.heap if entry[2]._task is not None]
            heapify(self.heap)
            self.stale = 0

    def disarm_if_idle(self) -> None:
        """Disarm if no limit is in force: virtual time would advance to the scheduled moment."""
        if self.stale >= len(self.heap):
            self.disarm()
            self.heap.clear()
            self.stale = 0


def _none() -> None:
    """Return None, as a dead weak reference does."""


def choose_timer_clock(loop: AbstractEventLoop) -> None:
    """Choose the clock of the loop's timer again, after virtual time was installed or removed."""
    timer: Timer | None = getattr(loop, "_redouble_timer", None)
    if timer is not None:
        timer.choose_clock(loop)
