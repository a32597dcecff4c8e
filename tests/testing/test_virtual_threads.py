"""Virtual time and threads: threads of executors, other threads, and their loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redouble import SYSTEM, Retry
from redouble._runtime.clock import LOOPS, virtual
from redouble.testing import Script, VirtualClock, ok, virtual_time
from tests.support.runtime.virtual_loops import hour_long_call, patched_attributes, time_is_real
from tests.support.virtual_time import ASYNCIO_PLACES, HOUR, in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

POLICY = Retry(backoff=[HOUR, HOUR], give_up_after=None)


def in_thread(work: Callable[[], Any]) -> Any:
    """Run in a new thread, without this context."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


# ------------------------------------------------------------------------- other threads


def test_other_threads_stay_in_real_time() -> None:
    with virtual_time() as clock:
        clock.advance(HOUR)
        assert in_thread(time_is_real)
        in_thread(lambda: SYSTEM.sleep(0))
        assert (clock.delays, clock.now()) == ([], HOUR)


def test_other_loops_in_other_threads_stay_in_real_time() -> None:
    async def main() -> tuple[bool, list[str], Any]:
        value = await Retry(backoff=[0]).call(Script("fail", ok("done")).aio)
        return time_is_real(), patched_attributes(asyncio.get_running_loop()), value

    with virtual_time() as clock:
        assert in_thread(lambda: asyncio.run(main())) == (True, [], "done")
        assert clock.delays == []


def test_a_loop_running_in_another_thread_is_not_affected() -> None:
    ready, go = threading.Event(), threading.Event()
    seen: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ready.set()
        go.wait()
        seen.extend((loop in LOOPS, patched_attributes(loop), virtual(), time_is_real()))

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait()
    with virtual_time():
        go.set()
        thread.join()
    assert seen == [False, [], None, True]


def test_each_thread_has_its_own_block() -> None:
    """Each has its own time, also on its own loop."""
    start = threading.Barrier(4)

    def work(hours: int) -> tuple[list[float], float]:
        policy = Retry(backoff=[hours * HOUR] * 20, attempts=21, give_up_after=None)

        async def call() -> None:
            await policy.call(Script(*[ConnectionError] * 20, ok()).aio)

        start.wait()
        with virtual_time() as clock:
            policy.call(Script(*[ConnectionError] * 20, ok()))
            asyncio.run(call())
            return clock.delays, clock.now()

    with ThreadPoolExecutor(4) as pool:
        for hours, seen in enumerate(pool.map(work, range(1, 5)), 1):
            assert seen == ([hours * HOUR] * 40, 40 * hours * HOUR)


# ------------------------------------------------------------------- threads of executors


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
@pytest.mark.parametrize("how", ["to_thread", "run_in_executor", "an executor of your own"])
def test_the_clock_stands_while_a_thread_of_an_executor_runs(place: str, how: str) -> None:
    """Its duration is unknown, so that no timeout may pass meanwhile. The loop keeps running."""

    async def waiting(clock: VirtualClock) -> tuple[str, bool]:
        loop, begun, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def work() -> str:
            loop.call_soon_threadsafe(begun.set)
            release.wait()
            return "worked"

        with ThreadPoolExecutor(1) as pool:
            async with asyncio.timeout(HOUR):
                match how:
                    case "to_thread":
                        future: asyncio.Future[str] = asyncio.ensure_future(asyncio.to_thread(work))
                    case "run_in_executor":
                        future = loop.run_in_executor(None, work)
                    case _:
                        future = loop.run_in_executor(pool, work)
                await begun.wait()
                release.set()
                result = await future
        stood = clock.now() < HOUR
        await asyncio.sleep(HOUR)  # no worker is running any more
        return result, stood

    assert in_virtual_time(place, waiting) == ("worked", True)


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_the_clock_continues_if_a_thread_fails_or_is_cancelled(place: str) -> None:
    async def waiting(clock: VirtualClock) -> float:
        loop, release = asyncio.get_running_loop(), threading.Event()
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 / 0)
        with ThreadPoolExecutor(1) as pool:
            future = loop.run_in_executor(pool, release.wait)
            future.cancel()
            await asyncio.wait([future])
            before = clock.now()
            await asyncio.sleep(HOUR)
            release.set()
        with pytest.raises(RuntimeError, match="after shutdown"):
            loop.run_in_executor(pool, print)
        await asyncio.sleep(HOUR)
        return clock.now() - before

    assert in_virtual_time(place, waiting) == pytest.approx(2 * HOUR)


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_delays_of_a_policy_in_to_thread_are_virtual(place: str) -> None:
    """`asyncio.to_thread` copies the context."""

    async def waiting(clock: VirtualClock) -> tuple[str, list[float], float]:
        result = await asyncio.to_thread(POLICY.call, Script("fail", "fail", ok("done")))
        return result, clock.delays, clock.now()

    result, delays, now = in_virtual_time(place, waiting)
    assert (result, delays) == ("done", [HOUR, HOUR])
    assert now == pytest.approx(2 * HOUR, abs=60)  # plus the real time of the thread


def test_a_loop_in_a_thread_of_a_loop_is_virtual() -> None:
    async def main() -> Any:
        return await asyncio.to_thread(lambda: asyncio.run(hour_long_call()))

    with virtual_time() as clock:
        assert asyncio.run(main()) == "done"
    assert clock.delays == [HOUR]


def test_shutting_down_the_executor_fires_no_timer_early() -> None:
    """At its end a loop waits for its threads, while timers may be set."""
    fired: list[str] = []

    async def main() -> None:
        loop, release = asyncio.get_running_loop(), threading.Event()
        loop.run_in_executor(None, release.wait).cancel()
        loop.call_later(HOUR, fired.append, "early")
        ending = asyncio.ensure_future(loop.shutdown_default_executor())
        for _ in range(3):
            await asyncio.sleep(0)
        release.set()
        await ending

    with virtual_time() as clock:
        asyncio.run(main())
    assert fired == []
    assert clock.now() < HOUR
