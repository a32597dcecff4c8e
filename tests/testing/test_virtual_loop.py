"""Event loops of asyncio in virtual time: everything that waits on them waits in virtual time."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import Any

import pytest

from redouble import SYSTEM
from redouble.testing import Script, VirtualClock, ok, virtual_time
from tests.support.runtime.virtual_loops import HOURLY, hour_long_call
from tests.support.virtual_time import ASYNCIO_PLACES, HOUR, in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


# ----------------------------------------------------------------------- waits of the test


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_asyncio_sleep_is_virtual(place: str) -> None:
    async def waiting(clock: VirtualClock) -> list[float]:
        moments: list[float] = []
        for seconds in (HOUR, 0, 0.25, 2 * HOUR):
            await asyncio.sleep(seconds)
            moments.append(clock.now())
        assert clock.delays == []  # these are of policies only
        return moments

    assert in_virtual_time(place, waiting) == [HOUR, HOUR, HOUR + 0.25, 3 * HOUR + 0.25]


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_asyncio_timeouts_are_virtual(place: str) -> None:
    async def waiting(clock: VirtualClock) -> list[float]:
        moments: list[float] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5 * HOUR):
                assert await hour_long_call() == "done"
                await asyncio.sleep(HOUR)
        moments.append(clock.now())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hour_long_call(), 60)
        moments.append(clock.now())
        assert await asyncio.wait_for(hour_long_call(), HOUR + 1) == "done"
        moments.append(clock.now())
        done, pending = await asyncio.wait([asyncio.ensure_future(hour_long_call())], timeout=5)
        assert (len(done), len(pending)) == (0, 1)
        for task in pending:
            task.cancel()
        moments.append(clock.now())
        return moments

    assert in_virtual_time(place, waiting) == [5400, 5460, 9060, 9065]


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_timers_of_the_loop_are_virtual(place: str) -> None:
    async def waiting(clock: VirtualClock) -> list[tuple[str, float]]:
        loop, fired = asyncio.get_running_loop(), list[tuple[str, float]]()

        def fire(name: str) -> None:
            fired.append((name, clock.now()))

        loop.call_later(2 * HOUR, fire, "later")
        loop.call_at(loop.time() + HOUR, fire, "at")
        loop.call_later(HOUR / 2, fire, "never").cancel()
        loop.call_soon(fire, "soon")
        await asyncio.sleep(3 * HOUR)
        return fired

    assert in_virtual_time(place, waiting) == [("soon", 0), ("at", HOUR), ("later", 2 * HOUR)]


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_the_loops_time_never_goes_back(place: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        began, seen = loop.time(), [loop.time()]
        for step in (0, 0.1, HOUR, 1 / 3):
            await asyncio.sleep(step)
            seen.append(loop.time())
            clock.advance(step)
            seen.append(loop.time())
            await hour_long_call()
            seen.append(loop.time())
        assert seen == sorted(seen)
        assert seen[-1] - began == pytest.approx(clock.now(), abs=1e-6)

    in_virtual_time(place, waiting)


def test_a_running_loop_continues_from_its_own_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        with virtual_time():
            first = loop.time()
            assert before <= first < before + 60  # and not zero
            await asyncio.sleep(HOUR)
            assert loop.time() == pytest.approx(first + HOUR)

    asyncio.run(main())


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_blocking_code_on_the_loop_advances_its_time(place: str) -> None:
    """It would have blocked the loop for as long: timers are due at once afterwards."""

    async def waiting(clock: VirtualClock) -> tuple[list[float], float]:
        fired: list[float] = []
        asyncio.get_running_loop().call_later(60, lambda: fired.append(clock.now()))
        assert HOURLY.call(Script("fail", ok("done"))) == "done"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return fired, clock.now()

    assert in_virtual_time(place, waiting) == ([HOUR], HOUR)


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_debug_mode_logs_no_slow_callbacks(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """In debug mode asyncio measures callbacks by the time of the loop."""

    async def main() -> None:
        if place.endswith("inside"):
            with virtual_time():
                await asyncio.gather(
                    hour_long_call(), asyncio.sleep(HOUR), asyncio.wait_for(hour_long_call(), 2 * HOUR)
                )
        else:
            await asyncio.gather(
                hour_long_call(), asyncio.sleep(HOUR), asyncio.wait_for(hour_long_call(), 2 * HOUR)
            )

    with caplog.at_level(logging.WARNING), virtual_time() as clock:
        asyncio.run(main(), debug=True)
    assert (caplog.messages, clock.now()) == ([], HOUR)


# -------------------------------------------------------------------------- several runs


def test_several_runs_in_one_block() -> None:
    with virtual_time() as clock:
        assert [asyncio.run(hour_long_call()) for _ in range(3)] == ["done"] * 3
        with asyncio.Runner() as runner:
            assert [runner.run(hour_long_call()) for _ in range(2)] == ["done"] * 2
        assert HOURLY.call(Script("fail", ok("done"))) == "done"
    assert (clock.delays, clock.now()) == ([HOUR] * 6, 6 * HOUR)


def test_a_timer_continues_in_the_next_run() -> None:
    """Between runs no time passes for it."""
    fired: list[float] = []

    async def main(clock: VirtualClock) -> None:
        asyncio.get_running_loop().call_later(1.5 * HOUR, lambda: fired.append(clock.now()))
        await asyncio.sleep(HOUR)

    with virtual_time() as clock, asyncio.Runner() as runner:
        runner.run(main(clock))
        assert fired == []
        runner.run(asyncio.sleep(HOUR))
        assert fired == [pytest.approx(1.5 * HOUR, abs=1)]


def test_a_timer_from_before_the_block_continues_in_it() -> None:
    fired: list[float] = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(1.5 * HOUR, lambda: fired.append(SYSTEM.now()))

    with asyncio.Runner() as runner:
        runner.run(main())
        with virtual_time():
            runner.run(asyncio.sleep(HOUR))
            assert fired == []
            runner.run(asyncio.sleep(HOUR))
    assert fired == [pytest.approx(1.5 * HOUR, abs=60)]


def test_a_loop_is_virtual_for_tasks_in_other_contexts() -> None:
    """Some frameworks run tests in a context of their own; then the loop counts."""
    with virtual_time() as clock, asyncio.Runner() as runner:
        assert runner.run(hour_long_call(), context=Context()) == "done"
    assert (clock.delays, clock.now()) == ([HOUR], HOUR)


def test_other_tasks_of_the_loop_are_in_virtual_time_too() -> None:
    async def main() -> tuple[Any, list[float], float]:
        begin = asyncio.Event()

        async def other() -> Any:
            await begin.wait()
            return await hour_long_call()

        task = asyncio.ensure_future(other())  # with a context from before the block
        await asyncio.sleep(0)
        with virtual_time() as clock:
            begin.set()
            return await task, clock.delays, clock.now()

    assert asyncio.run(main()) == ("done", [HOUR], HOUR)
