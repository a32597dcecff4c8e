"""What a careful engineer writes when there is no library: a breaker with its lock, a semaphore, a bucket.

Every function is written out, as by hand one would: what is done for one call stands in one place.
"""

from __future__ import annotations

import asyncio
import random
import time
from threading import BoundedSemaphore, Lock

from benchmarks.work import HOUR, AsyncCall, Call, Guards, awork, broken, giving_way, tripped, work

places = BoundedSemaphore(10)
two_places = BoundedSemaphore(2)
aplaces = asyncio.Semaphore(10)


class Open(Exception):
    """The service is left alone for now."""


class Breaker:
    """Open after some failures in a row; after the cooldown one call may try, and so on."""

    def __init__(self, failures: int = 5, cooldown: float = 30.0) -> None:
        self.failures, self.cooldown = failures, cooldown
        self.lock = Lock()
        self.failed = 0
        self.opened: float | None = None

    def __call__(self, fn: Call) -> Call:
        """Guard a function: a lock to come in, a lock to go out."""

        def guarded(x: int) -> int:
            with self.lock:
                if self.opened is not None:
                    now = time.monotonic()
                    if now - self.opened < self.cooldown:
                        raise Open("left alone for now")
                    self.opened = now
            try:
                result = fn(x)
            except Exception:
                with self.lock:
                    self.failed += 1
                    if self.failed >= self.failures:
                        self.opened = time.monotonic()
                raise
            with self.lock:
                self.failed = 0
                self.opened = None
            return result

        return guarded

    def guard_async(self, fn: AsyncCall) -> AsyncCall:
        """Guard a coroutine function."""

        async def guarded(x: int) -> int:
            with self.lock:
                if self.opened is not None:
                    now = time.monotonic()
                    if now - self.opened < self.cooldown:
                        raise Open("left alone for now")
                    self.opened = now
            try:
                result = await fn(x)
            except Exception:
                with self.lock:
                    self.failed += 1
                    if self.failed >= self.failures:
                        self.opened = time.monotonic()
                raise
            with self.lock:
                self.failed = 0
                self.opened = None
            return result

        return guarded


def held(x: int) -> int:
    """Wait for a place, and give it back."""
    if not places.acquire(timeout=1):
        raise TimeoutError("no place")
    try:
        return work(x)
    finally:
        places.release()


def contended(x: int) -> int:
    """Wait for one of two places."""
    if not two_places.acquire(timeout=30):
        raise TimeoutError("no place")
    try:
        return giving_way(x)
    finally:
        two_places.release()


async def aheld(x: int) -> int:
    """Wait for a place, in async code, for as long as it takes."""
    async with aplaces:
        return await awork(x)


breaker = Breaker()


def pipeline(x: int) -> int:
    """Wait for a place, try up to four times, and leave a service alone that is down."""
    if not places.acquire(timeout=1):
        raise TimeoutError("no place")
    try:
        for attempt in range(4):
            with breaker.lock:
                if breaker.opened is not None:
                    now = time.monotonic()
                    if now - breaker.opened < breaker.cooldown:
                        raise Open("left alone for now")
                    breaker.opened = now
            try:
                result = work(x)
            except ConnectionError:
                with breaker.lock:
                    breaker.failed += 1
                    if breaker.failed >= breaker.failures:
                        breaker.opened = time.monotonic()
                if attempt == 3:
                    raise
                time.sleep(min(2.0, 0.2 * 2**attempt) * random.random())  # noqa: S311  jitter
            else:
                with breaker.lock:
                    breaker.failed = 0
                    breaker.opened = None
                return result
        raise AssertionError("not reached")
    finally:
        places.release()


class Bucket:
    """Tokens behind a lock."""

    def __init__(self, capacity: float = 500) -> None:
        self.capacity = self.tokens = capacity
        self.lock = Lock()

    def spend(self, cost: float) -> bool:
        """Take some, if there are enough."""
        with self.lock:
            if self.tokens < cost:
                return False
            self.tokens -= cost
            return True

    def credit(self, tokens: float) -> None:
        """Put some back."""
        with self.lock:
            self.tokens = min(self.capacity, self.tokens + tokens)


GUARDS = Guards(
    breaker=Breaker()(work),
    abreaker=Breaker().guard_async(awork),
    ratio=None,
    opened=tripped(Breaker(failures=1, cooldown=HOUR)(broken)),
    bulkhead=held,
    abulkhead=aheld,
    contended=contended,
    pipeline=pipeline,
)
