"""Blocks of virtual time on one loop: nested, and concurrent."""

from __future__ import annotations

import asyncio
from contextvars import Context

import pytest

from redouble import SYSTEM
from redouble.testing import VirtualClock, virtual_time
from tests.support.runtime.virtual_loops import bounded, hour_long_call, time_is_real
from tests.support.virtual_time import ASYNCIO_PLACES, HOUR, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


def test_nested_blocks_on_one_loop_both_advance() -> None:
    """A loop has one time: the inner clock begins at zero, and the outer one continues."""

    async def main(outer: VirtualClock) -> None:
        await asyncio.sleep(HOUR)
        assert SYSTEM.now() == outer.now() == HOUR
        with virtual_time() as inner:
            assert await hour_long_call() == "done"
            assert SYSTEM.now() == inner.now() == HOUR
            assert outer.now() == 2 * HOUR
        await hour_long_call()
        assert SYSTEM.now() == outer.now() == 3 * HOUR
        assert (inner.delays, outer.delays) == ([HOUR], [HOUR, HOUR])

    with virtual_time() as outer:
        bounded(lambda: main(outer))


def test_after_the_inner_block_the_loop_uses_the_outer_clock() -> None:
    """Also for tasks whose context has neither clock."""

    async def main() -> None:
        with virtual_time() as inner:
            assert await asyncio.create_task(hour_long_call(), context=Context()) == "done"
        assert await asyncio.create_task(hour_long_call(), context=Context()) == "done"
        assert inner.delays == [HOUR]

    with virtual_time() as outer:
        bounded(main)
    assert outer.delays == [HOUR, HOUR]


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_nested_blocks_with_a_pending_timer(place: str) -> None:
    async def main() -> float:
        async with asyncio.timeout(100 * HOUR):
            with virtual_time() as inner:
                await asyncio.sleep(HOUR)
            await asyncio.sleep(HOUR)
            assert inner.now() == HOUR
        return SYSTEM.now()

    async def inside() -> float:
        with virtual_time():
            return await main()

    if place.endswith("inside"):
        assert bounded(inside) >= HOUR
    else:
        with virtual_time():
            assert bounded(main) >= HOUR


def test_blocks_of_several_tasks_may_overlap() -> None:
    """None breaks the others, whichever ends first."""

    async def one(seconds: float) -> None:
        with virtual_time():
            await asyncio.sleep(seconds)

    async def main() -> bool:
        await asyncio.gather(one(HOUR), one(2 * HOUR), one(HOUR / 2))
        return time_is_real()

    assert bounded(main)
