"""Wait queues with permits that a test adds, and the calls that wait in them."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from redouble._layers.limits.pacing import GcraPacer
from redouble._layers.limits.wait_queue import WaitQueue
from redouble.errors import RateLimited
from redouble.testing import VirtualClock
from tests.support.bulkhead_callers import until
from tests.support.fakes import in_colour
from tests.support.runtime.tasks import Task
from tests.support.virtual_time import in_virtual_colour

FAR = 1e6  # seconds: longer than any test waits


LOOPS = pytest.mark.parametrize("colour", ["asyncio", "trio"])


class Permits:
    """A pacer whose permits are added by the test."""

    def __init__(self, there: int = 0) -> None:
        self.there = there
        self.held = False

    def close_fast_path(self) -> None:
        self.held = True

    def open_fast_path(self) -> None:
        self.held = False

    def due(self, now: float, ahead: int = 0, /) -> float:
        return 0.0 if self.there > ahead else FAR

    def take(self, now: float, /) -> None:
        self.there -= 1

    def add(self, permits: int) -> None:
        self.there += permits


def refused(why: str, wait: float) -> RateLimited:
    """Return the error of a rejected call."""
    return RateLimited(why, retry_after=wait)


def line_of(pace: Any, patience: float | None = None) -> WaitQueue:
    """Return a wait queue with this pacer."""
    return WaitQueue(pace, patience, refused)


def one_after(interval: float = 1.0, patience: float | None = None) -> tuple[GcraPacer, WaitQueue]:
    """Return a pacer and its wait queue, through which one call has just been admitted."""
    flow = GcraPacer(interval, 1)
    line = line_of(flow, patience)
    line.acquire_at(0.0)
    return flow, line


def with_tasks(colour: str, main: Callable[[VirtualClock, Callable[..., Task]], Awaitable[None]]) -> None:
    """Run an async function that starts tasks, in virtual time."""

    async def waiting(clock: VirtualClock) -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                await main(clock, partial(Task, colour, nursery))
        else:
            await main(clock, partial(Task, colour, None))

    in_virtual_colour(colour, lambda clock: None, waiting)


class QueuedCall:
    """A call that waits in a queue, on a thread of its own and in some colour."""

    def __init__(self, line: WaitQueue, colour: str, came: list[str]) -> None:
        def run() -> None:
            in_colour(colour, line.enter, line.aenter)
            came.append(colour)

        before = len(line)
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        until(lambda: len(line) > before)
