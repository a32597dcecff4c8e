"""Running code in virtual time: in every colour, with the block around the event loop or inside it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest
import trio
from trio.testing import MockClock

from redouble._runtime.ambient import ATTEMPT_OVERRIDE, ambient
from redouble._runtime.clock import LOOPS, VIRTUAL
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import ASYNC

# The block is around the call that runs the loop, or inside the running loop. Trio's mock clock jumps by
# itself (``jumping``), or is advanced by the block.
WHERE = [f"{colour} {where}" for colour in ASYNC for where in ("around", "inside")]
PLACES = ["sync", "thread", *WHERE, "trio around jumping", "trio inside jumping"]

ASYNCIO_PLACES = ["asyncio around", "asyncio inside"]
LOOP_PLACES = [*ASYNCIO_PLACES, "trio around", "trio inside"]

AROUND_LOOP = pytest.mark.parametrize("place", ["sync", "thread", *(f"{colour} around" for colour in ASYNC)])
VIRTUAL_COLOURS = pytest.mark.parametrize(
    "colour", ["sync", "thread", "asyncio", "trio"]
)  # uvloop waits in real time

HOUR = 3600.0

Blocking: TypeAlias = Callable[[VirtualClock], Any]
Waiting: TypeAlias = Callable[[VirtualClock], Awaitable[Any]]


@pytest.fixture
def no_real_waits() -> Iterator[None]:
    """Check that a test restores all state, and fail it if it really waits."""

    def alarm(*_: object) -> None:
        pytest.fail("this test really waits")

    run_forever = asyncio.BaseEventLoop.run_forever
    before = signal.signal(signal.SIGALRM, alarm) if hasattr(signal, "SIGALRM") else None
    if before is not None:
        signal.alarm(60)
    yield
    if before is not None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert asyncio.BaseEventLoop.run_forever is run_forever
    assert (VIRTUAL.get(), ATTEMPT_OVERRIDE.get(), LOOPS, ambient.active) == (None, None, {}, {})


def run(colour: str, main: Callable[[], Awaitable[Any]], *, jumping: bool = False) -> Any:
    """Run async code; under Trio with its mock clock."""

    async def coroutine() -> Any:
        return await main()

    if colour == "trio":
        return trio.run(main, clock=MockClock(autojump_threshold=0) if jumping else MockClock())
    if colour == "asyncio":
        return asyncio.run(coroutine())
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().call_later(60, runner.get_loop().stop)  # uvloop ignores signal handlers
        return runner.run(coroutine())


def at(place: str, blocking: Blocking, waiting: Waiting) -> Any:
    """Run the function for this place in virtual time."""
    colour, *where = place.split()

    def here() -> Any:
        with virtual_time() as clock:
            return blocking(clock)

    async def inside() -> Any:
        with virtual_time() as clock:
            return await waiting(clock)

    if colour == "sync":
        return here()
    if colour == "thread":
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(here).result()
    jumping = "jumping" in where
    if "inside" in where:
        return run(colour, inside, jumping=jumping)
    with virtual_time() as clock:
        return run(colour, lambda: waiting(clock), jumping=jumping)


def in_virtual_colour(colour: str, blocking: Blocking, waiting: Waiting) -> Any:
    """Run the function for this colour in virtual time; the block is inside the event loop."""
    return at(f"{colour} inside jumping", blocking, waiting)


def in_virtual_time(colour: str, waiting: Waiting) -> Any:
    """Run async code in virtual time; the block is around the loop unless the colour has a place."""
    place = colour if " " in colour else f"{colour} around"
    return at(place, lambda _: None, waiting)
