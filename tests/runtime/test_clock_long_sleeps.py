"""Very long delays: every wait begins, and none overflows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Retry
from redouble._runtime import clock as _time
from redouble._runtime.clock import LONGEST_SLEEP
from tests.support.fakes import Boom, in_colour


class FakeTime:
    """Replaces the module `time`: records sleeps, and raises where the real one would."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        if not 0 <= seconds < 9.2e9:
            raise OverflowError("timestamp too large to convert to C _PyTime_t")
        self.sleeps.append(seconds)

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def fake_time() -> Iterator[FakeTime]:
    """Replace every real sleep."""
    module: Any = _time
    real, module.time = module.time, FakeTime()
    try:
        yield module.time
    finally:
        module.time = real


@pytest.mark.parametrize("delay", [0.5, LONGEST_SLEEP, LONGEST_SLEEP * 2, 1e300, sys.float_info.max])
def test_a_delay_longer_than_the_system_allows_is_shortened(fake_time: FakeTime, delay: float) -> None:
    fails = [Boom()]

    @Retry(on=Boom, backoff=[delay], give_up_after=None)
    def work() -> str:
        if fails:
            raise fails.pop()
        return "done"

    assert work() == "done"
    assert fake_time.sleeps == [min(delay, LONGEST_SLEEP)]


@pytest.mark.parametrize("delay", [1e12, 1e300, sys.float_info.max])
@pytest.mark.parametrize("colour", ["asyncio", "uvloop", "trio"])
def test_an_async_sleep_of_any_length_begins(colour: str, delay: float) -> None:
    """A timeout around it ends it."""

    async def main() -> str:
        if colour == "trio":
            with trio.move_on_after(0):
                await SYSTEM.asleep(delay)
            return "cancelled"
        task = asyncio.ensure_future(SYSTEM.asleep(delay))
        await asyncio.wait([task], timeout=0)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        return "cancelled"

    assert in_colour(colour, lambda: None, main) == "cancelled"
