"""Blocking functions called from async code, beside other tasks of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from redouble import Retry
from redouble._runtime.backend import backend
from tests.support.fakes import run_async


def failure(colour: str, policy: Retry, work: Callable[[], object]) -> BaseException:
    """Return the error of a call of a blocking function."""

    async def main() -> BaseException:
        try:
            await policy.acall(work)
        except BaseException as error:
            return error
        raise AssertionError("it did not fail")

    error: BaseException = run_async(colour, main)
    return error


async def turns_until(condition: Callable[[], bool]) -> int:
    """Yield to the event loop until the condition is true; return the number of turns."""
    count = 1
    while not condition():
        count += 1
        await backend().sleep(0)
    return count


async def run_beside(
    colour: str, task: Callable[[], Awaitable[Any]], other: Callable[[], Awaitable[Any]]
) -> None:
    """Run both concurrently; cancel the task when the other has ended."""

    async def run_task() -> None:
        await task()

    if colour == "trio":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_task)
            await other()
            nursery.cancel_scope.cancel()
    else:
        running = asyncio.ensure_future(run_task())
        await other()
        running.cancel()
        await asyncio.wait([running])
