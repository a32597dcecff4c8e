"""Tasks of asyncio and Trio: together, cancelled on demand, run until all of them wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing


async def settled(colour: str) -> None:
    """Let all other tasks run until each of them waits."""
    if colour == "trio":
        await trio.testing.wait_all_tasks_blocked()
    else:
        for _ in range(10):
            await asyncio.sleep(0)


class Task:
    """A task of either library that can be cancelled."""

    def __init__(self, colour: str, nursery: Any, work: Callable[[], Any]) -> None:
        self.ended: str | None = None
        self.colour = colour
        self.scope = trio.CancelScope()
        if colour == "trio":
            nursery.start_soon(self.run, work)
        else:
            self.task = asyncio.ensure_future(self.run(work))

    async def run(self, work: Callable[[], Any]) -> None:
        with self.scope if self.colour == "trio" else threading.Lock():
            try:
                await work()
            except BaseException as error:
                self.ended = type(error).__name__
                if not isinstance(error, Exception | asyncio.CancelledError):
                    raise
            else:
                self.ended = "well"

    def cancel(self) -> None:
        if self.colour == "trio":
            self.scope.cancel()
        else:
            self.task.cancel()


def loop_of(colour: str) -> asyncio.AbstractEventLoop:
    """Return a new event loop of this colour."""
    if colour == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


async def gathered(colour: str, works: list[Callable[[], Any]], cancelled: Callable[[], bool]) -> None:
    """Run all works concurrently, and cancel those for which ``cancelled()`` is true."""
    if colour == "trio":
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in works]

            async def scoped(scope: trio.CancelScope, work: Callable[[], Any]) -> None:
                with scope:
                    await work()

            for scope, work in zip(scopes, works, strict=True):
                nursery.start_soon(scoped, scope, work)
            for scope in scopes:
                await trio.lowlevel.checkpoint()
                if cancelled():
                    scope.cancel()
    else:
        tasks = [asyncio.ensure_future(work()) for work in works]
        for task in tasks:
            await asyncio.sleep(0)
            if cancelled():
                task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError)


async def together(place: str, *tasks: Callable[[], Awaitable[object]]) -> None:
    """Run tasks concurrently; the place, or the colour, names the event loop."""
    if place.startswith("trio"):
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(task)
    else:
        await asyncio.gather(*(task() for task in tasks))
