"""Changing values in the middle of using them, and using them in the middle of a change, as signals do.

Python lets a signal handler in when a function is called, and when one that is written in C has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from math import inf
from types import FrameType
from typing import Any

import pytest

from redouble import Bulkhead, Kind, RateLimit, RetryBudget, TokenBucket, errors
from redouble._engine import retry_budget as _budget
from redouble._engine import token_bucket as _bucket
from redouble._internal import sliding_counter as _recent
from redouble._layers.limits import bulkhead as _bulkhead
from redouble._layers.limits import pacing as _flow
from redouble._layers.limits import rate_limit as _ratelimit
from redouble._layers.limits import slots as _entry
from redouble._layers.limits import slots as _places
from redouble._layers.limits import wait_queue as _line
from redouble._layers.limits.pacing import GcraPacer

USED = (_budget, _recent, _bucket, _ratelimit, _flow, _line, _bulkhead, _places, _entry)
FILES = {module.__file__ for module in USED}


class Used:
    """Something that is shared, and how often it was used."""

    def __init__(self) -> None:
        self.times: int = 0

    def use(self) -> None:
        """Use it once, if that is possible."""

    def retune(self) -> None:
        """Give it other values."""

    def left(self) -> object:
        """Tell what is left of it."""


class Budget(Used):
    def __init__(self) -> None:
        super().__init__()
        self.thing = RetryBudget(0, 2, 10)
        self.use()

    def use(self) -> None:
        self.times += self.thing.spend(Kind.unknown, 1.5) is not None

    def retune(self) -> None:
        self.thing.reconfigure(RetryBudget(0, 1, 20))

    def left(self) -> object:
        told = self.thing.snapshot(1.5)
        assert self.thing._grants.total == sum(self.thing._grants.counts)
        return told["available"] + self.times


class Bucket(Used):
    def __init__(self) -> None:
        super().__init__()
        self.thing = TokenBucket(20, {None: 1})

    def use(self) -> None:
        self.times += self.thing.spend() is not None

    def retune(self) -> None:
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

    def retune(self) -> None:
        self.thing.reconfigure(RateLimit(1, per=500, burst=20, wait=0))

    def left(self) -> object:
        assert self.thing._pacer.fast_arrival_time < inf
        return self.thing.snapshot()["available"] + self.times


class Places(Used):
    def __init__(self) -> None:
        super().__init__()
        self.thing = Bulkhead(2, 0)

    def use(self) -> None:
        with suppress(errors.BulkheadFull):
            self.thing.admit(0.0)
            self.times += 1

    def retune(self) -> None:
        self.thing.reconfigure(Bulkhead(20, 0))

    def left(self) -> object:
        places = self.thing._slots
        assert not places.queue
        return places.limit - len(places.leases) + self.times


class Interruption:
    """Does something at the n-th place where a signal may come."""

    def __init__(self, place: int, does: Callable[[], object]) -> None:
        self.left, self.does = place, does

    def __call__(self, frame: FrameType, what: str, _: object) -> None:
        if what in ("call", "c_return") and frame.f_code.co_filename in FILES:
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                self.does()


@pytest.mark.parametrize("make", [Budget, Bucket, Rate, Places])
@pytest.mark.parametrize("ways", ["use retune", "retune use", "retune retune"])
def test_nothing_is_lost_and_nothing_is_made(make: Callable[[], Used], ways: str) -> None:
    """Twenty are there in the end, less what was used; wherever the one comes in the middle of the other."""
    before = sys.getprofile()
    for place in count(1):
        used = make()
        does, comes = (getattr(used, way) for way in ways.split())
        interruption = Interruption(place, comes)
        sys.setprofile(interruption)
        try:
            does()
        finally:
            sys.setprofile(before)
        if interruption.left > 0:
            break
        used.retune()
        assert used.left() == 20, place


def test_a_flow_that_is_released_in_the_middle() -> None:
    class Interrupted(GcraPacer):
        __slots__ = ()

        def _expire_hints(self, now: float) -> None:
            super()._expire_hints(now)
            self.open_fast_path()

    flow: Any = Interrupted(10, 1)
    flow.take(5.0)
    flow.reconfigure(20, 1, 5.0)
    assert flow.quick == flow.free == 25.0
