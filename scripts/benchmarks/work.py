"""The work that gets retried, as small as can be, so that what is measured is the retrying.

The ratios are the worst case for that reason: real work takes microseconds to seconds, and the same
overhead disappears in it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[int], int]
AsyncCall: TypeAlias = Callable[[int], Coroutine[Any, Any, int]]
Limit: TypeAlias = Callable[[AsyncCall, float], AsyncCall]

HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Competitor:
    """One way to retry, in every shape it has; None where it has no such shape.

    unlimited: four attempts, jittered exponential delays, no limit on time.
    defaults, adefaults: the same with a limit of 30 seconds, where there is such an option.
    block: a retried block of code instead of a function; otherwise as ``defaults``.
    two_failures: four attempts without delays; the third one succeeds.
    exhausted: three attempts without delays, all of which fail.
    asleep: the first attempt fails, and hours of backoff follow.
    limited: retries the given function, and cuts it where it is after so many seconds.
    on_thread: as ``defaults``, and every attempt on another thread, not waited for longer than 30 seconds.
    in_a_second: as ``adefaults``, with a limit of one second and delays of two, of what takes 0.4 and fails.
    """

    unlimited: Call
    defaults: Call
    adefaults: AsyncCall
    block: Call | None
    two_failures: Call
    exhausted: Call
    asleep: AsyncCall
    limited: Limit | None
    on_thread: Call | None
    in_a_second: AsyncCall


@dataclass(frozen=True, kw_only=True)
class Guards:
    """One way to guard calls, in every shape it has; None where it has no such shape.

    breaker, abreaker: closed; opens after five failures in a row, for 30 seconds.
    ratio: closed; opens when half of the calls lately fail.
    opened: open, for an hour.
    bulkhead, abulkhead: ten calls at once; others wait, the blocking ones for up to a second.
    contended: two calls at once, of what lets other threads run; others wait for up to 30 seconds.
    pipeline: ten calls at once, each with up to four attempts, each through a breaker as above.
    """

    breaker: Call | None
    abreaker: AsyncCall | None
    ratio: Call | None
    opened: Call | None
    bulkhead: Call | None
    abulkhead: AsyncCall | None
    contended: Call | None
    pipeline: Call | None


def work(x: int) -> int:
    """Succeed."""
    return x


async def awork(x: int) -> int:
    """Succeed."""
    return x


def flaky() -> Call:
    """Return a function that fails twice, succeeds once, and so on; each caller gets its own."""
    fails = cycle((True, True, False)).__next__

    def sometimes(x: int) -> int:
        if fails():
            raise ConnectionError("reset by peer")
        return x

    return sometimes


def broken(_: int) -> int:
    """Fail."""
    raise ConnectionError("reset by peer")


def giving_way(x: int) -> int:
    """Let another thread run in the middle of it."""
    os.sched_yield()
    return x


def tripped(call: Call) -> Call:
    """Let the one failure happen after which all calls are rejected."""
    with suppress(Exception):
        call(1)
    return call


async def abroken(_: int) -> int:
    """Fail."""
    raise ConnectionError("reset by peer")


async def slow(_: int) -> int:
    """Take a while, and fail."""
    await asyncio.sleep(0.4)
    raise ConnectionError("reset by peer")


async def crowded(x: int) -> int:
    """Let all the others begin before any of them ends."""
    await asyncio.sleep(0)
    return x


async def endless(_: int) -> int:
    """Wait for what never comes, without a timer."""
    never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return await never
