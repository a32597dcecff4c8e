"""Cancellation of a call that waits, and a policy whose waits end only by cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from redouble import Clock, Retry
from redouble._runtime.backend import backend
from tests.support.fakes import in_colour
from tests.support.fakes import options as defaults

CANCELLATIONS = asyncio.CancelledError, trio.Cancelled


class EndlessWaitClock(Clock):
    """A clock with real checkpoints, whose waits end only by cancellation."""

    def now(self) -> float:
        return 0.0

    async def asleep(self, seconds: float) -> None:
        await backend().sleep(1e6 if seconds else 0)


def policy(clock: Clock | None = None, **options: Any) -> Retry:
    """Return a policy that retries every error."""
    arguments = defaults(on=Exception, backoff=[1] * 9, give_up_after=None, clock=clock or EndlessWaitClock())
    return Retry(**arguments | options)


def cancelled(colour: str, start: Callable[[], Awaitable[object]]) -> object:
    """Cancel a call once it waits, and return its value, its error, or "cancelled"."""
    outcome: list[object] = []

    async def inside() -> None:
        try:
            outcome.append(await start())
        except Exception as error:
            outcome.append(error)
        except BaseException:
            outcome.append("cancelled")
            raise

    async def in_asyncio() -> None:
        task = asyncio.ensure_future(inside())
        while not task.done():  # once is enough, unless something is broken
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inside)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)
    assert len(outcome) == 1
    return outcome[0]
