"""Event loops in virtual time: an hour-long call, patched attributes, and a loop that must not spin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redouble import SYSTEM, Retry
from redouble._runtime.clock import virtual
from redouble.testing import Script, ok
from tests.support.virtual_time import HOUR

HOURLY = Retry(backoff=[HOUR, HOUR], give_up_after=None)


def time_is_real() -> bool:
    """Return True if no virtual time is active."""
    return virtual() is None and abs(SYSTEM.now() - time.monotonic()) < 60


def patched_attributes(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the attributes of a loop that are still patched."""
    things = (loop, vars(loop)["_selector"])
    return [name for thing in things for name in ("time", "run_in_executor", "select") if name in vars(thing)]


class Bounded(asyncio.SelectorEventLoop):
    """An event loop that fails after more iterations than a test needs."""

    ahead = 0.0
    turns = 0

    def time(self) -> float:
        return super().time() + self.ahead

    def _run_once(self) -> None:
        self.turns += 1
        if self.turns == 10_000:
            raise AssertionError("the loop spins")
        once: Callable[[], None] = getattr(super(), "_run_once")  # noqa: B009  not in the stubs
        once()


def bounded(main: Callable[[], Awaitable[Any]], *, ahead: float = 0.0) -> Any:
    """Run async code on an event loop that must not spin."""

    def loop() -> Bounded:
        made = Bounded()
        made.ahead = ahead
        return made

    async def coroutine() -> Any:
        return await main()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(coroutine())


async def hour_long_call() -> Any:
    """Make a call that takes an hour of virtual time."""
    return await HOURLY.call(Script("fail", ok("done")).aio)
