"""Virtual time, wherever its block begins: an hour of delays takes no real time and counts as an hour."""

from __future__ import annotations

import time
from typing import Any

import pytest

from redouble import SYSTEM, Clock, Gate, Retry
from redouble._runtime.clock import fast_reader
from redouble.testing import Script, VirtualClock, fail, ok, recorded, virtual_time
from tests.support.fakes import Ledger, Virtual
from tests.support.virtual_time import PLACES, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


IMPORTED = Retry(backoff=[3600, 7200.5, 1800], give_up_after=None)


# ---------------------------------------------------------------------------- the clock


@pytest.mark.parametrize("place", PLACES)
def test_advance_moves_the_clock(place: str) -> None:
    def blocking(clock: VirtualClock) -> list[float]:
        moments = [clock.now(), SYSTEM.now()]
        for step in (60, 0, 0.5, 3600.0):
            clock.advance(step)
            moments += [clock.now(), SYSTEM.now()]
        assert clock.delays == []
        return moments

    async def waiting(clock: VirtualClock) -> list[float]:
        return blocking(clock)

    assert at(place, blocking, waiting) == [0, 0, 60, 60, 60, 60, 60.5, 60.5, 3660.5, 3660.5]


def test_advance_refuses_invalid_durations() -> None:
    with virtual_time() as clock:
        for bad in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=r"^seconds="):
                clock.advance(bad)
        wrong: Any = "1s"
        with pytest.raises(TypeError, match=r"^seconds='1s': write seconds as a number"):
            clock.advance(wrong)
        assert clock.now() == 0


def test_the_repr_of_a_virtual_clock() -> None:
    with virtual_time() as clock:
        clock.advance(12.5)
        assert repr(clock) == "<virtual clock at 12.5 s>"
        assert isinstance(clock, Clock)


@pytest.mark.parametrize("place", PLACES)
def test_the_system_clock_is_virtual_inside_a_block(place: str) -> None:
    """So that every layer uses it, whichever clock it was given at import."""

    def blocking(clock: VirtualClock) -> list[float]:
        SYSTEM.sleep(3600)
        return [SYSTEM.now(), SYSTEM.anow(), clock.now(), *clock.delays]

    async def waiting(clock: VirtualClock) -> list[float]:
        await SYSTEM.asleep(3600)
        return [SYSTEM.now(), SYSTEM.anow(), clock.now(), *clock.delays]

    assert at(place, blocking, waiting) == [3600] * 4


def test_other_ambient_features_do_not_change_the_time() -> None:
    assert (fast_reader(SYSTEM, aio=False), SYSTEM.now() > 0) == (time.monotonic, True)
    with recorded():
        assert abs(SYSTEM.now() - time.monotonic()) < 60
        assert abs(SYSTEM.anow() - time.monotonic()) < 60


class RecordingGate(Gate):
    def __init__(self) -> None:
        self.times: list[float] = []

    def admit(self, now: float, /) -> None:
        self.times.append(now)

    def ended(self, ticket: object, error: BaseException | None, now: float, /) -> None:
        self.times.append(now)


@pytest.mark.parametrize("place", PLACES)
def test_gates_and_budgets_use_virtual_time(place: str) -> None:
    ledger, gate = Ledger(), RecordingGate()
    guarded = Retry(backoff=[3600], give_up_after=None, budget=ledger) | gate
    script = Script(fail(takes=1), ok("done", takes=2))

    async def waiting(_: VirtualClock) -> object:
        return await guarded.call(script.aio)

    assert at(place, lambda _: guarded.call(script), waiting) == "done"
    assert gate.times == [0, 1, 3601, 3603]
    assert (ledger.lines, ledger.times) == (
        ["start", "failed network", "spend network", "credit 1"],
        [0, 1, 1, 3603],
    )


class Own(Virtual):
    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.mark.parametrize("place", PLACES)
def test_a_policy_keeps_its_own_clock(place: str) -> None:
    own = Own(50.0)
    policy = Retry(backoff=[3600], give_up_after=None, clock=own)

    def blocking(clock: VirtualClock) -> object:
        return policy.call(Script("fail", ok((clock.delays, clock.now()))))

    async def waiting(clock: VirtualClock) -> object:
        return await policy.call(Script("fail", ok((clock.delays, clock.now()))).aio)

    assert at(place, blocking, waiting) == ([], 0)
    assert (own.waits, own.time) == ([3600], 3650)
    assert fast_reader(own, aio=True) == own.anow


def test_each_block_has_its_own_clock() -> None:
    clocks: list[VirtualClock] = []
    for _ in range(2):
        with virtual_time() as clock:
            IMPORTED.call(Script("fail", ok()))
            clocks.append(clock)
    assert clocks[0] is not clocks[1]
    assert [(clock.delays, clock.now()) for clock in clocks] == [([3600], 3600)] * 2


def test_nested_blocks_both_advance() -> None:
    """The inner clock begins at zero; the outer one continues, and records all delays."""
    with virtual_time() as outer:
        IMPORTED.call(Script("fail", ok()))
        with virtual_time() as inner:
            IMPORTED.call(Script("fail", "fail", ok()))
            assert SYSTEM.now() == inner.now() == 10800.5
        assert SYSTEM.now() == outer.now() == 14400.5
        IMPORTED.call(Script("fail", ok()))
    assert (inner.delays, inner.now()) == ([3600, 7200.5], 10800.5)
    assert (outer.delays, outer.now()) == ([3600, 3600, 7200.5, 3600], 18000.5)


@pytest.mark.parametrize("before", [0.1, 0.3, 1 / 3, 12.34, 1234.5678])
@pytest.mark.parametrize("place", PLACES)
def test_the_inner_clock_has_no_rounding_error_of_the_outer_one(place: str, before: float) -> None:
    """No 0.30000000000000004: a test can compare the time exactly."""
    policy = Retry(backoff=[0.2, 0.05, 0.7])

    def blocking(outer: VirtualClock) -> float:
        outer.advance(before)
        with virtual_time() as inner:
            policy.call(Script("fail", "fail", "fail", ok()))
        return inner.now()

    async def waiting(outer: VirtualClock) -> float:
        outer.advance(before)
        with virtual_time() as inner:
            await policy.call(Script("fail", "fail", "fail", ok()).aio)
        return inner.now()

    assert at(place, blocking, waiting) == 0.95
