"""`AdaptiveRate` in every colour: no limit until the first throttling, and how the rate adapts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from redouble import AdaptiveRate
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Boom, Virtual, nothing
from tests.support.layers.breaker_scripts import SHAPES, WAITING_SHAPES, Service
from tests.support.layers.limits.adaptive_rates import Throttled, throttled
from tests.support.virtual_time import in_virtual_colour


@pytest.mark.parametrize("shape", WAITING_SHAPES)
def test_calls_are_not_limited_until_the_first_throttling(colour: str, shape: str) -> None:
    """Then calls wait for a permit; other errors do not change that."""
    make, amake = SHAPES[shape]

    def blocking(clock: VirtualClock) -> None:
        gate, service = adaptive(), Service()
        for service.down in [None] * 20 + [Boom()] * 5:
            attempt(lambda: make(gate, service))
        assert (clock.now(), gate.snapshot()["rate"]) == (0, None)
        service.down = Throttled()
        attempt(lambda: make(gate, service))
        assert (clock.now(), gate.snapshot()["rate"]) == (0, 4)
        for service.down in [None, Boom(), None]:
            attempt(lambda: make(gate, service))
        assert clock.now() == pytest.approx(0.75)
        assert service.calls == 29

    async def waiting(clock: VirtualClock) -> None:
        gate, service = adaptive(), Service()
        for service.down in [None] * 20 + [Boom()] * 5:
            await aattempt(lambda: amake(gate, service))
        assert (clock.now(), gate.snapshot()["rate"]) == (0, None)
        service.down = Throttled()
        await aattempt(lambda: amake(gate, service))
        assert (clock.now(), gate.snapshot()["rate"]) == (0, 4)
        for service.down in [None, Boom(), None]:
            await aattempt(lambda: amake(gate, service))
        assert clock.now() == pytest.approx(0.75)
        assert service.calls == 29

    in_virtual_colour(colour, blocking, waiting)


def adaptive() -> Any:
    return AdaptiveRate(Throttled, least=4)


def attempt(call: Callable[[], object]) -> None:
    with suppress(Boom, Throttled):
        assert call() == 6


async def aattempt(call: Callable[[], Any]) -> None:
    with suppress(Boom, Throttled):
        assert await call() == 6


def test_the_rate_of_successful_calls_is_measured(colour: str) -> None:
    """Although the clock is rarely read. Throttling cuts the measured rate."""

    def blocking(clock: VirtualClock) -> AdaptiveRate:
        gate = AdaptiveRate(Throttled)
        for _ in range(10):
            for _ in range(500):
                gate.call(int)
            clock.advance(0.5)
        return gate

    async def waiting(clock: VirtualClock) -> AdaptiveRate:
        gate = AdaptiveRate(Throttled)
        work = gate(nothing)
        for _ in range(10):
            for _ in range(500):
                await work()
            clock.advance(0.5)
        return gate

    def check(gate: AdaptiveRate) -> None:
        measured = gate.snapshot()["measured"] or 0
        assert measured == pytest.approx(1000, rel=0.1)
        throttled(gate)
        assert gate.snapshot()["rate"] == pytest.approx(0.7 * measured, rel=0.1)

    async def acheck(clock: VirtualClock) -> None:
        check(await waiting(clock))

    in_virtual_colour(colour, lambda clock: check(blocking(clock)), acheck)


def test_a_busy_gate_rarely_reads_the_clock_and_locks_twice_a_second() -> None:
    advances, reads = list[float](), list[float]()

    class Watched(AdaptiveRate):
        def _advance_window(self) -> None:
            advances.append(clock.time)
            super()._advance_window()

    def read() -> float:
        reads.append(clock.time)
        return clock.time

    with virtual_time() as virtual_clock:
        clock = Virtual()
        virtual_clock.now = read  # type: ignore[method-assign]
        work = Watched(Throttled)(partial(int, 7))
        for clock.time in (0, 0.5, 1, 1.5, 2, 2.5):
            for _ in range(800):
                work()
    assert [advance_time for advance_time in advances if advance_time] == [0.5, 1, 1.5, 2, 2.5]
    assert 14 <= reads.count(2.0) <= 18


def test_successful_calls_raise_the_rate_again(colour: str) -> None:
    def blocking(clock: VirtualClock) -> list[float]:
        gate, rates = busy(clock), list[float]()
        for _ in range(3):
            clock.advance(2)
            gate.call(int)
            rates.append(gate.snapshot()["rate"] or 0)
        return rates

    async def waiting(clock: VirtualClock) -> list[float]:
        gate, rates = busy(clock), list[float]()
        for _ in range(3):
            clock.advance(2)
            await gate.call(nothing)
            rates.append(gate.snapshot()["rate"] or 0)
        return rates

    def busy(clock: VirtualClock) -> AdaptiveRate:
        gate = AdaptiveRate(Throttled)
        gate._bucket.meter.rate = 100.0
        throttled(gate)
        gate._bucket.meter.rate = 1e6
        assert (gate.snapshot()["rate"] or 0) < 100
        return gate

    sooner, later, last = in_virtual_colour(colour, blocking, waiting)
    assert 70 < sooner < later < last
