"""The timer on foreign loops, and on loops whose clock is replaced while limits are in force."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redouble._runtime.asyncio_timer import TimerEntry
from redouble.testing import virtual_time
from tests.runtime.test_timer import TINY, limited
from tests.support.limited_calls import LONG
from tests.support.virtual_time import unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)


class Closed(asyncio.SelectorEventLoop):
    """A loop that takes no attributes of ours."""

    def __setattr__(self, name: str, value: object) -> None:
        if "redouble" in name:
            raise AttributeError(name)
        super().__setattr__(name, value)


def test_a_loop_that_will_have_nothing_to_do_with_a_timer() -> None:
    """Its limits hold all the same."""

    async def main() -> list[bool]:
        return list(await asyncio.gather(limited(TINY), limited(LONG, takes=0), limited(2 * TINY)))

    with asyncio.Runner(loop_factory=Closed) as runner:
        assert runner.run(main()) == [True, False, True]


class Jumping(asyncio.SelectorEventLoop):
    """A foreign loop for tests: its time advances when there is nothing to do."""

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


def test_a_loop_with_a_time_of_its_own() -> None:
    """Limits go by it, as everything does that waits on this loop."""

    async def main() -> None:
        assert await limited(60)
        assert asyncio.get_running_loop().time() == pytest.approx(60)
        assert not await limited(60, takes=30)

    with asyncio.Runner(loop_factory=Jumping) as runner:
        runner.run(main())


def test_a_limit_from_before_a_block_of_virtual_time() -> None:
    async def main() -> None:
        with TimerEntry(60.0) as cut, virtual_time():
            await asyncio.sleep(LONG)
        assert cut.cancelled_caught
        assert await limited(TINY)

    asyncio.run(main())


def test_a_limit_that_outlives_a_block_of_virtual_time() -> None:
    async def main() -> None:
        with virtual_time():
            task = asyncio.create_task(limited(TINY))
            await asyncio.sleep(0)
        assert await task

    asyncio.run(main())
