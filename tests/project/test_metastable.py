"""Recovery of a service after a brownout, depending on the retry policy of its clients.

A small model without real time, with the real engine. The service processes requests in order, also those
whose client has given up; clients wait for a second, and then may retry.
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

CALLS = 52  # per second
CAPACITY = 60  # per second: enough without retries, too little for 20 % more calls
PATIENCE = 1.0
FROM, UNTIL = 30.0, 40.0  # the brownout, in seconds
SLOWER = 5.0  # the factor by which each request takes longer during the brownout
END = 140.0


class Service:
    """Processes requests one after the other, also abandoned ones."""

    def __init__(self) -> None:
        self.free = 0.0
        self.requests = 0

    def send(self, now: float) -> float:
        """Queue a request; return the time of its response."""
        self.requests += 1
        begin = max(now, self.free)
        self.free = begin + (SLOWER if FROM <= begin < UNTIL else 1.0) / CAPACITY
        return self.free


class Simulation:
    """Randomly arriving calls with one policy, and the number of successes and failures in each second."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.arrivals = random.Random(seed)  # the times of the calls depend on the seed alone
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

    def play(self, until: float = END) -> Simulation:
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
                call += self.arrivals.expovariate(CALLS)
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
    late = Simulation(seed, attempts=1).play().recovered()
    assert late is not None
    return late


@SEEDS
def test_with_retries_alone_the_service_does_not_recover(seed: int) -> None:
    """Three retries with jitter keep the load above twice the capacity, long after the brownout."""
    simulation = Simulation(seed).play()
    assert simulation.recovered() is None
    assert simulation.load() > 2


@SEEDS
@pytest.mark.parametrize(
    ("make", "more"),
    [
        # Retries credited before are spent first, and their requests have to be processed too.
        (lambda: RetryBudget(per_second=0.1), 20),
        (lambda: RetryBudget(per_second=0.1, window=1), 3),
        (TokenBucket, 10),
    ],
    ids=["ten seconds", "one second", "bucket"],
)
def test_with_a_budget_credited_by_successes_the_service_recovers(
    seed: int, make: Callable[[], Any], more: float
) -> None:
    """As fast as without retries, apart from the retries credited before the brownout."""
    late = Simulation(seed, budget=make()).play().recovered()
    assert late is not None
    assert late <= without_retries(seed) + more


@SEEDS
def test_with_a_budget_credited_by_requests_the_service_does_not_recover(seed: int) -> None:
    """It grants 20 % retries even while all calls fail, and this overload suffices."""
    simulation = Simulation(seed, budget=RetryBudget(per_second=0.1, credit="request")).play()
    assert simulation.recovered() is None
    assert 1 < simulation.load() < 1.1


@SEEDS
def test_without_a_brownout_every_call_succeeds(seed: int) -> None:
    """With each of the policies."""
    for options in ({"attempts": 1}, {}, {"budget": RetryBudget()}):
        assert not Simulation(seed, **options).play(until=FROM).bad
