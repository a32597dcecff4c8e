"""Reconfiguring in the middle of an operation and the reverse, as signal handlers do.

Python runs a signal handler when a function is called, and when a function written in C has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from math import inf
from types import FrameType
from typing import Any, ClassVar

import pytest

from redouble import Bulkhead, Kind, RateLimit, RetryBudget, TokenBucket, errors
from redouble._engine.budgets import retry_budget, token_bucket
from redouble._internal import reentrancy, sliding_counter
from redouble._internal.locks import gil
from redouble._layers.limits import bulkhead
from redouble._layers.limits.rate import pacing, ranked_queue, rate_limit, settings, wait_queue, window_pacers
from redouble._runtime import slots

MODULES = (
    reentrancy,
    retry_budget,
    sliding_counter,
    token_bucket,
    rate_limit,
    settings,
    pacing,
    wait_queue,
    window_pacers,
    ranked_queue,
    bulkhead,
    slots,
)
FILES = {module.__file__ for module in MODULES} | {"<redouble> rate limit"}


class Used:
    """A shared object, and how often it was used."""

    def __init__(self) -> None:
        self.times: int = 0

    def use(self) -> None:
        """Use it once, if it admits that."""

    def reconfigure(self) -> None:
        """Reconfigure it."""

    def left(self) -> object:
        """Return how many permits are left or were used."""


class Budget(Used):
    def __init__(self) -> None:
        super().__init__()
        self.thing = RetryBudget(0, 2, 10)
        self.use()

    def use(self) -> None:
        self.times += self.thing.spend(Kind.unknown, 1.5) is not None

    def reconfigure(self) -> None:
        self.thing.reconfigure(RetryBudget(0, 1, 20))

    def left(self) -> object:
        snapshot = self.thing.snapshot(1.5)
        assert self.thing._grants.total == sum(self.thing._grants.counts)
        return snapshot["available"] + self.times


class Bucket(Used):
    def __init__(self) -> None:
        super().__init__()
        self.thing = TokenBucket(20, {None: 1})

    def use(self) -> None:
        self.times += self.thing.spend() is not None

    def reconfigure(self) -> None:
        self.thing.reconfigure(TokenBucket(40, {None: 1}))

    def left(self) -> object:
        return self.thing.snapshot()["tokens"] + self.times


class Rate(Used):
    def __init__(self) -> None:
        super().__init__()
        self.thing = RateLimit(1, per=1000, burst=5, wait=0)
        self.call = self.thing(self._called)
        self.use()

    def _called(self) -> None:
        self.times += 1

    def use(self) -> None:
        with suppress(errors.RateLimited):
            self.call()

    def reconfigure(self) -> None:
        self.thing.reconfigure(RateLimit(1, per=500, burst=20, wait=0))

    def left(self) -> object:
        assert (self.thing._pacer.fast_arrival_time < inf) == gil.enabled
        return self.thing.snapshot()["available"] + self.times


class Window(Used):
    options: ClassVar[dict[str, Any]] = {"per": 1000, "wait": 0, "window": "sliding"}

    def __init__(self) -> None:
        super().__init__()
        self.thing = RateLimit(5, **self.options)
        self.use()

    def use(self) -> None:
        with suppress(errors.RateLimited):
            self.thing.acquire()
            self.times += 1

    def reconfigure(self) -> None:
        self.thing.reconfigure(RateLimit(20, **self.options))

    def left(self) -> object:
        return self.thing.snapshot()["available"] + self.times


class FixedWindow(Window):
    options: ClassVar[dict[str, Any]] = {**Window.options, "window": "fixed"}


class SharedWindow(Window):
    options: ClassVar[dict[str, Any]] = {**Window.options, "shares": {"a": 0.5}, "priority": "a"}


class Slots(Used):
    def __init__(self) -> None:
        super().__init__()
        self.thing = Bulkhead(2, 0)

    def use(self) -> None:
        with suppress(errors.BulkheadFull):
            self.thing.admit(0.0)
            self.times += 1

    def reconfigure(self) -> None:
        self.thing.reconfigure(Bulkhead(20, 0))

    def left(self) -> object:
        shared = self.thing._slots
        assert not shared.queue
        return shared.limit - len(shared.leases) + self.times


class Interruption:
    """Calls a function at the n-th point where a signal handler may run."""

    def __init__(self, point: int, action: Callable[[], object]) -> None:
        self.left, self.action = point, action

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename in FILES:
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                self.action()


@pytest.mark.parametrize("make", [Budget, Bucket, Rate, Window, FixedWindow, SharedWindow, Slots])
@pytest.mark.parametrize("operations", ["use reconfigure", "reconfigure use", "reconfigure reconfigure"])
def test_interrupted_operations_neither_lose_nor_create_permits(
    make: Callable[[], Used], operations: str
) -> None:
    """In the end there are twenty, less those used, wherever one operation interrupts the other."""
    before = sys.getprofile()
    for point in count(1):
        used = make()
        interrupted, action = (getattr(used, name) for name in operations.split())
        interruption = Interruption(point, action)
        sys.setprofile(interruption)
        try:
            interrupted()
        finally:
            sys.setprofile(before)
        if interruption.left > 0:
            assert point > 1, "no code of these modules has run"
            break
        used.reconfigure()
        assert used.left() == 20, point
