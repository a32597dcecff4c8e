"""Memory retained for the limits of a loop: little while it runs, and none after its end."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import pytest

from redouble import Retry, errors
from redouble._runtime.asyncio_timer import MAX_STALE, TimerEntry
from tests.support.drivers.limited_calls import LONG
from tests.support.fakes import run_async
from tests.support.runtime.timers import LOOPS, TINY, check, limited, live, timer
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


@pytest.mark.stress
@LOOPS
def test_a_hundred_thousand_calls_retain_nothing(colour: str) -> None:
    async def main() -> None:
        for _ in range(100_000):
            with TimerEntry(30.0):
                pass
        check(timer())
        assert len(timer().heap) <= MAX_STALE + 1

    run_async(colour, main)


@pytest.mark.stress
@LOOPS
def test_ten_thousand_concurrent_limits_are_all_removed(colour: str) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def one() -> None:
            with TimerEntry(30.0):
                await go.wait()

        tasks = [asyncio.ensure_future(one()) for _ in range(10_000)]
        await asyncio.sleep(0)
        check(timer())
        assert len(live(timer())) == 10_000
        go.set()
        await asyncio.gather(*tasks)
        with TimerEntry(30.0):
            check(timer())
            assert live(timer()) == [timer().heap[0][0]]

    run_async(colour, main)


@LOOPS
def test_a_loop_that_ended_is_freed(colour: str) -> None:
    """Although its timer was still set."""

    async def main() -> ref[object]:
        assert not await limited(30, takes=0)
        return ref(asyncio.get_running_loop())

    loop = run_async(colour, main)
    gc.collect()
    assert loop() is None


@LOOPS
def test_a_loop_that_ended_with_calls_in_flight_is_freed(colour: str) -> None:
    tasks: list[ref[asyncio.Task[Any]]] = []
    ended: list[str] = []

    async def one() -> None:
        try:
            await Retry(timeout=30).call(asyncio.sleep, LONG)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> ref[object]:
        tasks.extend(ref(asyncio.ensure_future(one())) for _ in range(10))
        await asyncio.sleep(0)
        return ref(asyncio.get_running_loop())

    loop = run_async(colour, main)
    gc.collect()
    assert ended == ["cancelled"] * 10
    assert [task() for task in tasks] == [None] * 10
    assert loop() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_closed_with_calls_in_flight_is_freed() -> None:
    """The tasks are not cancelled but dropped."""

    def ignored(*_: object) -> None:
        pass

    def dropped() -> tuple[ref[object], ref[object]]:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(ignored)  # asyncio would report that a pending task was destroyed
        task = loop.create_task(limited(30))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        return ref(loop), ref(task)

    loop, task = dropped()
    gc.collect()
    assert (loop(), task()) == (None, None)


@LOOPS
def test_each_loop_has_its_own_timer(colour: str) -> None:
    """Many loops run one after the other, and concurrently in many threads."""
    loops: list[ref[object]] = []

    async def one(number: int) -> None:
        with pytest.raises(errors.DeadlineExceeded):
            await Retry(timeout=TINY * (1 + number % 2)).call(asyncio.sleep, LONG)
        await Retry(timeout=LONG).call(asyncio.sleep, 0)

    async def main() -> None:
        await asyncio.gather(*map(one, range(20)))
        loops.append(ref(asyncio.get_running_loop()))

    def thread(_: int) -> None:
        for _ in range(3):
            run_async(colour, main)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(thread, range(8)))
    gc.collect()
    assert [loop() for loop in loops] == [None] * 24
