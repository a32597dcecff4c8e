"""The work that gets retried, as small as can be, so that what is measured is the retrying.

The ratios are the worst case for that reason: real work takes microseconds to seconds, and the same
overhead disappears in it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import cycle
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[int], int]
AsyncCall: TypeAlias = Callable[[int], Coroutine[Any, Any, int]]

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
    """

    unlimited: Call
    defaults: Call
    adefaults: AsyncCall
    block: Call | None
    two_failures: Call
    exhausted: Call
    asleep: AsyncCall


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


async def abroken(_: int) -> int:
    """Fail."""
    raise ConnectionError("reset by peer")
