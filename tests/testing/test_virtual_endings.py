"""The end of virtual time: everything is as it was before, however the block is left."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Retry
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import LOOPS, VIRTUAL, virtual
from redouble.testing import Script, VirtualClock, ok, virtual_time
from tests.support.fakes import ASYNC
from tests.support.virtual_time import WHERE, at, run, unwaiting
from tests.testing.test_virtual_loop import HOUR, called

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)


class Oops(Exception):
    pass


def real() -> bool:
    """Return True if time is real here."""
    return virtual() is None and abs(SYSTEM.now() - time.monotonic()) < 60


def turned(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the attributes of a loop that are still patched."""
    things = (loop, vars(loop)["_selector"])
    return [name for thing in things for name in ("time", "run_in_executor", "select") if name in vars(thing)]


# ---------------------------------------------------------------------- as it was before


@pytest.mark.parametrize("how", ["well", "badly", "by a cancellation"])
def test_a_loop_is_as_it_was_before(how: str) -> None:
    async def main() -> tuple[list[str], list[str], list[str]]:
        loop = asyncio.get_running_loop()
        before, during = turned(loop), list[str]()
        with suppress(Oops, asyncio.CancelledError), virtual_time():
            during += turned(loop)
            assert list(LOOPS) == [loop]
            await called()
            if how == "badly":
                raise Oops
            if how == "by a cancellation":
                asyncio.ensure_future(asyncio.sleep(HOUR)).cancel()
                raise asyncio.CancelledError
        assert real()
        assert LOOPS == {}
        return before, during, turned(loop)

    assert asyncio.run(main()) == ([], ["time", "run_in_executor", "select"], [])


@pytest.mark.parametrize("place", ["sync", *WHERE])
def test_an_error_leaves_nothing_behind(place: str) -> None:
    def blocking(_: VirtualClock) -> None:
        raise Oops

    async def waiting(clock: VirtualClock) -> None:
        await called()
        blocking(clock)

    with pytest.raises(Oops):
        at(place, blocking, waiting)
    assert real()
    assert not ambient.active


def test_what_you_had_put_in_its_place_comes_back() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.time = own = lambda: time.monotonic() + 5
        with virtual_time() as clock:
            began = loop.time()
            await asyncio.sleep(HOUR)
            assert loop.time() - began == pytest.approx(HOUR)
            assert clock.now() == HOUR
        assert loop.time is own

    asyncio.run(main())


def test_a_foreign_run_forever_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some libraries replace it too, at any time."""
    original, runs = asyncio.BaseEventLoop.run_forever, list[object]()

    def run_forever(loop: asyncio.BaseEventLoop) -> None:
        runs.append(loop)
        original(loop)

    monkeypatch.setattr(asyncio.BaseEventLoop, "run_forever", run_forever)
    with virtual_time() as clock:
        assert asyncio.run(called()) == "done"
    now = asyncio.BaseEventLoop.run_forever
    monkeypatch.undo()
    assert now is run_forever
    assert runs
    assert clock.delays == [HOUR]


def test_timers_keep_their_distance() -> None:
    """Those set before the block and those set in it, through the block and after it."""

    async def main() -> None:
        loop, rung = asyncio.get_running_loop(), list[str]()
        early = loop.call_later(2 * HOUR, rung.append, "early")
        with virtual_time():
            late = loop.call_later(3 * HOUR, rung.append, "late")
            await asyncio.sleep(HOUR)
            seen = loop.time()
        assert loop.time() >= seen
        assert early.when() - loop.time() == pytest.approx(HOUR, abs=60)
        assert late.when() - loop.time() == pytest.approx(2 * HOUR, abs=60)
        assert turned(loop) == ["time"]  # for as long as they are set
        with virtual_time():
            await asyncio.sleep(1.5 * HOUR)
            assert rung == ["early"]
            await asyncio.sleep(HOUR)
        assert rung == ["early", "late"]

    asyncio.run(main())


# ------------------------------------------------------------------------ another context


def fixture() -> Iterator[VirtualClock]:
    """Give virtual time as a fixture does."""
    with virtual_time() as clock:
        yield clock


def test_a_block_left_in_another_context() -> None:
    one, other = copy_context(), copy_context()
    generator = fixture()
    clock = one.run(next, generator)
    assert one.run(SYSTEM.now) == clock.now() == 0
    assert real()
    assert other.run(next, generator, None) is None
    assert one.run(VIRTUAL.get) is clock  # what cannot be taken back there
    assert one.run(real)
    with virtual_time():
        assert one.run(asyncio.run, aware()) == (None, [])  # and is over wherever it is still seen


async def aware() -> tuple[object, list[str]]:
    """Return the virtual clock of a task, and the attributes of its loop that are still patched."""
    return virtual(), turned(asyncio.get_running_loop())


def test_a_block_left_in_another_task() -> None:
    async def main() -> None:
        loop, generator = asyncio.get_running_loop(), fixture()

        async def enter() -> VirtualClock:
            return next(generator)

        async def leave() -> None:
            next(generator, None)

        clock = await asyncio.ensure_future(enter())
        assert await called() == "done"
        assert (await asyncio.ensure_future(aware()))[0] is clock
        await asyncio.ensure_future(leave())
        assert (real(), turned(loop), clock.delays) == (True, [], [HOUR])

    asyncio.run(main())


def test_a_block_left_after_its_loop_is_closed() -> None:
    generator = fixture()

    async def main() -> None:
        next(generator)
        assert await called() == "done"

    asyncio.run(main())
    assert next(generator, None) is None
    assert (real(), LOOPS) == (True, {})


def test_a_block_that_is_forgotten_ends_with_its_generator() -> None:
    context, generator = Context(), fixture()
    context.run(next, generator)
    assert ambient.active
    del generator
    gc.collect()
    assert not ambient.active


def test_its_clock_stands_still_after_it() -> None:
    """Only for calls that have begun in it, time goes on: as real time does."""
    with virtual_time() as clock:
        clock.advance(HOUR)
    began = clock._running_now()
    assert clock.now() == HOUR
    assert HOUR <= began < HOUR + 60
    assert any(clock._running_now() > began for _ in range(1_000_000))
    assert clock.now() == HOUR


@pytest.mark.parametrize("colour", ASYNC)
def test_a_call_that_outlives_the_block_goes_on_in_real_time(colour: str) -> None:
    """What it has left is what it had left; its limits are not reached by the change of clocks."""
    policy = Retry(backoff=[0, 0], give_up_after=30)

    async def main() -> str:
        event: Any = trio.Event() if colour == "trio" else asyncio.Event()
        script = Script("fail", ok("done"))

        async def attempt() -> str:
            await event.wait()
            return str(await script.aio())

        came: list[str] = []

        async def call() -> None:
            came.append(await policy.call(attempt))

        if colour == "trio":
            async with trio.open_nursery() as nursery:
                with virtual_time():
                    nursery.start_soon(call)
                    await trio.testing.wait_all_tasks_blocked()
                event.set()
        else:
            with virtual_time():
                task = asyncio.ensure_future(call())
                await asyncio.sleep(0)
            event.set()
            await task
        assert real()
        return came[0]

    assert run(colour, main) == "done"
