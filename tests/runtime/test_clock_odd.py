"""Broken clocks: never an endless loop, never a negative delay, and as many retries as possible."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from redouble import Backoff, Clock, Retry
from redouble._drivers.calls import begin_run
from redouble._engine import run as _run
from redouble._engine.run import MAX_STALLED, Run
from tests.conftest import Drive
from tests.support.fakes import SYNC, Boom, Call, Ledger, Virtual, fail, in_colour, ok


class Backwards(Virtual):
    """Goes back an hour with every look."""

    def now(self) -> float:
        self.time -= 3600
        return self.time

    def anow(self) -> float:
        return self.now()


class Broken(Virtual):
    """Knows nothing."""

    says = nan

    def now(self) -> float:
        return self.says

    def anow(self) -> float:
        return self.now()


class BrokenFirst(Broken):
    """Knows nothing at the start."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return self.says if self.looks == 1 else self.time


class BrokenLater(BrokenFirst):
    """Knows nothing after the start."""

    def now(self) -> float:
        self.looks += 1
        return self.says if self.looks > 1 else self.time


class Endless(Broken):
    """The time is always past every limit."""

    says = inf


class EndlessFirst(BrokenFirst):
    says = inf


class EndlessLater(BrokenLater):
    says = inf


class Beginless(Broken):
    """The time is always before every limit."""

    says = -inf


class BeginlessFirst(BrokenFirst):
    says = -inf


class BeginlessLater(BrokenLater):
    says = -inf


class Impatient(Virtual):
    """Its waits end at once."""

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class Frozen(Impatient):
    """And it stands still."""

    def now(self) -> float:
        return 7.0

    def anow(self) -> float:
        return 7.0


KNOW_NOTHING = [Broken, BrokenFirst, BrokenLater]
FOR_EVER_LATE = [Endless, EndlessFirst, EndlessLater]
FOR_EVER_EARLY = [Beginless, BeginlessFirst, BeginlessLater]
ODD = [Backwards, *KNOW_NOTHING, *FOR_EVER_LATE, *FOR_EVER_EARLY, Impatient, Frozen]


FOR_EVER: dict[str, Any] = {"attempts": None, "backoff": [10] * 99}


@pytest.mark.parametrize("clock", ODD)
def test_it_ends(drive: Drive, clock: type[Virtual]) -> None:
    """The delays count even if the clock does not."""
    call = drive(["fail"], clock=clock, **FOR_EVER)
    assert Call(raises=Boom, reason="timeout", attempts=3, sleeps=[10, 10]) == call


@pytest.mark.parametrize("clock", ODD)
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


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lower how many attempts in a row may take no time, so that a test can make them all."""
    most = 2000
    monkeypatch.setattr(_run, "MAX_STALLED", most)
    return most


def test_time_that_stands_still_and_no_delays(stalls: int) -> None:
    calls = [0]

    @Retry(on=Boom, attempts=None, backoff=[0] * 2 * stalls, clock=Frozen())
    def work() -> None:
        calls[0] += 1
        raise Boom

    with pytest.raises(Boom):
        work()
    assert stalls < calls[0] < stalls + 9


@pytest.mark.parametrize("most", [9, None])
def test_delays_too_short_to_be_seen(colour: str, most: int | None, stalls: int) -> None:
    """Today's seconds since 1970 are so large that adding ten nanoseconds to them changes nothing."""
    clock, calls = Impatient(1.7e9), [0]
    policy = Retry(on=Boom, attempts=most, backoff=Backoff.constant(1e-8), clock=clock)
    assert clock.time + 1e-8 == clock.time

    def work() -> None:
        calls[0] += 1
        raise Boom

    async def awork() -> None:
        work()

    with pytest.raises(Boom):
        in_colour(colour, lambda: policy.call(work), lambda: policy.call(awork))
    assert calls[0] == (most or stalls + 2)


@pytest.mark.parametrize("moment", ["nothing", "start", "failed", "returned", "delay"])
def test_what_counts_as_movement(moment: str) -> None:
    """Between attempts, within one, or the delay itself: each resets the count of stalled attempts."""
    policy = Retry(on=Boom, until=bool, attempts=None, backoff=[0, float(moment == "delay")], clock=Virtual())
    run = begin_run(Run, policy, "work", aio=False)
    assert run.start(0.0) is None
    assert run.failed(Boom(), 0.0) == 0
    run.stalled = MAX_STALLED
    run.start(1e-9 * (moment == "start"))
    if moment == "returned":
        run.returned(0, 1e-9)
    else:
        run.failed(Boom(), 1e-9 * (moment == "failed"))
    assert run.stalled == {"nothing": MAX_STALLED + 1, "delay": 0}.get(moment, 1)


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
    run = begin_run(Run, policy, "work", aio=False, attempt=1, started=0.0)
    run.stalled = MAX_STALLED + 1
    moves("operation")
    assert run.failed(Boom(), clock.time) == (None if who == "nobody" else 0)


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


def test_a_foreign_clock_needs_only_two_methods(drive: Drive) -> None:
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
