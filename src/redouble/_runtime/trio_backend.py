"""The backend for Trio. Imported only once Trio has been imported."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from math import inf
from typing import Any

import trio
from trio import CancelScope, lowlevel

from redouble._internal.logger import ABANDONED, log
from redouble._runtime.loop_waker import LoopWaker, make_waker

now = trio.current_time
sleep = trio.sleep
checkpoint = lowlevel.checkpoint_if_cancelled
home = lowlevel.current_trio_token
running = lowlevel.in_trio_task


def cancelling(error: BaseException | None = None) -> bool:  # noqa: ARG001  of the interface
    """Return False: Trio delivers a cancellation again at every checkpoint, so no wait outlives it."""
    return False


def task_cancelled(error: BaseException | None = None) -> bool:  # noqa: ARG001  of the interface
    """Return True if this task is cancelled, even if the operation raised another error instead."""
    return trio.current_effective_deadline() == -inf


def cancel_after(seconds: float) -> CancelScope:
    """Return a scope that is cancelled after ``seconds`` and catches its own cancellation."""
    return CancelScope(deadline=now() + seconds)


def seconds_left(limit: CancelScope) -> float:
    """Return the seconds until the limit of a scope."""
    return limit.deadline - now()


def remove_limit(limit: CancelScope) -> bool:
    """Remove the time limit of a scope without exiting it; return False if it was already cancelled."""
    limit.deadline = inf
    return not limit.cancel_called


def clock() -> Callable[[], float]:
    """Return the callable that reads the clock of this Trio run; any thread may call it."""
    return lowlevel.current_clock().current_time


def waker() -> LoopWaker:
    """Return two functions: ``wake``, to call once from any thread, and one to await until it is called."""
    return make_waker(trio.Event(), home().run_sync_soon)


def direct_waker() -> LoopWaker:
    """Return the same functions for a task that is usually woken in its own Trio run, which is faster."""
    event, run = trio.Event(), home()

    def wake() -> bool:
        if is_home(run):
            event.set()
            return True
        try:
            run.run_sync_soon(event.set)
        except RuntimeError:  # the run has ended
            return False
        return True

    return wake, event.wait


def is_home(token: object) -> bool:
    """Return True if this is the token of the current Trio run, in a task or between tasks."""
    return lowlevel.in_trio_run() and home() is token


def awaiting_tasks(task: lowlevel.Task | None = None) -> Iterator[object]:
    """Yield the coroutine of the task that waits in its nursery for this one to end, then of its own."""
    task = task or lowlevel.current_task()
    # A task that is still in the block of its nursery runs code that is not around this task.
    while (nursery := task.parent_nursery) is not None and getattr(
        nursery, "_parent_waiting_in_aexit", False
    ):
        task = nursery.parent_task
        yield task.coro


def run_detached(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` soon, all of it in a task of its own: Trio cannot move a coroutine to another task."""
    lowlevel.spawn_system_task(_quietly, work)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:  # an error in a system task would crash the Trio run
        log(ABANDONED, error=True)
