"""Calls of an operation that fails a number of times, in every shape."""

from __future__ import annotations

from typing import Any

from redouble import Retry
from tests.support.call_shapes import EVERY_ASYNC_SHAPE, EVERY_SHAPE
from tests.support.fakes import Boom, in_colour


class Flaky:
    """An operation that fails ``times`` times, and then returns 7."""

    def __init__(self, times: int) -> None:
        self.left = times

    def work(self) -> int:
        self.left -= 1
        if self.left >= 0:
            raise Boom
        return 7

    async def awork(self) -> int:
        return self.work()


def flaky_call(colour: str, shape: str, policy: Retry, times: int) -> Any:
    """Make a call that fails ``times`` times; return its result or its error."""
    flaky = Flaky(times)

    def blocking() -> object:
        return EVERY_SHAPE[shape](policy, flaky.work)

    async def waiting() -> object:
        return await EVERY_ASYNC_SHAPE[shape](policy, flaky.awork)

    try:
        return in_colour(colour, blocking, waiting)
    except Boom as error:
        return error
