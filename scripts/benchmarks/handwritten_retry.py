"""The retry loop that an engineer writes without a library: the base of the ratios, 1.0 x.

It has no time limit, which would cost nothing on success; in the rows without delays it does not sleep, and
in the rows about time limits it is inside one `asyncio.timeout`. In the row about threads it is a call of the
bare pool.
"""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.workloads import HOUR, AsyncCall, Competitor, abroken, awork, broken, flaky, slow, work

sometimes = flaky()
pool = ThreadPoolExecutor(max_workers=1)


def looped(x: int) -> int:
    """Retry by hand."""
    for attempt in range(4):
        try:
            return work(x)
        except ConnectionError:
            if attempt == 3:
                raise
            time.sleep(min(2.0, 0.2 * 2**attempt) * random.random())  # noqa: S311  jitter
    raise AssertionError("not reached")


async def alooped(x: int) -> int:
    """Retry by hand, in async code."""
    for attempt in range(4):
        try:
            return await awork(x)
        except ConnectionError:
            if attempt == 3:
                raise
            await asyncio.sleep(min(2.0, 0.2 * 2**attempt) * random.random())  # noqa: S311  jitter
    raise AssertionError("not reached")


def two_failures(x: int) -> int:
    """Retry by hand, without delays."""
    for attempt in range(4):
        try:
            return sometimes(x)
        except ConnectionError:
            if attempt == 3:
                raise
    raise AssertionError("not reached")


def exhausted(x: int) -> int:
    """Retry by hand, without delays, until the attempts are exhausted."""
    for attempt in range(3):
        try:
            return broken(x)
        except ConnectionError:
            if attempt == 2:
                raise
    raise AssertionError("not reached")


async def asleep(x: int) -> int:
    """Retry by hand, with delays of hours."""
    for attempt in range(4):
        try:
            return await abroken(x)
        except ConnectionError:
            if attempt == 3:
                raise
            await asyncio.sleep(min(9 * HOUR, HOUR * 2**attempt) * (1 + random.random()))  # noqa: S311  jitter
    raise AssertionError("not reached")


def limited(fn: AsyncCall, seconds: float) -> AsyncCall:
    """Retry by hand, in async code, with a time limit."""

    async def in_time(x: int) -> int:
        async with asyncio.timeout(seconds):
            for attempt in range(4):
                try:
                    return await fn(x)
                except ConnectionError:
                    if attempt == 3:
                        raise
                    await asyncio.sleep(min(2.0, 0.2 * 2**attempt) * random.random())  # noqa: S311  jitter
        raise AssertionError("not reached")

    return in_time


def on_thread(x: int) -> int:
    """Call it on another thread."""
    return pool.submit(work, x).result()


async def in_a_second(x: int) -> int:
    """Retry by hand, within a second."""
    async with asyncio.timeout(1):
        for attempt in range(4):
            try:
                return await slow(x)
            except ConnectionError:
                if attempt == 3:
                    raise
            await asyncio.sleep(2)
    raise AssertionError("not reached")


COMPETITOR = Competitor(
    unlimited=looped,
    defaults=looped,
    adefaults=alooped,
    block=looped,
    returning_block=looped,
    two_failures=two_failures,
    exhausted=exhausted,
    asleep=asleep,
    limited=limited,
    on_thread=on_thread,
    in_a_second=in_a_second,
)
