"""Wait queues with permits that a test adds, and the calls that wait in them."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from redouble._layers.limits.rate.pacing import NONE_AHEAD, Ahead, GcraPacer
from redouble._layers.limits.rate.wait_queue import WaitQueue
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

    def __init__(self, available: int = 0) -> None:
        self.available = available
        self.fast_path_closed = False

    def close_fast_path(self) -> None:
        self.fast_path_closed = True

    def open_fast_path(self) -> None:
        self.fast_path_closed = False

    def due(self, now: float, cost: float = 1.0, ahead: Ahead = NONE_AHEAD, /) -> float:
        return 0.0 if self.available >= ahead.total() + cost else FAR

    def take(self, now: float, cost: float = 1.0, /) -> None:
        self.available -= int(cost)

    def add(self, permits: int) -> None:
        self.available += permits


def rejection(reason: str, wait: float) -> RateLimited:
    """Return the error of a rejected call."""
    return RateLimited(reason, retry_after=wait)


def queue_of(pacer: Any, max_wait: float | None = None) -> WaitQueue:
    """Return a wait queue with this pacer."""
    return WaitQueue(pacer, max_wait, rejection)


def queue_after_one_call(interval: float = 1.0, max_wait: float | None = None) -> tuple[GcraPacer, WaitQueue]:
    """Return a pacer and its wait queue, through which one call has just been admitted."""
    pacer = GcraPacer(interval, 1)
    queue = queue_of(pacer, max_wait)
    queue.acquire_at(0.0)
    return pacer, queue


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

    def __init__(self, queue: WaitQueue, colour: str, admitted: list[str]) -> None:
        def run() -> None:
            in_colour(colour, queue.enter, queue.aenter)
            admitted.append(colour)

        before = len(queue)
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        until(lambda: len(queue) > before)
