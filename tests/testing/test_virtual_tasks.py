"""Many tasks in one virtual time: each wakes on time, and concurrent sleeps do not add up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import trio

from redouble import SYSTEM, Retry
from redouble.testing import Script, VirtualClock, ok
from tests.support.runtime.tasks import together
from tests.support.virtual_time import HOUR, WHERE, in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


@pytest.mark.parametrize("place", WHERE)
def test_every_task_wakes_on_time(place: str) -> None:
    """Also a task that sleeps again while others still sleep."""
    seen: list[tuple[float, str]] = []

    async def waiting(clock: VirtualClock) -> None:
        def sleeper(name: str, *delays: float) -> Callable[[], Awaitable[object]]:
            policy = Retry(on=OSError, backoff=delays, attempts=9, give_up_after=None)
            script = Script(*[OSError] * len(delays), ok())

            async def attempt() -> object:
                seen.append((clock.now(), name))
                return await script.aio()

            return lambda: policy.call(attempt)

        await together(place, sleeper("a", 10), sleeper("b", 1, 1, 5), sleeper("c", 3, 8))
        assert sorted(clock.delays) == [1, 1, 3, 5, 8, 10]

    in_virtual_time(place, waiting)
    assert seen[3:] == [(1, "b"), (2, "b"), (3, "c"), (7, "b"), (10, "a"), (11, "c")]


@pytest.mark.parametrize("place", WHERE)
def test_concurrent_sleeps_take_as_long_as_the_longest(place: str) -> None:
    woken: list[int] = []

    async def waiting(clock: VirtualClock) -> float:
        def sleeper(hours: int) -> Callable[[], Awaitable[object]]:
            async def sleep() -> None:
                await Retry(backoff=[hours * HOUR], give_up_after=None).call(Script("fail", ok()).aio)
                woken.append(hours)

            return sleep

        before = clock.now()
        await together(place, *map(sleeper, [5, 100, 3, *range(50, 0, -1), 77]))
        return clock.now() - before

    assert in_virtual_time(place, waiting) == 100 * HOUR
    assert woken == sorted([5, 100, 3, *range(50, 0, -1), 77])


@pytest.mark.parametrize("place", WHERE)
def test_a_cancelled_sleeper_delays_no_other(place: str) -> None:
    async def waiting(clock: VirtualClock) -> float:
        async def sleep(seconds: float) -> None:
            await SYSTEM.asleep(seconds)

        before = clock.now()
        if place.startswith("trio"):
            with trio.CancelScope() as scope:
                scope.cancel()
                await sleep(HOUR)
        else:
            task = asyncio.ensure_future(sleep(HOUR))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await sleep(1)
        await sleep(2 * HOUR)
        return clock.now() - before

    assert in_virtual_time(place, waiting) == 2 * HOUR + 1


@pytest.mark.parametrize("place", WHERE)
def test_a_sleeper_cancelled_by_another_delays_no_other(place: str) -> None:
    async def waiting(clock: VirtualClock) -> float:
        clock.now()
        if place.startswith("trio"):
            with trio.move_on_after(HOUR):
                await SYSTEM.asleep(2 * HOUR)
        else:
            task = asyncio.ensure_future(SYSTEM.asleep(2 * HOUR))
            await SYSTEM.asleep(HOUR)
            task.cancel()
            await asyncio.wait([task])
        await SYSTEM.asleep(1)
        return clock.now()

    assert in_virtual_time(place, waiting) == HOUR + 1


@pytest.mark.parametrize("place", WHERE)
def test_no_time_passes_before_all_tasks_sleep(place: str) -> None:
    """A task that runs a few iterations before it sleeps starts at the same time."""
    woken: list[str] = []

    async def waiting(clock: VirtualClock) -> None:
        async def early() -> None:
            await SYSTEM.asleep(10)
            woken.append("early")

        async def busy() -> None:
            for _ in range(5):
                await checkpoint()
            await SYSTEM.asleep(1)
            woken.append("busy")

        checkpoint = trio.lowlevel.checkpoint if place.startswith("trio") else lambda: asyncio.sleep(0)
        await together(place, early, busy)

    in_virtual_time(place, waiting)
    assert woken == ["busy", "early"]


@pytest.mark.parametrize("place", WHERE)
def test_a_sleep_of_zero_lets_other_tasks_run(place: str) -> None:
    order: list[str] = []

    async def waiting(clock: VirtualClock) -> None:
        async def one() -> None:
            for _ in range(2):
                order.append("one")
                await SYSTEM.asleep(0)

        async def other() -> None:
            for _ in range(2):
                order.append("other")
                await SYSTEM.asleep(0)

        await together(place, one, other)
        assert clock.now() == 0

    in_virtual_time(place, waiting)
    assert sorted(order[:2]) == sorted(order[2:]) == ["one", "other"]


@pytest.mark.parametrize("place", WHERE)
def test_advancing_past_the_wake_time_wakes_the_sleeper(place: str) -> None:
    """The time never goes back to the moment of the sleeper."""

    async def waiting(clock: VirtualClock) -> list[float]:
        moments: list[float] = []

        async def sleeper() -> None:
            await SYSTEM.asleep(60)
            moments.append(clock.now())

        async def mover() -> None:
            clock.advance(HOUR)
            moments.append(clock.now())

        clock.now()
        await together(place, sleeper, mover)
        return moments

    moments = in_virtual_time(place, waiting)
    assert moments == sorted(moments)
    assert moments[-1] in (HOUR, HOUR + 60)  # if the sleeper began before, or after
