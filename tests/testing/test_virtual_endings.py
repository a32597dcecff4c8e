"""The end of virtual time: everything is restored, however the block is exited."""

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
from tests.support.runtime.virtual_loops import hour_long_call, patched_attributes, time_is_real
from tests.support.virtual_time import HOUR, WHERE, at, no_real_waits, run

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


class Oops(Exception):
    pass


# -------------------------------------------------------------------------- restoration


@pytest.mark.parametrize("how", ["well", "badly", "by a cancellation"])
def test_the_loop_is_restored(how: str) -> None:
    async def main() -> tuple[list[str], list[str], list[str]]:
        loop = asyncio.get_running_loop()
        before, during = patched_attributes(loop), list[str]()
        with suppress(Oops, asyncio.CancelledError), virtual_time():
            during += patched_attributes(loop)
            assert list(LOOPS) == [loop]
            await hour_long_call()
            if how == "badly":
                raise Oops
            if how == "by a cancellation":
                asyncio.ensure_future(asyncio.sleep(HOUR)).cancel()
                raise asyncio.CancelledError
        assert time_is_real()
        assert LOOPS == {}
        return before, during, patched_attributes(loop)

    assert asyncio.run(main()) == ([], ["time", "run_in_executor", "select"], [])


@pytest.mark.parametrize("place", ["sync", *WHERE])
def test_time_is_real_after_an_error(place: str) -> None:
    def blocking(_: VirtualClock) -> None:
        raise Oops

    async def waiting(clock: VirtualClock) -> None:
        await hour_long_call()
        blocking(clock)

    with pytest.raises(Oops):
        at(place, blocking, waiting)
    assert time_is_real()
    assert not ambient.active


def test_a_replaced_time_of_a_loop_is_restored() -> None:
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
    """Some libraries replace this method too, at any time."""
    original, runs = asyncio.BaseEventLoop.run_forever, list[object]()

    def run_forever(loop: asyncio.BaseEventLoop) -> None:
        runs.append(loop)
        original(loop)

    monkeypatch.setattr(asyncio.BaseEventLoop, "run_forever", run_forever)
    with virtual_time() as clock:
        assert asyncio.run(hour_long_call()) == "done"
    now = asyncio.BaseEventLoop.run_forever
    monkeypatch.undo()
    assert now is run_forever
    assert runs
    assert clock.delays == [HOUR]


def test_timers_keep_their_time_left() -> None:
    """Timers set before the block and in it keep their time left through the block and after it."""

    async def main() -> None:
        loop, fired = asyncio.get_running_loop(), list[str]()
        early = loop.call_later(2 * HOUR, fired.append, "early")
        with virtual_time():
            late = loop.call_later(3 * HOUR, fired.append, "late")
            await asyncio.sleep(HOUR)
            seen = loop.time()
        assert loop.time() >= seen
        assert early.when() - loop.time() == pytest.approx(HOUR, abs=60)
        assert late.when() - loop.time() == pytest.approx(2 * HOUR, abs=60)
        assert patched_attributes(loop) == ["time"]  # as long as timers are set
        with virtual_time():
            await asyncio.sleep(1.5 * HOUR)
            assert fired == ["early"]
            await asyncio.sleep(HOUR)
        assert fired == ["early", "late"]

    asyncio.run(main())


# ------------------------------------------------------------------------ another context


def fixture() -> Iterator[VirtualClock]:
    """Provide virtual time as a generator fixture does."""
    with virtual_time() as clock:
        yield clock


def test_a_block_may_be_exited_in_another_context() -> None:
    one, other = copy_context(), copy_context()
    generator = fixture()
    clock = one.run(next, generator)
    assert one.run(SYSTEM.now) == clock.now() == 0
    assert time_is_real()
    assert other.run(next, generator, None) is None
    assert one.run(VIRTUAL.get) is clock  # it cannot be reset in that context
    assert one.run(time_is_real)
    with virtual_time():
        assert one.run(asyncio.run, aware()) == (None, [])  # but it has ended there


async def aware() -> tuple[object, list[str]]:
    """Return the virtual clock of a task, and the attributes of its loop that are still patched."""
    return virtual(), patched_attributes(asyncio.get_running_loop())


def test_a_block_may_be_exited_in_another_task() -> None:
    async def main() -> None:
        loop, generator = asyncio.get_running_loop(), fixture()

        async def enter() -> VirtualClock:
            return next(generator)

        async def leave() -> None:
            next(generator, None)

        clock = await asyncio.ensure_future(enter())
        assert await hour_long_call() == "done"
        assert (await asyncio.ensure_future(aware()))[0] is clock
        await asyncio.ensure_future(leave())
        assert (time_is_real(), patched_attributes(loop), clock.delays) == (True, [], [HOUR])

    asyncio.run(main())


def test_a_block_may_be_exited_after_its_loop_is_closed() -> None:
    generator = fixture()

    async def main() -> None:
        next(generator)
        assert await hour_long_call() == "done"

    asyncio.run(main())
    assert next(generator, None) is None
    assert (time_is_real(), LOOPS) == (True, {})


def test_a_dropped_generator_ends_its_block() -> None:
    context, generator = Context(), fixture()
    context.run(next, generator)
    assert ambient.active
    del generator
    gc.collect()
    assert not ambient.active


def test_the_clock_stands_still_after_its_block() -> None:
    """For calls that began in the block, time continues as real time does."""
    with virtual_time() as clock:
        clock.advance(HOUR)
    began = clock._running_now()
    assert clock.now() == HOUR
    assert HOUR <= began < HOUR + 60
    assert any(clock._running_now() > began for _ in range(1_000_000))
    assert clock.now() == HOUR


@pytest.mark.parametrize("colour", ASYNC)
def test_a_call_that_outlives_the_block_continues_in_real_time(colour: str) -> None:
    """Its remaining time is unchanged: the change of clocks reaches no limit."""
    policy = Retry(backoff=[0, 0], give_up_after=30)

    async def main() -> str:
        event: Any = trio.Event() if colour == "trio" else asyncio.Event()
        script = Script("fail", ok("done"))

        async def attempt() -> str:
            await event.wait()
            return str(await script.aio())

        results: list[str] = []

        async def call() -> None:
            results.append(await policy.call(attempt))

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
        assert time_is_real()
        return results[0]

    assert run(colour, main) == "done"
