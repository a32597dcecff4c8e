"""The calls around a hedged call, for its extra attempts, which run on stacks of their own.

They are looked up when the first extra attempt starts: a call without one pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from types import CodeType, FrameType
from typing import Any

from redouble._runtime.deadline import ACTIVE_DEADLINE, ActiveDeadline
from redouble._runtime.enclosing import EnclosingCall, InheritedCall, calls_on_stack


class InheritedCalls(ActiveDeadline):
    """The calls around an extra attempt, which are set in its context. It is no deadline itself."""

    def __init__(self, calls: Iterable[EnclosingCall], read_clock: Callable[[], float]) -> None:
        super().__init__(inf, read_clock)
        self._calls = [InheritedCall(call, read_clock) for call in calls]

    def calls(self) -> Iterator[EnclosingCall]:
        return iter(self._calls)

    def left(self) -> float:
        """Return the seconds until the earliest limit of these calls; infinity without one."""
        return min((call.left() for call in self._calls), default=inf)

    def apply(self) -> None:
        """Set it in the current context."""
        ACTIVE_DEADLINE.set(self)


def calls_around(coroutine: Any, code: CodeType, call: object) -> Iterator[EnclosingCall]:
    """Yield the calls around a hedged call whose task is suspended, innermost first.

    coroutine: that of the task.
    code: of the method that runs the hedged call, in the chain of coroutines that the task runs.
    call: the object that this method belongs to.
    """
    frames: list[FrameType] = []
    while (frame := _frame_of(coroutine)) is not None:  # None: it awaits a generator, or a future
        if frame.f_code is code and frame.f_locals["self"] is call:
            break
        frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    for frame in reversed(frames):
        yield from calls_on_stack(frame)


def _frame_of(coroutine: Any) -> FrameType | None:
    return getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
