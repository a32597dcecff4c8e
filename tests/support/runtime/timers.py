"""The timer of an event loop: its entries, its invariants, and tasks under a limit."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from redouble._runtime.asyncio_timer import MAX_STALE, Timer, TimerEntry
from tests.support.drivers.limited_calls import LONG
from tests.support.fakes import ASYNC

LOOPS = pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])


TINY = 0.005  # seconds that a test really waits


def timer() -> Timer:
    """Return the timer of the running loop."""
    own: Timer = vars(asyncio.get_running_loop())["_redouble_timer"]
    return own


def live(loop_timer: Timer) -> list[float]:
    """Return the times of the limits that are in use."""
    return [moment for moment, _, entry in loop_timer.heap if entry._task is not None]


def check(loop_timer: Timer) -> None:
    """Check that the timer is armed for the earliest limit, and that its heap is bounded."""
    moments = live(loop_timer)
    assert loop_timer.armed <= min(moments, default=inf)
    assert (loop_timer._handle() is None) == (loop_timer.armed == inf)
    assert loop_timer.stale == len(loop_timer.heap) - len(moments)
    assert len(loop_timer.heap) <= 2 * len(moments) + 2 * MAX_STALE + 2


async def limited(seconds: float, takes: float = LONG) -> bool:
    """Sleep under a limit; return True if it was reached."""
    with TimerEntry(seconds) as entry:
        await asyncio.sleep(takes)
    assert entry.cancel_called is entry.cancelled_caught
    return entry.cancelled_caught


class SealedLoop(asyncio.SelectorEventLoop):
    """An event loop that rejects the attributes of this library."""

    def __setattr__(self, name: str, value: object) -> None:
        if "redouble" in name:
            raise AttributeError(name)
        super().__setattr__(name, value)
