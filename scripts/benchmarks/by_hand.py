"""The loop a good engineer writes when there is no library: what 1.0 x stands for.

It has no limit on time, which costs it nothing on success; where a row says "no delay" it has no
sleep at all.
"""

from __future__ import annotations

import asyncio
import random
import time

from benchmarks.work import HOUR, Competitor, abroken, awork, broken, flaky, work

sometimes = flaky()


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


COMPETITOR = Competitor(
    unlimited=looped,
    defaults=looped,
    adefaults=alooped,
    block=looped,
    two_failures=two_failures,
    exhausted=exhausted,
    asleep=asleep,
)
