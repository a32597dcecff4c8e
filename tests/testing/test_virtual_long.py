"""Long waits in virtual time: a float has no room for small steps then, and no loop may spin over it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redouble import SYSTEM, Backoff, Retry
from redouble.testing import Script, ok, virtual_time
from tests.support.fakes import ASYNC
from tests.support.virtual_time import run, unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

HOUR = 3600.0


class Bounded(asyncio.SelectorEventLoop):
    """A loop that does not spin: so many turns are more than any of these tests needs."""

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
    """Run on a loop that may not spin."""

    def loop() -> Bounded:
        made = Bounded()
        made.ahead = ahead
        return made

    async def coroutine() -> Any:
        return await main()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(coroutine())


LONG = [1e6, 2e7, 1e9, 1e15, 1e300]


@pytest.mark.parametrize("seconds", LONG)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("colour", ASYNC)
def test_no_delay_is_too_long(colour: str, inside: bool, seconds: float) -> None:
    policy = Retry(backoff=[seconds, 1], give_up_after=None)

    async def call() -> object:
        return await policy.call(Script("fail", "fail", ok("done")).aio)

    async def main() -> tuple[object, list[float]]:
        with virtual_time() as clock:
            return await call(), clock.delays

    if inside:
        came, delays = bounded(main) if colour == "asyncio" else run(colour, main)
    else:
        with virtual_time() as clock:
            came, delays = (bounded(call) if colour == "asyncio" else run(colour, call)), clock.delays
    assert (came, delays) == ("done", [seconds, 1])


@pytest.mark.parametrize("ahead", [1e6, 5e6, 2e7, 1e9])
def test_a_machine_that_has_been_up_for_long(ahead: float) -> None:
    """The time of a loop that runs already is large then, and small steps get lost in it."""

    async def main() -> tuple[float, list[float]]:
        with virtual_time() as clock:
            for delay in (0.1, 1 / 3, HOUR, 0.7, 123.456789):
                await SYSTEM.asleep(delay)
            return clock.now(), clock.delays

    moment, delays = bounded(main, ahead=ahead)
    assert moment == pytest.approx(sum(delays), abs=1e-5)


def test_a_recipe_without_an_end() -> None:
    policy = Retry(backoff=Backoff.exponential(1, 10), on=OSError, attempts=100, give_up_after=None)

    async def main() -> object:
        return await policy.call(Script(*[OSError] * 99, ok("done")).aio)

    with virtual_time() as clock:
        assert bounded(main) == "done"
    assert clock.delays[:3] == [1, 10, 100]
    assert len(clock.delays) == 99
