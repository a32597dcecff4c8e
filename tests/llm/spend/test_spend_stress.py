"""A thousand concurrent calls share a `Spend`: the sums are exact, and no limit is exceeded.

Threads switch every microsecond.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction

import pytest
import trio

from redouble.llm import Reservation, Spend, SpendRefused
from redouble.testing import virtual_time
from tests.support.llm.spends import spent, tokens
from tests.support.thread_switching import run_in_threads, switching

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures(switching.__name__)]

CALLS = 1000
LIMITS: Mapping[str, float] = {"tokens": 10_000, "cost": 50, "requests": 700}


class ManyCalls:
    """Calls that reserve, extend and commit random amounts, and the amounts they spent.

    honest: a call commits no more than it reserved.
    """

    def __init__(self, spend: Spend, *, honest: bool) -> None:
        self.spend, self.honest = spend, honest
        self.taken: list[tuple[int, Fraction]] = []
        self.refused: list[str | None] = []

    def check_limits(self) -> None:
        """Assert that no limit is exceeded now."""
        seen = self.spend.snapshot()
        for what, limit in LIMITS.items():
            assert seen[what] + seen[f"{what}_reserved"] <= limit

    def begin(self, chance: random.Random) -> tuple[Reservation, int, Fraction] | None:
        held, cost = chance.randrange(60), Fraction(chance.randrange(30), 100)
        try:
            reservation = self.spend.reserve(tokens=held, cost=cost)
        except SpendRefused as error:
            self.refused.append(error.what)
            return None
        self.check_limits()
        for _ in range(chance.randrange(4)):
            if reservation.more(tokens=5, cost=0.01):
                held, cost = held + 5, cost + Fraction(1, 100)
        return reservation, held, cost

    def end(self, chance: random.Random, reservation: Reservation, held: int, cost: Fraction) -> None:
        self.check_limits()
        match chance.randrange(8):
            case 0:
                reservation.release()
            case 1:
                pass  # the reservation is dropped
            case 2:
                reservation.commit()
                self.taken.append((held, cost))
            case _:
                took = held // 2 if self.honest else held * 2
                reservation.commit(tokens=took, cost=cost / 2)
                self.taken.append((took, cost / 2))
        self.check_limits()

    def check(self) -> None:
        """Assert that the sums are exact in the end."""
        seen = self.spend.snapshot()
        assert len(self.taken) == seen["requests"] > 100
        assert sum(took for took, _ in self.taken) == seen["tokens"] + seen["overdrawn_tokens"]
        assert float(sum(cost for _, cost in self.taken)) == seen["cost"]
        assert [seen[f"{what}_reserved"] for what in LIMITS] == [0, 0, 0]
        assert self.refused or self.honest
        assert (seen["overdrawn_tokens"] > 0) is not self.honest


def many_calls(*, honest: bool, per: float | None) -> ManyCalls:
    return ManyCalls(Spend(tokens=10_000, cost=50, requests=700, per=per, warn_at=None), honest=honest)


EACH = pytest.mark.parametrize(("honest", "per"), [(True, None), (False, 1e6)])


@EACH
def test_the_sums_are_exact_with_threads(honest: bool, per: float | None) -> None:
    calls = many_calls(honest=honest, per=per)

    def work(owner: str) -> None:
        chance = random.Random(owner)
        for _ in range(CALLS // 20):
            begun = calls.begin(chance)
            if begun is not None:
                calls.end(chance, *begun)

    run_in_threads(work, threads=20)
    calls.check()


@EACH
def test_the_sums_are_exact_with_asyncio_tasks(honest: bool, per: float | None) -> None:
    """All calls are in flight before the first one ends."""
    calls = many_calls(honest=honest, per=per)

    async def call(number: int) -> None:
        chance = random.Random(number)
        begun = calls.begin(chance)
        for _ in range(chance.randrange(1, 5)):
            await asyncio.sleep(0)
        if begun is not None:
            calls.end(chance, *begun)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(CALLS):
                group.create_task(call(number))

    asyncio.run(main())
    calls.check()


def test_cancelled_trio_tasks_release_their_reservation() -> None:
    """A call that is cancelled before its commit spends nothing."""
    spend, done = Spend(tokens=CALLS), list[None]()

    async def call(number: int) -> None:
        with trio.CancelScope() as scope, spend.reserve(tokens=1) as reservation:
            if number % 3 == 0:
                scope.cancel()
            await trio.lowlevel.checkpoint()
            reservation.commit()
            done.append(None)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(CALLS):
                nursery.start_soon(call, number)

    trio.run(main)
    assert tokens(spend) == (len(done), 0, CALLS - len(done), 0)
    assert len(done) == CALLS - CALLS // 3 - 1


def test_the_limit_is_reached_exactly() -> None:
    """As many calls are admitted as fit."""
    spend, got = Spend(tokens=1000, warn_at=None), list[None]()

    def work(owner: str) -> None:
        for _ in range(40):
            with suppress(SpendRefused):
                spent(spend, 1)
                got.append(None)

    run_in_threads(work, threads=40)
    assert tokens(spend) == (1000, 0, 0, 0)
    assert len(got) == 1000


def test_the_sums_are_exact_while_the_window_slides() -> None:
    """Calls commit more than they reserved: spent, overdrawn and expired amounts add up to all commits."""
    spend, taken, gone = Spend(tokens=500, per=60, warn_at=None), 0, 0.0
    chance = random.Random(7)
    with virtual_time() as clock:
        for _ in range(2000):
            clock.advance(chance.choice([0, 0, 0.1, 5]))
            with suppress(SpendRefused), spend.reserve(tokens=chance.randrange(1, 100)) as reservation:
                amount = chance.randrange(300)
                reservation.commit(tokens=amount)
                taken += amount
            seen, reserved, left, owed = tokens(spend)
            assert (seen + left, reserved) == (500, 0)
            assert taken - seen - owed >= gone
            gone = taken - seen - owed
    assert gone > 5000


# ------------------------------------------------------------------------------------------ forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_while_threads_use_a_spend_works() -> None:
    script = """
import os, signal, threading, warnings
from redouble.llm import Spend
warnings.simplefilter("ignore", DeprecationWarning)  # there are threads, which is the point
spend, over = Spend(tokens=10**6, per=3600), threading.Event()
def hammer():
    while not over.is_set():
        with spend.reserve(tokens=9) as reservation:
            reservation.more(tokens=1)
            reservation.commit(tokens=3)
threads = [threading.Thread(target=hammer) for _ in range(4)]
for thread in threads:
    thread.start()
mine, codes = spend.reserve(tokens=50), []
for _ in range(10):
    child = os.fork()
    if not child:
        signal.alarm(20)
        before = spend.snapshot()["tokens"]
        mine.release()
        spend.reserve(tokens=7).commit()
        seen = spend.snapshot()
        fine = (seen["tokens"], seen["tokens_reserved"], seen["overdrawn_tokens"]) == (before + 7, 0, 0)
        os._exit(7 if fine else 2)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
for thread in threads:
    thread.join()
print(*sorted(set(codes)), spend.snapshot()["tokens_reserved"])
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "7 50\n")
