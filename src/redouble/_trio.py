"""Time for Trio, and the end of what was abandoned. Imported only once Trio has been imported."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from trio import current_time as now
from trio import sleep
from trio.lowlevel import current_trio_token as home
from trio.lowlevel import in_trio_run, spawn_system_task
from trio.lowlevel import in_trio_task as running

from redouble._log import ABANDONED, log

__all__ = ["cancelling", "finish", "home", "is_home", "now", "running", "sleep"]


def cancelling() -> bool:
    """Return False: Trio delivers a cancellation again at every checkpoint, so no wait outlives it."""
    return False


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
