"""What a failed `asyncio.TaskGroup` leaves behind before Python 3.13: a cancellation that nobody asked for.

A group cancels the task it waits in when one of its own fails. If that task had come to the end of the
``async with`` by then, older versions never take it back: the task counts as being cancelled for ever, and so
nothing would ever be retried in it. Only `_asyncio` uses this.
"""

from __future__ import annotations

from asyncio import Task, TaskGroup
from typing import Any

__all__ = ["take_back"]

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
