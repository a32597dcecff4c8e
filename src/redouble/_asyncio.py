"""Time for asyncio, any loop. Imported only once asyncio is running."""

from asyncio import current_task, sleep
from time import monotonic as now

__all__ = ["cancelling", "now", "sleep"]

# `now` is the system's monotonic clock and not `loop.time()`: that is the same clock on asyncio's own
# loops, and on uvloop a cached one that stands still while a callback runs.


def cancelling() -> bool:
    """Say whether somebody asked for this task to be cancelled, even if the request was swallowed."""
    try:
        task = current_task()
    except RuntimeError:  # the coroutine is driven by hand, without a loop
        return False
    return task is not None and task.cancelling() > 0
