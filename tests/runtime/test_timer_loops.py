"""The timer on foreign loops, and on loops whose clock is replaced while limits are in force."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redouble._runtime.asyncio_timer import TimerEntry
from redouble.testing import virtual_time
from tests.support.drivers.limited_calls import LONG
from tests.support.runtime.timers import TINY, SealedLoop, limited
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


def test_limits_hold_on_a_loop_that_cannot_have_a_timer() -> None:
    async def main() -> list[bool]:
        return list(await asyncio.gather(limited(TINY), limited(LONG, takes=0), limited(2 * TINY)))

    with asyncio.Runner(loop_factory=SealedLoop) as runner:
        assert runner.run(main()) == [True, False, True]


class Jumping(asyncio.SelectorEventLoop):
    """A foreign loop for tests, whose time advances when it is idle."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = vars(self)["_selector"]
        look = selector.select

        def select(timeout: float | None) -> Any:
            self._now += timeout or 0.0
            return look(0)

        selector.select = select

    def time(self) -> float:
        return self._now


def test_limits_use_the_time_of_the_loop() -> None:
    async def main() -> None:
        assert await limited(60)
        assert asyncio.get_running_loop().time() == pytest.approx(60)
        assert not await limited(60, takes=30)

    with asyncio.Runner(loop_factory=Jumping) as runner:
        runner.run(main())


def test_a_limit_set_before_a_block_of_virtual_time_holds_inside() -> None:
    async def main() -> None:
        with TimerEntry(60.0) as cut, virtual_time():
            await asyncio.sleep(LONG)
        assert cut.cancelled_caught
        assert await limited(TINY)

    asyncio.run(main())


def test_a_limit_set_inside_a_block_of_virtual_time_holds_afterwards() -> None:
    async def main() -> None:
        with virtual_time():
            task = asyncio.create_task(limited(TINY))
            await asyncio.sleep(0)
        assert await task

    asyncio.run(main())
