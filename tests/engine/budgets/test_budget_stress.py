"""Budgets under contention: exact counts, and nothing lost when calls are cancelled.

Threads switch every microsecond here.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import ceil
from typing import Any

import pytest
import trio
import trio.lowlevel

from redouble import SYSTEM, Grant, Kind, Retry, RetryBudget, TokenBucket, types
from redouble._engine.budgets.retry_budget import MAX_PENDING
from redouble.testing import VirtualClock
from tests.support.budgets import ANY, InterruptingTime, bucket_of
from tests.support.fakes import Boom
from tests.support.thread_switching import run_in_threads, switching
from tests.support.virtual_time import at, no_real_waits

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures(switching.__name__)]

THREADS = 8
ROUNDS = 2500
NOW = 5.0


def budget_of_all(ratio: float = 0, per_second: float = 0) -> RetryBudget:
    """Return a budget whose window never ends."""
    return RetryBudget(ratio, per_second, window=1e6)


# ------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize("credit", ["success", "request"])
@pytest.mark.parametrize("ratio", [0.07, 0.2, 1])
def test_every_credit_counts_and_none_twice(ratio: float, credit: Any) -> None:
    budget = RetryBudget(ratio, 0, 1e6, credit)
    grants: list[Grant] = []

    def work(owner: str) -> None:
        chance = random.Random(owner)
        for _ in range(ROUNDS):
            budget.start(NOW)
            budget.credit(None, NOW)
            if chance.random() < 0.3 and (grant := budget.spend(ANY, NOW)) is not None:
                grants.append(grant)

    run_in_threads(work, threads=THREADS)
    most = ceil(round(THREADS * ROUNDS * ratio, 6))
    seen = budget.snapshot(NOW)
    assert seen["credits"] == THREADS * ROUNDS
    assert (seen["limit"], seen["granted"]) == (most, len(grants))
    while budget.spend(ANY, NOW) is not None:
        grants.append(Grant(1))
    assert len(grants) == most


def test_two_threads_with_many_pending_credits_count_them_once() -> None:
    """Both wait for a third thread that counts; then one of them counts the remainder, the other nothing."""
    budget, never = budget_of_all(ratio=1), threading.Event()
    begun, go = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go.wait()

    held = InterruptingTime(NOW)
    held.action = hold
    budget.credit(None, held)

    def credits_(number: int) -> None:
        for _ in range(number):
            budget.credit(None, NOW)

    with ThreadPoolExecutor(3) as pool:
        try:
            counting = pool.submit(budget.spend, ANY, NOW)
            begun.wait()
            crediting = [pool.submit(credits_, MAX_PENDING)]
            while len(budget._pending_credits) < MAX_PENDING:
                never.wait(0.001)
            crediting.append(pool.submit(credits_, 1))
            while len(budget._pending_credits) <= MAX_PENDING:
                never.wait(0.001)
        finally:
            go.set()
        assert counting.result() is not None
        assert [each.result() for each in crediting] == [None, None]
    assert budget.snapshot(NOW)["credits"] == MAX_PENDING + 2


BOTH: list[Callable[[], types.Budget]] = [
    lambda: budget_of_all(per_second=10 / 1e6),
    lambda: bucket_of(10),
    lambda: bucket_of(10, refill_per_second=1e-9),
]
EACH = pytest.mark.parametrize("make", BOTH, ids=["budget", "bucket", "refilled"])


@EACH
def test_the_number_of_grants_never_exceeds_the_limit(make: Callable[[], types.Budget]) -> None:
    """A refunded grant can be granted again, once."""
    budget, inside, most = make(), set[object](), list[int]()

    def work(owner: str) -> None:
        chance = random.Random(owner)
        mine: list[tuple[object, Grant]] = []
        for _ in range(ROUNDS):
            if chance.random() < 0.6 and (grant := budget.spend(ANY, NOW)) is not None:
                mine.append((ticket := object(), grant))
                inside.add(ticket)
                most.append(len(inside))
            elif mine:
                ticket, grant = mine.pop(chance.randrange(len(mine)))
                inside.discard(ticket)
                budget.refund(grant, NOW)
        for ticket, grant in mine:
            inside.discard(ticket)
            budget.refund(grant, NOW)

    run_in_threads(work, threads=THREADS)
    assert 0 < max(most) <= 10
    assert not inside
    seen = budget.snapshot()
    assert seen.get("available", seen.get("tokens")) == pytest.approx(10)


@pytest.mark.parametrize("rate", [0, 1e-9])
def test_tokens_are_conserved(rate: float) -> None:
    bucket = TokenBucket(1e6, success_increment=0.25, refill_per_second=rate)
    for _ in range(1000):  # so that it is not full
        bucket.spend(Kind.throttled, NOW)
    taken: list[float] = []

    def work(owner: str) -> None:
        chance = random.Random(owner)
        kinds = list(Kind)
        for _ in range(ROUNDS):
            grant = bucket.spend(chance.choice(kinds), NOW)
            assert grant is not None
            match chance.randrange(3):
                case 0:
                    bucket.refund(grant, NOW)
                case 1:
                    bucket.credit(grant, NOW)
                case _:
                    bucket.credit(None, NOW)
                    taken.append(grant.cost - 0.25)

    run_in_threads(work, threads=THREADS)
    assert bucket.snapshot()["tokens"] == pytest.approx(1e6 - 1e4 - sum(taken), abs=1e-3)


def test_calls_on_many_threads_retry_within_their_budget() -> None:
    budget, calls, failures = budget_of_all(ratio=0.2, per_second=20 / 1e6), list[None](), list[None]()
    policy = Retry(on=Boom, attempts=3, backoff=[0, 0], budget=budget)

    def operation(fails: bool) -> None:
        calls.append(None)
        if fails:
            raise Boom

    retried = policy(operation)

    def work(owner: str) -> None:
        chance = random.Random(owner)
        for _ in range(200):
            try:
                retried(chance.random() < 0.4)
            except Boom:
                failures.append(None)

    run_in_threads(work, threads=THREADS)
    seen, made = budget.snapshot(), THREADS * 200
    assert seen["credits"] == made - len(failures)
    assert seen["granted"] == len(calls) - made
    assert seen["granted"] <= seen["limit"] == ceil((made - len(failures)) / 5) + 20


# ------------------------------------------------------------------------------- cancellation

PLACES = ["asyncio around", "asyncio inside", "trio around jumping", "trio inside jumping"]
TASKS = 150


class CancelledCalls:
    """Calls that fail, retry and succeed, half of which are cancelled at random moments."""

    def __init__(self, budget: types.Budget, seed: int) -> None:
        self.chance = random.Random(seed)
        self.policy = Retry(
            on=Boom, attempts=5, backoff=[0, 0.5, 1, 0], give_up_after=None, budget=budget, timeout=6
        )
        self.started: list[int] = []  # attempts of each call
        self.ended: list[int] = []  # attempts of each call that succeeded

    async def call(self) -> None:
        index = len(self.started)
        self.started.append(0)
        takes = [self.chance.choice([0, 0, 0.25, 1, 9]) for _ in range(5)]
        good = self.chance.randrange(8)

        async def work() -> None:
            self.started[index] += 1
            await SYSTEM.asleep(takes[self.started[index] - 1])
            if self.started[index] <= good:
                raise Boom

        await self.policy.call(work)
        self.ended.append(self.started[index])

    async def in_asyncio(self) -> None:
        async def one() -> None:
            with suppress(Boom, TimeoutError):
                await self.call()

        tasks = [asyncio.ensure_future(one()) for _ in range(TASKS)]
        for task in self.chance.sample(tasks, TASKS // 2):
            await SYSTEM.asleep(self.chance.choice([0, 0, 0.01, 0.1]))
            task.cancel()
        await asyncio.wait(tasks)

    async def in_trio(self) -> None:
        async def one(scope: trio.CancelScope) -> None:
            with scope, suppress(Boom, TimeoutError):
                await self.call()

        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in range(TASKS)]
            for scope in scopes:
                nursery.start_soon(one, scope)
            for scope in self.chance.sample(scopes, TASKS // 2):
                await SYSTEM.asleep(self.chance.choice([0, 0, 0.01, 0.1]))
                scope.cancel()

    def play(self, place: str) -> None:
        async def waiting(clock: VirtualClock) -> None:
            await (self.in_trio() if place.startswith("trio") else self.in_asyncio())

        at(place, lambda _: None, waiting)

    @property
    def retries(self) -> int:
        return sum(max(0, made - 1) for made in self.started)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures(no_real_waits.__name__)
def test_after_cancellations_the_grants_are_the_retries_that_began(place: str, seed: int) -> None:
    budget = budget_of_all(ratio=0.5, per_second=100 / 1e6)
    calls = CancelledCalls(budget, seed)
    calls.play(place)
    seen = budget.snapshot()
    assert len(calls.started) == TASKS
    assert 0 < calls.retries == seen["granted"] <= seen["limit"]
    assert seen["credits"] == len(calls.ended) > 0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("options", [{}, {"refill_per_second": 1e-12, "when_empty": "refuse"}])
@pytest.mark.usefixtures(no_real_waits.__name__)
def test_cancellation_loses_no_token(place: str, options: dict[str, Any]) -> None:
    bucket = bucket_of(100, success_increment=0, **options)
    calls = CancelledCalls(bucket, 7)
    calls.play(place)
    rewarded = sum(made > 1 for made in calls.ended)
    assert calls.retries > rewarded > 0
    assert bucket.snapshot()["tokens"] == pytest.approx(100 - calls.retries + rewarded, abs=1e-6)


# ---------------------------------------------------------------------------- what is in flight


@pytest.mark.parametrize(("share", "minimum"), [(0, 3), (0.25, 0), (0.25, 1)])
def test_retries_in_flight_never_exceed_the_cap(share: float, minimum: int) -> None:
    """At no moment more than all threads together justify; and nothing is left in the end."""
    budget = RetryBudget(None, max_in_flight=share, minimum=minimum)
    counter = budget.traits.in_flight
    assert counter is not None
    most, highest = max(minimum, int(THREADS * share)), list[int]()

    def work(owner: str) -> None:
        chance = random.Random(owner)
        policy = Retry(on=Boom, attempts=4, backoff=[0, 0, 0], budget=budget, give_up_after=None)

        def attempt() -> None:
            highest.append(len(counter.retries))
            if chance.random() < 0.7:
                raise Boom

        decorated = policy(attempt)
        for _ in range(ROUNDS // 10):
            with suppress(Boom):
                decorated()
            for each in policy:
                with suppress(Boom), each:
                    attempt()

    run_in_threads(work, threads=THREADS)
    assert 0 < max(highest) <= most
    assert (len(counter.calls), len(counter.retries)) == (0, 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_calls_are_not_in_flight(backend: str) -> None:
    budget = RetryBudget(None, max_in_flight=0.5, minimum=3)
    counter = budget.traits.in_flight
    assert counter is not None
    chance = random.Random(backend)

    @Retry(on=Boom, attempts=4, backoff=[0, 0, 0], budget=budget)
    async def attempt() -> None:
        if backend == "asyncio":
            await asyncio.sleep(0)
        else:
            await trio.lowlevel.checkpoint()
        if chance.random() < 0.7:
            raise Boom

    async def one() -> None:
        with suppress(Boom):
            await attempt()

    async def main_asyncio() -> None:
        for _ in range(100):
            tasks = [asyncio.create_task(one()) for _ in range(20)]
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            for task in chance.sample(tasks, 10):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (len(counter.calls), len(counter.retries)) == (0, 0)

    async def main_trio() -> None:
        for _ in range(100):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(one)
                for _ in range(chance.randrange(6)):
                    await trio.lowlevel.checkpoint()
                if chance.random() < 0.5:
                    nursery.cancel_scope.cancel()
            assert (len(counter.calls), len(counter.retries)) == (0, 0)

    if backend == "asyncio":
        asyncio.run(main_asyncio())
    else:
        trio.run(main_trio)
