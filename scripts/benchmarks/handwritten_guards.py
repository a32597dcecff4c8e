"""The guards that an engineer writes without a library: a breaker with its lock, a semaphore, a token bucket.

Every function is written out, without helpers, as by hand.
"""

from __future__ import annotations

import asyncio
import random
import time
from threading import BoundedSemaphore, Lock

from benchmarks.workloads import HOUR, AsyncCall, Call, Guards, awork, broken, tripped, work, yielding

slots = BoundedSemaphore(10)
two_slots = BoundedSemaphore(2)
aslots = asyncio.Semaphore(10)


class Open(Exception):
    """The breaker is open."""


class Breaker:
    """A breaker that opens after some consecutive failures and admits one probe after each cooldown."""

    def __init__(self, failures: int = 5, cooldown: float = 30.0) -> None:
        self.failures, self.cooldown = failures, cooldown
        self.lock = Lock()
        self.failed = 0
        self.opened: float | None = None

    def __call__(self, fn: Call) -> Call:
        """Wrap a function; each call acquires the lock twice."""

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
        """Wrap a coroutine function."""

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


def in_slot(x: int) -> int:
    """Call with a slot, waiting for it for up to a second."""
    if not slots.acquire(timeout=1):
        raise TimeoutError("no slot")
    try:
        return work(x)
    finally:
        slots.release()


def contended(x: int) -> int:
    """Call with one of two slots."""
    if not two_slots.acquire(timeout=30):
        raise TimeoutError("no slot")
    try:
        return yielding(x)
    finally:
        two_slots.release()


async def ain_slot(x: int) -> int:
    """Call with a slot in async code, waiting for it without limit."""
    async with aslots:
        return await awork(x)


breaker = Breaker()


def pipeline(x: int) -> int:
    """Call with a slot, up to four attempts, each through the breaker."""
    if not slots.acquire(timeout=1):
        raise TimeoutError("no slot")
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
        slots.release()


class Bucket:
    """A token bucket with a lock."""

    def __init__(self, capacity: float = 500) -> None:
        self.capacity = self.tokens = capacity
        self.lock = Lock()

    def spend(self, cost: float) -> bool:
        """Take tokens; return False if there are too few."""
        with self.lock:
            if self.tokens < cost:
                return False
            self.tokens -= cost
            return True

    def credit(self, tokens: float) -> None:
        """Return tokens."""
        with self.lock:
            self.tokens = min(self.capacity, self.tokens + tokens)


GUARDS = Guards(
    breaker=Breaker()(work),
    abreaker=Breaker().guard_async(awork),
    ratio=None,
    opened=tripped(Breaker(failures=1, cooldown=HOUR)(broken)),
    bulkhead=in_slot,
    abulkhead=ain_slot,
    contended=contended,
    pipeline=pipeline,
)
