"""One timer for all the limits of an event loop. Only `_asyncio` uses it.

A limit is nearly always left in time, so entering and leaving one must cost little: an entry in a heap,
and no timer of the loop's own. The loop is asked to wake us for the earliest one only; it may turn out to
have been left by then, and that is all it costs.

Rule 1: never early. Whatever loop and timer are worth, nothing is cut before the clock says so.
Rule 2: who is about to go on anyway goes on. The cut comes two turns of the loop after the moment: in the
        first one whatever happened at the same moment is noticed, in the second it is acted upon.
Rule 3: the caller's cancellation is never taken for ours. We count our own, as `asyncio.timeout` does, and
        take back no more than that.
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
from types import TracebackType
from typing import Any, Self, cast
from weakref import ref

__all__ = ["RepeatingTimerEntry", "TimerEntry", "retime"]


MOST_LEFT = 64  # entries that have been left, kept for the sake of not looking for them
ROUNDING = 0.001  # of loops other than asyncio's own, whose timers count in milliseconds

CACHING = ("uvloop", "winloop")  # loops whose time stands still while a callback runs

_number = count().__next__  # equal moments come in the order of entering: the outer one first


class TimerEntry:
    """A limit: what is in its ``with`` is cancelled when time is up, and the cancellation caught.

    It has the face of Trio's cancel scope. ``cancel_called``: time was up. ``cancelled_caught``: and what
    was inside ended by that.
    """

    __slots__ = ("_before", "_task", "_timer", "cancel_called", "cancelled_caught")

    def __init__(self, seconds: float) -> None:
        self.cancel_called = self.cancelled_caught = False
        self._task: Task[Any] | None = None
        if seconds == inf:
            return
        running = _get_running_loop()
        if running is None or (task := current_task(running)) is None:
            return  # driven by hand, without a loop or a task: there is nobody to cancel
        loop: Any = running
        self._task = task
        self._before = task.cancelling()
        try:
            timer: Timer = loop._redouble_timer
        except AttributeError:
            timer = Timer(loop)
        self._timer: Timer | None = timer
        moment = timer.clock() + seconds
        if timer.left > MOST_LEFT:
            timer.sweep()
        heappush(timer.heap, (moment, _number(), self))
        if moment < timer.armed:
            timer.arm(loop, moment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        task = self._task
        if task is None:
            return False
        self._task = None
        timer, self._timer = self._timer, None
        if timer is not None:
            heap = timer.heap
            # Who came last is the last leaf, as a rule. The garbage collector may come in any thread.
            if kind is not GeneratorExit and heap and heap[-1][2] is self:
                heap.pop()
            else:
                timer.left += 1
            if timer.turned:
                timer.rest()
        if self.cancel_called and task.uncancel() <= self._before and isinstance(error, CancelledError):
            self.cancelled_caught = True
        return self.cancelled_caught

    def cut(self) -> None:
        """Cancel what is inside, if it is still there."""
        if self._task is not None:
            self.cancel_called = True
            self._task.cancel()


class RepeatingTimerEntry(TimerEntry):
    """A limit that cuts nothing when time is up, but wakes somebody: say whom in ``cut``."""

    __slots__ = ()

    def again(self, seconds: float) -> None:
        """Be woken once more."""
        loop: Any = _get_running_loop()
        timer: Timer = getattr(loop, "_redouble_timer", None) or Timer(loop)
        self._timer = timer
        moment = timer.clock() + seconds
        heappush(timer.heap, (moment, _number(), self))
        if moment < timer.armed:
            timer.arm(loop, moment)

    def end(self) -> None:
        """Cancel what is inside, soon and once, if it is still there: by rule 2."""
        loop: Any = _get_running_loop()
        loop.call_soon(loop.call_soon, self._end, context=Context())

    def _end(self) -> None:
        if not self.cancel_called:
            super().cut()


class Timer:
    """The limits of one loop, the earliest first. It is an attribute of the loop, and so ends with it."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.heap: list[tuple[float, int, TimerEntry]] = []
        self.left = 0  # how many of them have been left
        self.armed = inf
        self._handle: Callable[[], TimerHandle | None] = _none
        self.exact = isinstance(loop, BaseEventLoop)
        self.retime(loop)
        with suppress(AttributeError):  # a loop that takes no attributes has a timer for each limit
            cast("Any", loop)._redouble_timer = self

    def retime(self, loop: AbstractEventLoop) -> None:
        """Go by the loop's own clock if it is of its own kind, or a test has turned it.

        Else by the system's: the loop's is that with a detour, or stands still while a callback runs.
        """
        real = type(loop).time is BaseEventLoop.time or type(loop).__module__ in CACHING
        self.turned = not real or "time" in getattr(loop, "__dict__", {})
        self.clock: Callable[[], float] = loop.time if self.turned else monotonic

    def arm(self, loop: AbstractEventLoop, moment: float) -> None:
        """Have the loop wake us at this moment, or a little later."""
        self.disarm()
        self.armed = moment
        delay = max(0.0, moment - self.clock())
        # In a context of its own: the timer outlives the call that happens to arm it.
        if self.exact:
            handle = loop.call_at(loop.time() + delay, self.ring, loop, context=Context())
        else:
            handle = loop.call_later(delay + ROUNDING, self.ring, loop, context=Context())
        self._handle = ref(handle)  # it holds the loop, which holds us

    def disarm(self) -> None:
        """Ask for no waking."""
        handle, self._handle, self.armed = self._handle(), _none, inf
        if handle is not None:
            handle.cancel()

    def ring(self, loop: AbstractEventLoop) -> None:
        """Cut whoever's time is up, soon; sleep until the next one's is."""
        self._handle, self.armed = _none, inf
        # A turned loop moves its clock to where it was asked to, give or take its resolution.
        now = self.clock() + (getattr(loop, "_clock_resolution", 0.0) if self.turned else 0.0)
        heap = self.heap
        while heap and (heap[0][0] <= now or heap[0][2]._task is None):
            cut = heappop(heap)[2]
            if cut._task is None:
                self.left -= 1
            else:
                cut._timer = None  # it is not here any more when it is left
                loop.call_soon(loop.call_soon, cut.cut, context=Context())
        if heap:
            self.arm(loop, heap[0][0])

    def sweep(self) -> None:
        """Drop the entries that have been left, unless most are still in use."""
        if 2 * self.left > len(self.heap):
            self.heap[:] = [entry for entry in self.heap if entry[2]._task is not None]
            heapify(self.heap)
            self.left = 0

    def rest(self) -> None:
        """Ask for no waking if nobody is limited: virtual time would jump there."""
        if self.left >= len(self.heap):
            self.disarm()
            self.heap.clear()
            self.left = 0


def _none() -> None:
    """Stand for a reference to nothing."""


def retime(loop: AbstractEventLoop) -> None:
    """Learn that a test has turned the loop's clock, or turned it back."""
    timer: Timer | None = getattr(loop, "_redouble_timer", None)
    if timer is not None:
        timer.retime(loop)
