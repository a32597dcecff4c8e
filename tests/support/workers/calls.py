"""Calls in worker processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from redouble import Retry
from redouble._drivers.workers import process_pool as _pool
from tests.support.fakes import ASYNC, in_colour
from tests.support.workers.functions import PROCESS

ASYNCS = pytest.mark.parametrize("colour", ASYNC)
COLOURS = pytest.mark.parametrize("colour", ["sync", *ASYNC])

AT_ONCE = 0.05
LONG = 50.0


def policy(**options: Any) -> Retry:
    arguments: dict[str, Any] = {"on": OSError, "attempts": 2, "backoff": [0] * 9, "worker": PROCESS}
    return Retry(**arguments | options)


def in_any(colour: str, retrying: Retry, fn: Callable[..., object], *args: object) -> Any:
    """Call a blocking function under a policy, in a colour."""
    return in_colour(colour, lambda: retrying.call(fn, *args), lambda: retrying.acall(fn, *args))


def cancelled_when(colour: str, ready: Callable[[], object], work: Callable[[], Awaitable[object]]) -> None:
    """Start ``work``, and cancel it once ``ready``, which runs in a thread, has returned."""

    async def in_asyncio() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.to_thread(ready)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await trio.to_thread.run_sync(ready)
            nursery.cancel_scope.cancel()

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)


def process_exists(process: int) -> bool:
    """Return True if the process exists, even as a zombie."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def idle_processes() -> set[_pool.WorkerProcess]:
    """Return the idle worker processes."""
    return {process for parked in _pool._idle.values() for process in parked}


@contextmanager
def without_idle_processes() -> Generator[None]:
    """End all idle worker processes before and after the block."""
    _end_all()
    try:
        yield
    finally:
        _end_all()


def _end_all() -> None:
    for process in idle_processes():
        process.kill()
        process.end()
    _pool._idle.clear()
