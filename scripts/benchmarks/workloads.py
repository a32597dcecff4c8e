"""The functions that are retried or guarded, and the shapes in which each competitor calls them.

The functions are as small as possible, so that the overhead is measured. The ratios are therefore the worst
case: real work takes microseconds to seconds, and the same overhead is negligible in it.
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
    """A retry implementation in every shape that it supports; None for a shape that it does not.

    unlimited: four attempts, jittered exponential delays, no limit on time.
    defaults, adefaults: the same with a limit of 30 seconds, where there is such an option.
    block: a retried block of code instead of a function; otherwise as ``defaults``.
    returning_block: the same, and the block returns from the function around it.
    two_failures: four attempts without delays; the third one succeeds.
    exhausted: three attempts without delays, all of which fail.
    asleep: the first attempt fails, and a backoff of hours follows.
    limited: retries the given function, and cancels it after the given number of seconds.
    on_thread: as ``defaults``, with every attempt on another thread and a limit of 30 seconds.
    in_a_second: as ``adefaults``, with a limit of one second and delays of two; each attempt takes 0.4
    seconds and fails.
    """

    unlimited: Call
    defaults: Call
    adefaults: AsyncCall
    block: Call | None
    returning_block: Call | None
    two_failures: Call
    exhausted: Call
    asleep: AsyncCall
    limited: Limit | None
    on_thread: Call | None
    in_a_second: AsyncCall


@dataclass(frozen=True, kw_only=True)
class Guards:
    """The breakers and bulkheads of one implementation; None for a shape that it does not support.

    breaker, abreaker: closed; opens after five failures in a row, for 30 seconds.
    ratio: closed; opens when half of the recent calls have failed.
    opened: open, for an hour.
    bulkhead, abulkhead: ten concurrent calls; others wait, the blocking ones for up to a second.
    contended: two concurrent calls of `yielding`; others wait for up to 30 seconds.
    pipeline: ten concurrent calls, each with up to four attempts, each through a breaker as above.
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
    """Return a new function that repeatedly fails twice and then succeeds once."""
    fails = cycle((True, True, False)).__next__

    def sometimes(x: int) -> int:
        if fails():
            raise ConnectionError("reset by peer")
        return x

    return sometimes


def broken(_: int) -> int:
    """Fail."""
    raise ConnectionError("reset by peer")


def yielding(x: int) -> int:
    """Yield the processor to another thread in the middle of the call."""
    os.sched_yield()
    return x


def tripped(call: Call) -> Call:
    """Make the one failing call that opens the breaker."""
    with suppress(Exception):
        call(1)
    return call


async def abroken(_: int) -> int:
    """Fail."""
    raise ConnectionError("reset by peer")


async def slow(_: int) -> int:
    """Fail after 0.4 seconds."""
    await asyncio.sleep(0.4)
    raise ConnectionError("reset by peer")


async def crowded(x: int) -> int:
    """Yield to the event loop once, so that all concurrent calls begin before the first one ends."""
    await asyncio.sleep(0)
    return x


async def endless(_: int) -> int:
    """Wait forever, without a timer."""
    never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return await never
