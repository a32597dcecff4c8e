"""Trio with a mock clock that jumps, and functions that fail a number of times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import trio
import trio.testing


class Busy(Exception):
    """The error of a flaky function."""


def flaky(failures: int) -> Callable[[], Coroutine[Any, Any, str]]:
    """Return a coroutine function that fails this many times, and then returns."""
    left = failures

    async def fetch() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise Busy
        return "done"

    return fetch


def mocked(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run async code under Trio, whose mock clock jumps when all tasks sleep."""
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
