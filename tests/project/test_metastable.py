"""A service that browns out and comes back: whether its clients let it, by how they retry.

A small model of it, without real time and with the engine itself. The service works off what it is sent in
order, and does not know that a client has gone; clients wait a second, and then they may try again.
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
    """Works off one request after the other, also those that nobody waits for any more."""

    def __init__(self) -> None:
        self.free = 0.0
        self.requests = 0

    def send(self, now: float) -> float:
        """Take a request; tell when the answer comes."""
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
        """Tell when all was well again: from then on, nearly every call succeeds."""
        for second in range(int(UNTIL), int(END) - 10):
            span = range(second, second + 10)
            bad = sum(self.bad[each] for each in span)
            if bad <= 0.01 * sum(self.good[each] for each in span):
                return second - UNTIL
        return None

    def load(self) -> float:
        """Tell what the service was sent in the last minute, as a share of what it can do."""
        return (self.service.requests - self.before) / (60 * CAPACITY)


SEEDS = pytest.mark.parametrize("seed", range(3))


@cache
def without_retries(seed: int) -> float:
    late = World(seed, attempts=1).play().recovered()
    assert late is not None
    return late


@SEEDS
def test_retries_alone_keep_it_down(seed: int) -> None:
    """Three retries with jitter: long after the cause has gone, it is sent three times what it can do."""
    world = World(seed).play()
    assert world.recovered() is None
    assert world.load() > 2


@SEEDS
@pytest.mark.parametrize(
    ("make", "more"),
    [
        # What was earned before is spent at first, and has to be worked off too.
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
    """It goes on granting a fifth while everything fails: a little too much for ever is enough."""
    world = World(seed, budget=RetryBudget(per_second=0.1, credit="request")).play()
    assert world.recovered() is None
    assert 1 < world.load() < 1.1


@SEEDS
def test_in_good_times_nobody_notices(seed: int) -> None:
    """Before it browns out every call succeeds."""
    for options in ({"attempts": 1}, {}, {"budget": RetryBudget()}):
        assert not World(seed, **options).play(until=FROM).bad
