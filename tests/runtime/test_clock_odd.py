"""Broken clocks: no endless loop, no negative delay, and as many retries as possible."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from redouble import Backoff, Clock, Retry
from redouble._drivers.calls import begin_run
from redouble._engine import run as _run
from redouble._engine.run import MAX_STALLED, Run
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import SYNC, Boom, Call, Ledger, Virtual, fail, in_colour, ok


class Backwards(Virtual):
    """A clock that goes back an hour with every read."""

    def now(self) -> float:
        self.time -= 3600
        return self.time

    def anow(self) -> float:
        return self.now()


class Broken(Virtual):
    """A clock that always returns NaN."""

    invalid = nan

    def now(self) -> float:
        return self.invalid

    def anow(self) -> float:
        return self.now()


class BrokenFirst(Broken):
    """A clock whose first read is invalid."""

    reads = 0

    def now(self) -> float:
        self.reads += 1
        return self.invalid if self.reads == 1 else self.time


class BrokenLater(BrokenFirst):
    """A clock whose reads are invalid after the first one."""

    def now(self) -> float:
        self.reads += 1
        return self.invalid if self.reads > 1 else self.time


class Endless(Broken):
    """A clock whose time is always past every limit."""

    invalid = inf


class EndlessFirst(BrokenFirst):
    invalid = inf


class EndlessLater(BrokenLater):
    invalid = inf


class Beginless(Broken):
    """A clock whose time is always before every limit."""

    invalid = -inf


class BeginlessFirst(BrokenFirst):
    invalid = -inf


class BeginlessLater(BrokenLater):
    invalid = -inf


class Impatient(Virtual):
    """A clock whose waits end at once."""

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class Frozen(Impatient):
    """A clock that stands still, and whose waits end at once."""

    def now(self) -> float:
        return 7.0

    def anow(self) -> float:
        return 7.0


NOT_A_NUMBER = [Broken, BrokenFirst, BrokenLater]
ALWAYS_LATE = [Endless, EndlessFirst, EndlessLater]
ALWAYS_EARLY = [Beginless, BeginlessFirst, BeginlessLater]
ODD = [Backwards, *NOT_A_NUMBER, *ALWAYS_LATE, *ALWAYS_EARLY, Impatient, Frozen]


FOR_EVER: dict[str, Any] = {"attempts": None, "backoff": [10] * 99}


@pytest.mark.parametrize("clock", ODD)
def test_a_call_with_a_broken_clock_ends(drive: Drive, clock: type[Virtual]) -> None:
    """The delays count, even if the clock does not."""
    call = drive(["fail"], clock=clock, **FOR_EVER)
    assert Call(raises=Boom, reason="timeout", attempts=3, sleeps=[10, 10]) == call


@pytest.mark.parametrize("clock", ODD)
def test_a_call_with_a_broken_clock_is_retried(drive: Drive, clock: type[Virtual]) -> None:
    assert Call(1, attempts=3) == drive(["fail", "fail", ok(1)], clock=clock, work_timeout=5, timeout=30)


def test_an_invalid_first_read_may_cost_the_retries() -> None:
    """The first valid time then looks like a very late one."""
    clock = BrokenFirst(1e6)

    def work() -> None:
        raise Boom

    with pytest.raises(Boom):
        Retry(on=Boom, clock=clock)(work)()
    assert clock.waits == []


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lower the number of consecutive attempts that may take no time, so that a test can reach it."""
    most = 2000
    monkeypatch.setattr(_run, "MAX_STALLED", most)
    return most


def test_attempts_without_delay_on_a_frozen_clock_end(stalls: int) -> None:
    calls = [0]

    @Retry(on=Boom, attempts=None, backoff=[0] * 2 * stalls, clock=Frozen())
    def work() -> None:
        calls[0] += 1
        raise Boom

    with pytest.raises(Boom):
        work()
    assert stalls < calls[0] < stalls + 9


@pytest.mark.parametrize("most", [9, None])
def test_attempts_end_if_the_delays_are_lost_to_rounding(colour: str, most: int | None, stalls: int) -> None:
    """Ten nanoseconds added to the seconds since 1970 change nothing."""
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
def test_any_progress_of_time_resets_the_count_of_stalled_attempts(moment: str) -> None:
    """Between attempts, within one, or by the delay."""
    delays = [0, float(moment == "delay"), 0]
    policy = Retry(on=Boom, until=bool, attempts=None, backoff=delays, clock=Virtual())
    run = begin_run(Run, policy, "work", aio=False)
    assert run.start(0.0) is None
    assert run.failed(Boom(), 0.0) == 0
    run.stalled = MAX_STALLED
    run.start(1e-9 * (moment == "start"))
    if moment == "returned":
        run.returned(0, 1e-9)
    else:
        run.failed(Boom(), 1e-9 * (moment == "failed"))
    assert run.start(0.0) is None
    assert run.failed(Boom(), 0.0) == (None if moment == "nothing" else 0)


@pytest.mark.parametrize("where", ["nothing", "operation", "rule", "observer"])
def test_time_that_passes_anywhere_is_progress(where: str) -> None:
    """In the operation, in the rule or in an observer."""
    clock = Virtual()

    def moves(name: str) -> bool:
        clock.time += 1e-9 if name == where else 0
        return True

    policy = Retry(
        on=lambda _: moves("rule"),
        on_failure=lambda _: moves("observer"),
        attempts=None,
        backoff=[0],
        clock=clock,
    )
    run = begin_run(Run, policy, "work", aio=False, attempt=1, started=0.0)
    run.moved, run.stalled = 0.0, MAX_STALLED + 1
    moves("operation")
    assert run.failed(Boom(), clock.time) == (None if where == "nothing" else 0)


def test_time_comes_from_the_clock_of_the_colour(colour: str) -> None:
    class Two(Virtual):
        """A clock with another time in async code."""

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
        """A clock that is not a subclass of ours."""

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
