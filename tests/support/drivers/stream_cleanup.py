"""A source of a stream with a given cleanup, and the log of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from redouble import SYSTEM

LOG: list[object] = []  # emptied before each test by the fixture `empty_log`


async def turns(count: int) -> None:
    """Yield to the event loop this many times."""
    for _ in range(count):
        await SYSTEM.asleep(0)


def source(clean: Callable[[], Awaitable[object]]) -> Callable[[], Any]:
    """Return a source whose cleanup awaits ``clean()``."""

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            LOG.append("cleaning")
            await clean()
            LOG.append("clean")

    return items
