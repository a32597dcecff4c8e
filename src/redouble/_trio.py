"""Time for Trio, and the end of what was abandoned. Imported only once Trio has been imported."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from trio import current_time as now
from trio import sleep
from trio.lowlevel import current_trio_token as home
from trio.lowlevel import in_trio_task as running
from trio.lowlevel import spawn_system_task

from redouble._log import log

__all__ = ["cancelling", "finish", "home", "now", "running", "sleep"]


def cancelling() -> bool:
    """Return False: Trio delivers a cancellation again at every checkpoint, so no wait outlives it."""
    return False


def finish(work: Coroutine[Any, Any, None], may_wait: Callable[[], bool]) -> None:
    """Do ``work`` at once if it waits for nothing; else soon, in a task of its own.

    A coroutine that has begun in one task of Trio's cannot go on in another.
    """
    if may_wait():
        spawn_system_task(_quietly, work)
        return
    try:
        work.send(None)
        work.close()  # it waits after all, where nobody could see that
        log(COMPLAINT)
    except StopIteration:
        pass
    except Exception:
        log(COMPLAINT, trouble=True)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:  # which would end the whole of Trio
        log(COMPLAINT, trouble=True)


COMPLAINT = "a stream that was abandoned could not be closed"
