"""The loop a good engineer writes when there is no library: what 1.0 x stands for.

It has no limit on time, which costs it nothing on success; where a row says "no delay" it has no
sleep at all, and where the row is about limits it stands inside one `asyncio.timeout`. On a thread, it is
not even a loop: the bare pool.
"""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.work import HOUR, AsyncCall, Competitor, abroken, awork, broken, flaky, slow, work

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
    """Retry by hand, without delays, in vain."""
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
    """Retry by hand, in async code, within so many seconds."""

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
    two_failures=two_failures,
    exhausted=exhausted,
    asleep=asleep,
    limited=limited,
    on_thread=on_thread,
    in_a_second=in_a_second,
)
