"""Long waits in virtual time: small steps are lost to rounding, and no loop may spin because of that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM, Backoff, Retry
from redouble.testing import Script, ok, virtual_time
from tests.support.fakes import ASYNC
from tests.support.runtime.virtual_loops import bounded
from tests.support.virtual_time import HOUR, no_real_waits, run

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


LONG = [1e6, 2e7, 1e9, 1e15, 1e300]


@pytest.mark.parametrize("seconds", LONG)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("colour", ASYNC)
def test_a_delay_may_be_of_any_length(colour: str, inside: bool, seconds: float) -> None:
    policy = Retry(backoff=[seconds, 1], give_up_after=None)

    async def call() -> object:
        return await policy.call(Script("fail", "fail", ok("done")).aio)

    async def main() -> tuple[object, list[float]]:
        with virtual_time() as clock:
            return await call(), clock.delays

    if inside:
        result, delays = bounded(main) if colour == "asyncio" else run(colour, main)
    else:
        with virtual_time() as clock:
            result, delays = (bounded(call) if colour == "asyncio" else run(colour, call)), clock.delays
    assert (result, delays) == ("done", [seconds, 1])


@pytest.mark.parametrize("ahead", [1e6, 5e6, 2e7, 1e9])
def test_small_delays_on_a_machine_with_a_long_uptime(ahead: float) -> None:
    """The time of a running loop is large then, and small steps are lost to rounding."""

    async def main() -> tuple[float, list[float]]:
        with virtual_time() as clock:
            for delay in (0.1, 1 / 3, HOUR, 0.7, 123.456789):
                await SYSTEM.asleep(delay)
            return clock.now(), clock.delays

    moment, delays = bounded(main, ahead=ahead)
    assert moment == pytest.approx(sum(delays), abs=1e-5)


def test_an_exponential_backoff_without_a_maximum() -> None:
    policy = Retry(backoff=Backoff.exponential(1, 10), on=OSError, attempts=100, give_up_after=None)

    async def main() -> object:
        return await policy.call(Script(*[OSError] * 99, ok("done")).aio)

    with virtual_time() as clock:
        assert bounded(main) == "done"
    assert clock.delays[:3] == [1, 10, 100]
    assert len(clock.delays) == 99


@given(
    base=st.floats(1, 1e7),
    delays=st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=20),
)
def test_no_timer_of_a_loop_fires_early(base: float, delays: list[float]) -> None:
    """One that does starts itself again in AnyIO, and if the clock stands still, it does so for ever."""

    async def main() -> None:
        with virtual_time():
            for delay in delays:
                due = loop.time() + delay
                fired = asyncio.Event()
                loop.call_at(due, fired.set)
                await fired.wait()
                assert due <= loop.time() < due + 1e-6

    loop: Any = asyncio.new_event_loop()
    loop.time = lambda: base
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
