"""The backend for asyncio, on any event loop. Imported once asyncio is running.

Time limits are in `asyncio_timer`: each loop has one timer for all of them.

Before Python 3.13 a failed `asyncio.TaskGroup` may leave a cancellation request behind. The group cancels the
task it waits in when one of its own tasks fails. If the waiting task had reached the end of the
``async with`` by then, older versions never call `Task.uncancel`: the task counts as being cancelled for
ever, and nothing would be retried in it. `uncancel_failed_groups` makes the missing call.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import CancelledError, Future, Task, current_task, events, get_running_loop
from collections.abc import Awaitable, Coroutine, Generator, Iterator
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType, coroutine
from typing import Any, cast

from redouble._runtime.asyncio_timer import TimerEntry
from redouble._runtime.loop_waker import LoopWaker, make_waker

# The system's monotonic clock and not `loop.time()`: that is the same clock on asyncio's own loops, and on
# uvloop a cached one that stands still while a callback runs.
now = time.monotonic
home = events._get_running_loop
cancel_after = TimerEntry


class Delay(Future[None]):
    """A future that is done after a delay, or cancelled with its timer.

    Not `asyncio.sleep`, whose coroutine takes more memory than this future: every call that waits for a retry
    would have one.
    """

    __slots__ = ("_handle",)

    def __init__(self, seconds: float) -> None:
        loop = get_running_loop()
        super().__init__(loop=loop)
        self._handle = loop.call_later(seconds, Delay._end, self)

    def _end(self) -> None:
        self._handle.cancel()  # break the cycle of the handle and this future
        self.set_result(None)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future and its timer."""
        self._handle.cancel()
        return super().cancel(msg)


@coroutine
def _yield() -> Generator[None]:
    """Let the event loop run once: what `asyncio.sleep(0)` does, which a test of the caller's may replace."""
    yield


def sleep(seconds: float) -> Awaitable[None]:
    """Return an awaitable that ends after ``seconds``; at least one checkpoint, also for 0 seconds."""
    return Delay(seconds) if seconds > 0 else _yield()


def cancelling(error: BaseException | None = None) -> bool:
    """Return True if cancellation of this task was requested, even if the operation swallowed it."""
    try:
        task = current_task()
    except RuntimeError:  # the coroutine is driven by hand, without a loop
        return False
    if task is None or not task.cancelling():
        return False
    uncancel_failed_groups(task, error)
    return task.cancelling() > 0


task_cancelled = cancelling


GROUP_EXIT: Any = asyncio.TaskGroup.__aexit__.__code__
UNCANCELLED = "_redouble_uncancelled"  # an attribute of groups that have been handled
MAX_CAUSES = 10

# Versions without the defect call `Task.cancelling` in this method.
GROUPS_UNCANCEL = "cancelling" in GROUP_EXIT.co_names


def uncancel_failed_groups(task: Task[Any], error: BaseException | None) -> None:
    """Call `Task.uncancel` once for each task group that this error, or a cause of it, was raised from."""
    for _ in range(0 if GROUPS_UNCANCEL else MAX_CAUSES):
        if error is None:
            return
        tb = error.__traceback__
        while tb is not None:
            frame: Any = tb.tb_frame
            if frame.f_code is GROUP_EXIT and frame.f_locals.get("et") is None:
                group: Any = frame.f_locals["self"]
                requested = group._parent_task is task and group._parent_cancel_requested
                if requested and UNCANCELLED not in vars(group):
                    setattr(group, UNCANCELLED, True)
                    task.uncancel()
            tb = tb.tb_next
        error = error.__cause__ or error.__context__


async def checkpoint() -> None:
    """Raise the pending cancellation of the current task, if there is one."""
    if cancelling():
        await sleep(0)


seconds_left = TimerEntry.left


def remove_limit(limit: TimerEntry) -> bool:
    """Remove the time limit of a scope that is still entered; return True."""
    limit.__exit__(None, None, None)
    return True


def waker() -> LoopWaker:
    """Return two functions: ``wake``, to call once from any thread, and one to await until it is called."""
    return make_waker(asyncio.Event(), get_running_loop().call_soon_threadsafe)


def direct_waker() -> LoopWaker:
    """Return the same functions for a task that is usually woken in its own event loop, which is faster."""
    loop = get_running_loop()
    future: Future[None] = loop.create_future()
    return partial(_wake, loop, future), lambda: future


def _wake(loop: asyncio.AbstractEventLoop, future: Future[None]) -> bool:
    if home() is loop:
        if not future.done():
            future.set_result(None)
        return True
    try:
        loop.call_soon_threadsafe(_wake, loop, future)
    except RuntimeError:  # the event loop has ended
        return False
    return True


def is_home(loop: object) -> bool:
    """Return True if this event loop runs in the current thread."""
    return loop is not None and home() is loop


def awaiting_tasks(task: Task[Any] | None = None) -> Iterator[object]:
    """Yield the coroutine of the task that awaits this one, by default the current, then of its own."""
    try:
        task = task or current_task()
    except RuntimeError:  # the coroutine is driven by hand, without a loop
        return
    for _ in range(MAX_TASKS):  # tasks that have reached a deadlock may await one another
        if task is None or len(tasks := _tasks_awaiting(task)) != 1:
            return
        [task] = tasks
        yield task.get_coro()


MAX_TASKS = 100


def _tasks_awaiting(future: Any) -> list[Task[Any]]:
    """Return the tasks that await a future: directly, or with `gather`, `wait_for` or a task group.

    asyncio records which future a task waits for, and not which task waits for a future. But the future that
    the task waits for is set by a callback of this one.
    """
    tasks: list[Task[Any]] = []
    for callback, _ in getattr(future, "_callbacks", None) or ():  # another kind of task may have none
        kind = cast("object", type(callback))
        owner: Any = None
        if kind is BuiltinMethodType or kind is MethodType:
            owner = callback.__self__
            if isinstance(owner, Task):
                tasks += [owner] if cast("Any", owner)._fut_waiter is future else []
                continue
            owner = owner if isinstance(owner, asyncio.TaskGroup) else None
        elif kind is FunctionType:
            variable = GATHERING.get(callback.__qualname__)
            owner = None if variable is None else _variable_of(callback, variable)
        elif kind is partial and callback.func is RELEASE_WAITER:
            owner = callback.args[0]
        # The task of a group awaits the others once it has left the block.
        awaited = None if owner is None else getattr(owner, "_on_completed_fut", owner)
        if isinstance(awaited, Future):
            tasks += _tasks_awaiting(awaited)
    return tasks


def _variable_of(callback: Any, name: str) -> Any:
    names = callback.__code__.co_freevars
    return callback.__closure__[names.index(name)].cell_contents if name in names else None


# The callbacks of `gather` and of AnyIO's task group, and their variable that has the future, or the group.
GATHERING = {"gather.<locals>._done_callback": "outer", "TaskGroup._spawn.<locals>.task_done": "self"}
# A callback of `wait_for` before Python 3.12.
RELEASE_WAITER: object = getattr(asyncio.tasks, "_release_waiter", partial)


def run_detached(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` up to its first wait now, and the remainder in a task of its own.

    The task exists from the start: an `asyncio.timeout` that the work enters must belong to that task, not to
    the current one.
    """
    loop, current = get_running_loop(), current_task()
    primed = PrimedCoroutine(work)
    task = Task(primed, loop=loop)
    if current is not None:
        asyncio._leave_task(loop, current)
    asyncio._enter_task(loop, task)
    try:
        primed.begin()
    finally:
        asyncio._leave_task(loop, task)
        if current is not None:
            asyncio._enter_task(loop, current)


class PrimedCoroutine(Coroutine[Any, Any, None]):
    """A coroutine that has been run up to its first wait, and that its task continues from there."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self._first: list[Any] = []  # what the coroutine yielded first, until the task has received it
        self._ended = False
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Run up to the first wait."""
        try:
            self._first.append(self._work.send(None))
        except StopIteration:
            self._ended = True
        except (Exception, CancelledError) as error:  # asyncio logs it
            self._ended, self._error = True, error

    def send(self, value: Any, /) -> Any:
        """Yield what the coroutine yielded first; afterwards, continue it."""
        if self._ended:
            raise self._error or StopIteration
        return self._first.pop() if self._first else self._work.send(value)

    def throw(self, kind: Any, *more: Any) -> Any:
        """Throw into the coroutine, unless it has ended."""
        if self._ended:
            raise self._error or StopIteration
        self._first.clear()
        return self._work.throw(kind, *more)

    def close(self) -> None:
        """Close the coroutine."""
        self._work.close()

    def __await__(self) -> Any:
        return (yield from self._work.__await__())
