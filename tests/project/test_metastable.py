"""Recovery of a service after a brownout, depending on the retry policy of its clients.

A small model without real time, with the real engine. The service processes requests in order and does not
notice that a client has gone; clients wait for a second, and then may retry.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from heapq import heappop, heappush
from typing import Any

import pytest

from redouble import Backoff, Retry, RetryBudget, TokenBucket
from redouble._engine.run import Run
from tests.support.fakes import Virtual

pytestmark = pytest.mark.one_python

CALLS = 52  # a second
CAPACITY = 60  # a second: without retries there is some to spare, with 20 % more calls there is not
PATIENCE = 1.0
FROM, UNTIL = 30.0, 40.0  # it browns out for ten seconds,
SLOWER = 5.0  # to a fifth of its capacity
END = 140.0


class Service:
    """Processes one request after the other, abandoned ones too."""

    def __init__(self) -> None:
        self.free = 0.0
        self.requests = 0

    def send(self, now: float) -> float:
        """Queue a request; return the time of its response."""
        self.requests += 1
        begin = max(now, self.free)
        self.free = begin + (SLOWER if FROM <= begin < UNTIL else 1.0) / CAPACITY
        return self.free


class World:
    """Clients that come by chance, all with one policy, and how their calls ended, by the second."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.coming = random.Random(seed)  # when clients come is the same in all worlds of a seed
        self.chance = random.Random(seed)
        self.policy = Retry(
            on=TimeoutError,
            backoff=Backoff.exponential(0.2).maximum(2).full_jitter(),
            random=self.chance,
            clock=Virtual(),
            **options,
        )
        self.service, self.before = Service(), 0
        self.good, self.bad = Counter[int](), Counter[int]()
        self.waiting: list[tuple[float, int, Run, float | None]] = []

    def attempt(self, run: Run, now: float) -> None:
        if run.start(now) is not None:
            self.bad[int(now)] += 1
            return
        answer = self.service.send(now)
        known = min(answer, now + PATIENCE)
        heappush(self.waiting, (known, self.service.requests, run, answer if answer == known else None))

    def ended(self, run: Run, now: float, answer: float | None) -> None:
        if answer is not None:
            run.returned("answer", now)
            self.good[int(now)] += 1
            return
        delay = run.failed(TimeoutError(), now)
        if delay is None:
            self.bad[int(now)] += 1
        else:
            heappush(self.waiting, (now + delay, -self.chance.getrandbits(60), run, -1.0))

    def play(self, until: float = END) -> World:
        call = 0.0
        while call < until:
            if self.waiting and self.waiting[0][0] <= call:
                now, _, run, answer = heappop(self.waiting)
                if answer == -1.0:
                    self.attempt(run, now)
                else:
                    self.ended(run, now, answer)
            else:
                self.attempt(Run(self.policy, call, attempt=0), call)
                call += self.coming.expovariate(CALLS)
            if call < END - 60:
                self.before = self.service.requests
        return self

    def recovered(self) -> float | None:
        """Return the time of the recovery: from then on nearly every call succeeds."""
        for second in range(int(UNTIL), int(END) - 10):
            span = range(second, second + 10)
            bad = sum(self.bad[each] for each in span)
            if bad <= 0.01 * sum(self.good[each] for each in span):
                return second - UNTIL
        return None

    def load(self) -> float:
        """Return the load of the last minute as a share of the capacity."""
        return (self.service.requests - self.before) / (60 * CAPACITY)


SEEDS = pytest.mark.parametrize("seed", range(3))


@cache
def without_retries(seed: int) -> float:
    late = World(seed, attempts=1).play().recovered()
    assert late is not None
    return late


@SEEDS
def test_retries_alone_keep_it_down(seed: int) -> None:
    """Three retries with jitter: long after the cause has gone, the load is three times the capacity."""
    world = World(seed).play()
    assert world.recovered() is None
    assert world.load() > 2


@SEEDS
@pytest.mark.parametrize(
    ("make", "more"),
    [
        # Retries earned before are spent first, and their load has to be processed too.
        (lambda: RetryBudget(per_second=0.1), 20),
        (lambda: RetryBudget(per_second=0.1, window=1), 3),
        (TokenBucket, 10),
    ],
    ids=["ten seconds", "one second", "bucket"],
)
def test_with_a_budget_credited_by_successes_it_recovers(
    seed: int, make: Callable[[], Any], more: float
) -> None:
    """As fast as without retries, but for what had been earned in the window before."""
    late = World(seed, budget=make()).play().recovered()
    assert late is not None
    assert late <= without_retries(seed) + more


@SEEDS
def test_with_a_budget_credited_by_requests_it_does_not(seed: int) -> None:
    """It grants a fifth also while everything fails: a small permanent overload is enough."""
    world = World(seed, budget=RetryBudget(per_second=0.1, credit="request")).play()
    assert world.recovered() is None
    assert 1 < world.load() < 1.1


@SEEDS
def test_in_good_times_nobody_notices(seed: int) -> None:
    """Before it browns out every call succeeds."""
    for options in ({"attempts": 1}, {}, {"budget": RetryBudget()}):
        assert not World(seed, **options).play(until=FROM).bad
