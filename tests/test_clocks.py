"""Odd clocks and absurd delays: never an endless loop, a negative delay or an OverflowError."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import nan
from typing import Any

import pytest

from conftest import Drive
from redouble import SYSTEM, Clock, Retry, _time
from redouble._drive import begin
from redouble._run import MOST_STALLED
from redouble._time import LONGEST_SLEEP
from support import SYNC, Boom, Call, Ledger, Virtual, fail, in_colour, ok


class Backwards(Virtual):
    """Goes back an hour with every look."""

    def now(self) -> float:
        self.time -= 3600
        return self.time


class Broken(Virtual):
    """Knows nothing."""

    def now(self) -> float:
        return nan


class BrokenFirst(Virtual):
    """Knows nothing at the start."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return nan if self.looks == 1 else self.time


class BrokenLater(BrokenFirst):
    """Knows nothing after the start."""

    def now(self) -> float:
        self.looks += 1
        return nan if self.looks > 1 else self.time


class Impatient(Virtual):
    """Its waits end at once."""

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class Frozen(Impatient):
    """And it stands still."""

    def now(self) -> float:
        return 7.0


FOR_EVER: dict[str, Any] = {"attempts": None, "backoff": [10] * 999}


@pytest.mark.parametrize("clock", [Backwards, Broken, BrokenFirst, BrokenLater, Impatient, Frozen])
def test_it_ends(drive: Drive, clock: type[Virtual]) -> None:
    """The delays count even if the clock does not."""
    call = drive(["fail"], clock=clock, **FOR_EVER)
    assert Call(raises=Boom, reason="timeout", attempts=3, sleeps=[10, 10]) == call


@pytest.mark.parametrize("clock", [Backwards, Broken, BrokenFirst, BrokenLater, Impatient, Frozen])
def test_it_still_retries(drive: Drive, clock: type[Virtual]) -> None:
    assert Call(1, attempts=3) == drive(["fail", "fail", ok(1)], clock=clock, work_timeout=5, timeout=30)


def test_a_clock_that_knows_nothing_at_the_start_of_a_long_day() -> None:
    """Then its first true answer looks like a very late one: that costs retries, and no more."""
    clock = BrokenFirst(1e6)

    def work() -> None:
        raise Boom

    with pytest.raises(Boom):
        Retry(on=Boom, clock=clock)(work)()
    assert clock.waits == []


def test_time_that_stands_still_and_no_delays() -> None:
    calls = [0]

    @Retry(on=Boom, attempts=None, backoff=[0] * 2 * MOST_STALLED, clock=Frozen())
    def work() -> None:
        calls[0] += 1
        raise Boom

    with pytest.raises(Boom):
        work()
    assert MOST_STALLED < calls[0] < MOST_STALLED + 9


@pytest.mark.parametrize("who", ["nobody", "operation", "rule", "observer"])
def test_time_that_moves_is_not_taken_for_standing_still(who: str) -> None:
    """In the operation, in the rule or in an observer: any of them counts."""
    clock = Virtual()

    def moves(name: str) -> bool:
        clock.time += 1e-9 if name == who else 0
        return True

    policy = Retry(
        on=lambda _: moves("rule"), on_failure=lambda _: moves("observer"), backoff=[0], clock=clock
    )
    run = begin(policy, "work", 0.0, aio=False, attempt=1)
    run.stalled = MOST_STALLED + 1
    moves("operation")
    assert run.failed(Boom(), clock.time) == (None if who == "nobody" else 0)


class Alarm:
    """Stands in for the module `time`: remembers sleeps, and refuses what the real one would."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        if not 0 <= seconds < 9.2e9:
            raise OverflowError("timestamp too large to convert to C _PyTime_t")
        self.sleeps.append(seconds)

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    """Let no sleep be real."""
    module: Any = _time
    real, module.time = module.time, Alarm()
    try:
        yield module.time
    finally:
        module.time = real


@pytest.mark.parametrize("delay", [0.5, LONGEST_SLEEP, LONGEST_SLEEP * 2, 1e300, sys.float_info.max])
def test_no_sleep_is_too_long_for_the_system(alarm: Alarm, delay: float) -> None:
    fails = [Boom()]

    @Retry(on=Boom, backoff=[delay], give_up_after=None)
    def work() -> str:
        if fails:
            raise fails.pop()
        return "done"

    assert work() == "done"
    assert alarm.sleeps == [min(delay, LONGEST_SLEEP)]


@pytest.mark.parametrize("delay", [1e12, 1e300, sys.float_info.max])
@pytest.mark.parametrize("colour", ["asyncio", "uvloop", "trio"])
def test_no_wait_is_too_long_for_a_loop(colour: str, delay: float) -> None:
    """It begins; a timeout around it ends it."""
    import asyncio

    import trio

    async def main() -> str:
        if colour == "trio":
            with trio.move_on_after(0):
                await SYSTEM.asleep(delay)
            return "cut"
        task = asyncio.ensure_future(SYSTEM.asleep(delay))
        await asyncio.wait([task], timeout=0)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        return "cut"

    assert in_colour(colour, lambda: None, main) == "cut"


def test_time_comes_from_the_clock_of_the_colour(colour: str) -> None:
    class Two(Virtual):
        """Another time in async code."""

        def now(self) -> float:
            return 1.0

        def anow(self) -> float:
            return 100.0

    ledger = Ledger()
    policy = Retry(on=Boom, clock=Two(), budget=ledger)

    def work() -> None: ...

    async def awork() -> None: ...

    in_colour(colour, lambda: policy.call(work), lambda: policy.call(awork))
    assert ledger.times == [1.0 if colour in SYNC else 100.0] * 2


def test_somebodys_clock_needs_only_two_methods(drive: Drive) -> None:
    class Theirs:
        """Not a subclass of ours."""

        def __init__(self) -> None:
            self.waits: list[float] = []
            self.time = 0.0

        def now(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            self.waits.append(seconds)

        async def asleep(self, seconds: float) -> None:
            self.waits.append(seconds)

    assert not isinstance(Theirs(), Clock)
    call = drive([fail(), fail(), ok(1)], clock=Theirs, backoff=[1, 2])
    assert Call(1, attempts=3, sleeps=[1, 2]) == call
