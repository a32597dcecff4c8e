"""The waker for async code, of asyncio and of Trio. Blocking code uses `ThreadWaker`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

LoopWaker: TypeAlias = tuple[Callable[[], bool], Callable[[], Awaitable[object]]]  # see `Backend.waker`


def make_waker(woken: Any, call_soon: Callable[[Callable[[], None]], object]) -> LoopWaker:
    """Return the waker of an event of the library: ``call_soon`` calls a function in its event loop."""

    def wake() -> bool:
        try:
            call_soon(woken.set)
        except RuntimeError:  # the event loop has ended
            return False
        return True

    return wake, woken.wait
