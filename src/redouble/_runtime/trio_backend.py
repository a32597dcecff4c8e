"""Time for Trio, and the end of what was abandoned. Imported only once Trio has been imported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any

from trio import CancelScope, Event, RunFinishedError, sleep
from trio import current_time as now
from trio.lowlevel import checkpoint_if_cancelled as checkpoint
from trio.lowlevel import current_clock, in_trio_run, spawn_system_task
from trio.lowlevel import current_trio_token as home
from trio.lowlevel import in_trio_task as running

from redouble._internal.logger import ABANDONED, log

__all__ = [
    "cancelling",
    "checkpoint",
    "clock",
    "cut_after",
    "finish",
    "home",
    "is_home",
    "lift",
    "now",
    "running",
    "sleep",
    "waker",
]


# fmt: on


def cancelling(error: BaseException | None = None) -> bool:  # noqa: ARG001  whatever it is
    """Return False: Trio delivers a cancellation again at every checkpoint, so no wait outlives it."""
    return False


def cut_after(seconds: float) -> CancelScope:
    """Cancel what is in the ``with`` when time is up, and catch the cancellation."""
    return CancelScope(deadline=now() + seconds)


def lift(limit: CancelScope) -> bool:
    """Let a limit cut nothing from now on, unless it has; it has to be left in its turn all the same."""
    limit.deadline = inf
    return not limit.cancel_called


def clock() -> Callable[[], float]:
    """Return what tells the time of this run of Trio, from any thread."""
    return current_clock().current_time


def waker() -> tuple[Callable[[], bool], Callable[[], Awaitable[object]]]:
    """Return how to ring a bell, once and from any thread, and how to wait for it.

    Ringing says whether anybody can hear it.
    """
    rung, here = Event(), home()

    def ring() -> bool:
        try:
            here.run_sync_soon(rung.set)
        except RunFinishedError:  # then nobody waits
            return False
        return True

    return ring, rung.wait


def is_home(place: object) -> bool:
    """Say whether this is that run of Trio, in a task or between tasks."""
    return in_trio_run() and home() is place


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Do ``work`` soon, in a task of its own: what has begun in one task cannot go on in another."""
    spawn_system_task(_quietly, work)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:  # which would end the whole of Trio
        log(ABANDONED, trouble=True)
