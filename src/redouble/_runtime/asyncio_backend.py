"""Time for asyncio, any loop, and the end of what was abandoned. Imported only once asyncio is running.

The limits of attempts, for which each loop has one timer, are in `_timer`.

What a failed `asyncio.TaskGroup` leaves behind before Python 3.13: a cancellation that nobody asked for.

A group cancels the task it waits in when one of its own fails. If that task had come to the end of the
``async with`` by then, older versions never take it back: the task counts as being cancelled for ever, and so
nothing would ever be retried in it. Only `_asyncio` uses this.
"""

from __future__ import annotations

from asyncio import (
    CancelledError,
    Event,
    Task,
    TaskGroup,
    _enter_task,
    _leave_task,
    current_task,
    get_running_loop,
    sleep,
)
from asyncio.events import _get_running_loop as home
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic as now
from typing import Any

from redouble._runtime.asyncio_timer import TimerEntry

__all__ = [
    "cancelling",
    "checkpoint",
    "cut_after",
    "finish",
    "home",
    "is_home",
    "lift",
    "now",
    "sleep",
    "take_back",
    "waker",
]


LEAVING: Any = TaskGroup.__aexit__.__code__
TAKEN = "_redouble_took_back"
DEEP = 10  # more causes than anybody has

# Versions that count right look at the count.
RIGHT = "cancelling" in LEAVING.co_names


def take_back(task: Task[Any], error: BaseException | None) -> None:
    """Take back what the group has left that this error came out of, if it came out of one."""
    for _ in range(0 if RIGHT else DEEP):
        if error is None:
            return
        tb = error.__traceback__
        while tb is not None:
            frame: Any = tb.tb_frame
            if frame.f_code is LEAVING and frame.f_locals.get("et") is None:
                group: Any = frame.f_locals["self"]
                if group._parent_task is task and group._parent_cancel_requested and TAKEN not in vars(group):
                    setattr(group, TAKEN, True)
                    task.uncancel()
            tb = tb.tb_next
        error = error.__cause__ or error.__context__


cut_after = TimerEntry

# `now` is the system's monotonic clock and not `loop.time()`: that is the same clock on asyncio's own
# loops, and on uvloop a cached one that stands still while a callback runs.


def cancelling(error: BaseException | None = None) -> bool:
    """Say whether somebody asked for this task to be cancelled, even if the request was swallowed."""
    try:
        task = current_task()
    except RuntimeError:  # the coroutine is driven by hand, without a loop
        return False
    if task is None or not task.cancelling():
        return False
    take_back(task, error)
    return task.cancelling() > 0


async def checkpoint() -> None:
    """Raise the cancellation that the running task has coming, if it has."""
    if cancelling():
        await sleep(0)


def lift(limit: TimerEntry) -> bool:
    """Let a limit cut nothing from now on, though it is not left yet."""
    limit.__exit__(None, None, None)
    return True


def waker() -> tuple[Callable[[], bool], Callable[[], Awaitable[object]]]:
    """Return how to ring a bell, once and from any thread, and how to wait for it.

    Ringing says whether anybody can hear it.
    """
    rung, loop = Event(), get_running_loop()

    def ring() -> bool:
        try:
            loop.call_soon_threadsafe(rung.set)
        except RuntimeError:  # the loop has been closed, so nobody waits
            return False
        return True

    return ring, rung.wait


def is_home(loop: object) -> bool:
    """Say whether this loop runs here."""
    return loop is not None and home() is loop


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Do ``work`` at once as far as it goes without waiting; the rest, if any, in a task of its own.

    The task is there from the start: what the work enters, such as an `asyncio.timeout`, must belong to
    that task and not to the one that happens to run.
    """
    loop, current = get_running_loop(), current_task()
    begun = PrimedCoroutine(work)
    task = Task(begun, loop=loop)
    if current is not None:
        _leave_task(loop, current)
    _enter_task(loop, task)
    try:
        begun.begin()
    finally:
        _leave_task(loop, task)
        if current is not None:
            _enter_task(loop, current)


class PrimedCoroutine(Coroutine[Any, Any, None]):
    """A coroutine that has been run up to its first wait; its task goes on from there."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self._first: list[Any] = []  # what it waits for first, until the task has taken that over
        self._ended: BaseException | None = None

    def begin(self) -> None:
        """Run up to the first wait."""
        try:
            self._first.append(self._work.send(None))
        except (Exception, CancelledError) as end:  # StopIteration, if all went well; asyncio logs the rest
            self._ended = end

    def send(self, value: Any, /) -> Any:
        """Wait for the first thing, then go on."""
        if self._ended is not None:
            raise self._ended
        return self._first.pop() if self._first else self._work.send(value)

    def throw(self, kind: Any, *more: Any) -> Any:
        """Throw into the work, if there is any left."""
        if self._ended is not None:
            raise self._ended
        self._first.clear()
        return self._work.throw(kind, *more)

    def close(self) -> None:
        """Give up on the rest."""
        self._work.close()

    def __await__(self) -> Any:
        return (yield from self._work.__await__())
