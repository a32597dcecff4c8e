"""asyncio's own loops in virtual time: whatever waits on them waits in it, and nothing else changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

import pytest

from redouble import SYSTEM, Retry
from redouble.testing import Script, VirtualClock, ok, virtual_time
from tests.support.virtual_time import at, unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

HOUR = 3600.0
BOTH = ["asyncio around", "asyncio inside"]
POLICY = Retry(backoff=[HOUR, HOUR], give_up_after=None)


def in_time(place: str, waiting: Callable[[VirtualClock], Awaitable[Any]]) -> Any:
    return at(place, lambda _: None, waiting)


async def called() -> Any:
    """Make a call that takes an hour."""
    return await POLICY.call(Script("fail", ok("done")).aio)


# ------------------------------------------------------------------- waits of one's own


@pytest.mark.parametrize("place", BOTH)
def test_sleeping_of_your_own_is_virtual(place: str) -> None:
    async def waiting(clock: VirtualClock) -> list[float]:
        moments: list[float] = []
        for seconds in (HOUR, 0, 0.25, 2 * HOUR):
            await asyncio.sleep(seconds)
            moments.append(clock.now())
        assert clock.delays == []  # those are of policies only
        return moments

    assert in_time(place, waiting) == [HOUR, HOUR, HOUR + 0.25, 3 * HOUR + 0.25]


@pytest.mark.parametrize("place", BOTH)
def test_timeouts_of_your_own_are_virtual(place: str) -> None:
    async def waiting(clock: VirtualClock) -> list[float]:
        moments: list[float] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5 * HOUR):
                assert await called() == "done"
                await asyncio.sleep(HOUR)
        moments.append(clock.now())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(called(), 60)
        moments.append(clock.now())
        assert await asyncio.wait_for(called(), HOUR + 1) == "done"
        moments.append(clock.now())
        done, pending = await asyncio.wait([asyncio.ensure_future(called())], timeout=5)
        assert (len(done), len(pending)) == (0, 1)
        for task in pending:
            task.cancel()
        moments.append(clock.now())
        return moments

    assert in_time(place, waiting) == [5400, 5460, 9060, 9065]


@pytest.mark.parametrize("place", BOTH)
def test_timers_of_your_own_are_virtual(place: str) -> None:
    async def waiting(clock: VirtualClock) -> list[tuple[str, float]]:
        loop, rung = asyncio.get_running_loop(), list[tuple[str, float]]()

        def ring(name: str) -> None:
            rung.append((name, clock.now()))

        loop.call_later(2 * HOUR, ring, "later")
        loop.call_at(loop.time() + HOUR, ring, "at")
        loop.call_later(HOUR / 2, ring, "never").cancel()
        loop.call_soon(ring, "soon")
        await asyncio.sleep(3 * HOUR)
        return rung

    assert in_time(place, waiting) == [("soon", 0), ("at", HOUR), ("later", 2 * HOUR)]


@pytest.mark.parametrize("place", BOTH)
def test_the_loops_time_never_goes_back(place: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        began, seen = loop.time(), [loop.time()]
        for step in (0, 0.1, HOUR, 1 / 3):
            await asyncio.sleep(step)
            seen.append(loop.time())
            clock.advance(step)
            seen.append(loop.time())
            await called()
            seen.append(loop.time())
        assert seen == sorted(seen)
        assert seen[-1] - began == pytest.approx(clock.now(), abs=1e-6)

    in_time(place, waiting)


def test_a_running_loop_goes_on_from_where_it_is() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        with virtual_time():
            first = loop.time()
            assert before <= first < before + 60  # and not zero
            await asyncio.sleep(HOUR)
            assert loop.time() == pytest.approx(first + HOUR)

    asyncio.run(main())


@pytest.mark.parametrize("place", BOTH)
def test_blocking_code_on_the_loop_moves_its_time(place: str) -> None:
    """It would have stalled the loop for so long: timers are due at once after it."""

    async def waiting(clock: VirtualClock) -> tuple[list[float], float]:
        rung: list[float] = []
        asyncio.get_running_loop().call_later(60, lambda: rung.append(clock.now()))
        assert POLICY.call(Script("fail", ok("done"))) == "done"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return rung, clock.now()

    assert in_time(place, waiting) == ([HOUR], HOUR)


@pytest.mark.parametrize("place", BOTH)
def test_debug_mode_has_nothing_to_say(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """In it asyncio measures its callbacks, by the loop's time."""

    async def main() -> None:
        if place.endswith("inside"):
            with virtual_time():
                await asyncio.gather(called(), asyncio.sleep(HOUR), asyncio.wait_for(called(), 2 * HOUR))
        else:
            await asyncio.gather(called(), asyncio.sleep(HOUR), asyncio.wait_for(called(), 2 * HOUR))

    with caplog.at_level(logging.WARNING), virtual_time() as clock:
        asyncio.run(main(), debug=True)
    assert (caplog.messages, clock.now()) == ([], HOUR)


# -------------------------------------------------------------------------- several runs


def test_several_runs_in_one_block() -> None:
    with virtual_time() as clock:
        assert [asyncio.run(called()) for _ in range(3)] == ["done"] * 3
        with asyncio.Runner() as runner:
            assert [runner.run(called()) for _ in range(2)] == ["done"] * 2
        assert POLICY.call(Script("fail", ok("done"))) == "done"
    assert (clock.delays, clock.now()) == ([HOUR] * 6, 6 * HOUR)


def test_a_timer_goes_on_in_the_next_run() -> None:
    """Between runs no time passes for it."""
    rung: list[float] = []

    async def main(clock: VirtualClock) -> None:
        asyncio.get_running_loop().call_later(1.5 * HOUR, lambda: rung.append(clock.now()))
        await asyncio.sleep(HOUR)

    with virtual_time() as clock, asyncio.Runner() as runner:
        runner.run(main(clock))
        assert rung == []
        runner.run(asyncio.sleep(HOUR))
        assert rung == [pytest.approx(1.5 * HOUR, abs=1)]


def test_a_timer_from_before_the_block_goes_on_in_it() -> None:
    rung: list[float] = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(1.5 * HOUR, lambda: rung.append(SYSTEM.now()))

    with asyncio.Runner() as runner:
        runner.run(main())
        with virtual_time():
            runner.run(asyncio.sleep(HOUR))
            assert rung == []
            runner.run(asyncio.sleep(HOUR))
    assert rung == [pytest.approx(1.5 * HOUR, abs=60)]


def test_a_loop_whose_tasks_know_nothing_of_the_block() -> None:
    """Some frameworks run tests in a context of their own; it is the loop that counts then."""
    with virtual_time() as clock, asyncio.Runner() as runner:
        assert runner.run(called(), context=Context()) == "done"
    assert (clock.delays, clock.now()) == ([HOUR], HOUR)


def test_other_tasks_of_the_loop_are_in_virtual_time_too() -> None:
    async def main() -> tuple[Any, list[float], float]:
        begin = asyncio.Event()

        async def other() -> Any:
            await begin.wait()
            return await called()

        task = asyncio.ensure_future(other())  # with a context from before the block
        await asyncio.sleep(0)
        with virtual_time() as clock:
            begin.set()
            return await task, clock.delays, clock.now()

    assert asyncio.run(main()) == ("done", [HOUR], HOUR)
