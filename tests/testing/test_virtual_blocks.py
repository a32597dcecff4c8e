"""Blocks of virtual time on one loop: inside each other, and side by side."""

from __future__ import annotations

import asyncio
from contextvars import Context

import pytest

from redouble import SYSTEM
from redouble.testing import VirtualClock, virtual_time
from tests.support.virtual_time import unwaiting
from tests.testing.test_virtual_endings import real
from tests.testing.test_virtual_long import bounded
from tests.testing.test_virtual_loop import BOTH, HOUR, called

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)


def test_a_block_inside_a_loop_inside_a_block() -> None:
    """There is one time on a loop: the inner clock begins at zero, and the outer one goes on."""

    async def main(outer: VirtualClock) -> None:
        await asyncio.sleep(HOUR)
        assert SYSTEM.now() == outer.now() == HOUR
        with virtual_time() as inner:
            assert await called() == "done"
            assert SYSTEM.now() == inner.now() == HOUR
            assert outer.now() == 2 * HOUR
        await called()
        assert SYSTEM.now() == outer.now() == 3 * HOUR
        assert (inner.delays, outer.delays) == ([HOUR], [HOUR, HOUR])

    with virtual_time() as outer:
        bounded(lambda: main(outer))


def test_after_the_inner_block_the_loop_goes_by_the_outer_one() -> None:
    """Also for tasks that know of neither."""

    async def main() -> None:
        with virtual_time() as inner:
            assert await asyncio.create_task(called(), context=Context()) == "done"
        assert await asyncio.create_task(called(), context=Context()) == "done"
        assert inner.delays == [HOUR]

    with virtual_time() as outer:
        bounded(main)
    assert outer.delays == [HOUR, HOUR]


@pytest.mark.parametrize("place", BOTH)
def test_a_block_in_a_block_with_a_timer_pending(place: str) -> None:
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


def test_blocks_of_two_tasks_that_overlap() -> None:
    """Neither breaks the other, whichever ends first."""

    async def one(seconds: float) -> None:
        with virtual_time():
            await asyncio.sleep(seconds)

    async def main() -> bool:
        await asyncio.gather(one(HOUR), one(2 * HOUR), one(HOUR / 2))
        return real()

    assert bounded(main)
