"""Bad luck at a bulkhead: whatever happens to who waits or is inside, no place is lost by it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from redouble import Bulkhead
from redouble.testing import virtual_time
from tests.support.bulkhead_callers import callers, until
from tests.support.fakes import ASYNC, COLOURS, Boom, in_colour

FREE = {"limit": 1, "in_use": 0, "queued": 0}
LOOPS = pytest.mark.parametrize("colour", ASYNC)


async def stay() -> None:
    """Stay inside until cancelled."""
    await (trio.sleep_forever if trio.lowlevel.in_trio_task() else asyncio.Event().wait)()


async def nothing() -> None: ...


async def settled(colour: str) -> None:
    """Let all other tasks come as far as they can."""
    if colour == "trio":
        await trio.testing.wait_all_tasks_blocked()
    else:
        for _ in range(10):
            await asyncio.sleep(0)


class Task:
    """A task of either library that can be cancelled."""

    def __init__(self, colour: str, nursery: Any, work: Callable[[], Any]) -> None:
        self.ended: str | None = None
        self.colour = colour
        self.scope = trio.CancelScope()
        if colour == "trio":
            nursery.start_soon(self.run, work)
        else:
            self.task = asyncio.ensure_future(self.run(work))

    async def run(self, work: Callable[[], Any]) -> None:
        with self.scope if self.colour == "trio" else threading.Lock():
            try:
                await work()
            except BaseException as error:
                self.ended = type(error).__name__
                if not isinstance(error, Exception | asyncio.CancelledError):
                    raise
            else:
                self.ended = "well"

    def cancel(self) -> None:
        if self.colour == "trio":
            self.scope.cancel()
        else:
            self.task.cancel()


def with_tasks(colour: str, main: Callable[[Callable[..., Task]], Any]) -> None:
    """Run a test that makes tasks."""

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            await main(partial(Task, colour, nursery))
            nursery.cancel_scope.cancel()

    async def in_asyncio() -> None:
        await main(partial(Task, colour, None))

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)


# -------------------------------------------------------------------------- cancellation


@LOOPS
def test_cancelled_inside(colour: str) -> None:
    gate = Bulkhead(1, None)

    async def main(start: Callable[..., Task]) -> None:
        one, two = start(lambda: gate.call(stay)), start(lambda: gate.call(stay))
        await settled(colour)
        assert gate.snapshot() == {"limit": 1, "in_use": 1, "queued": 1}
        for task in sorted((one, two), key=lambda task: task.ended is None):
            task.cancel()
            await settled(colour)
            assert "Cancelled" in str(task.ended)
        assert gate.snapshot() == FREE

    with_tasks(colour, main)


@LOOPS
@pytest.mark.parametrize("which", range(3))
def test_cancelled_while_waiting(colour: str, which: int) -> None:
    """The others are served, in order."""
    gate, came = Bulkhead(1, None), list[int]()

    async def main(start: Callable[..., Task]) -> None:
        ticket, tasks = gate.admit(0.0), list[Task]()

        async def come(number: int) -> None:
            came.append(number)

        for number in range(3):
            tasks.append(start(lambda number=number: gate.call(come, number)))
            await settled(colour)
        tasks[which].cancel()
        await settled(colour)
        assert gate.snapshot()["queued"] == 2
        gate.ended(ticket, None, 0.0)
        await settled(colour)
        assert "Cancelled" in str(tasks[which].ended)

    with_tasks(colour, main)
    assert came == [number for number in range(3) if number != which]
    assert gate.snapshot() == FREE


@LOOPS
def test_cancelled_at_the_moment_of_being_served(colour: str) -> None:
    """The cancellation counts, and the place goes to the next."""
    gate = Bulkhead(1, None)

    async def main(start: Callable[..., Task]) -> None:
        ticket = gate.admit(0.0)
        first = start(lambda: gate.call(stay))
        await settled(colour)
        second = start(lambda: gate.call(nothing))
        await settled(colour)
        gate.ended(ticket, None, 0.0)
        assert gate.snapshot() == {"limit": 1, "in_use": 1, "queued": 1}
        first.cancel()
        await settled(colour)
        assert "Cancelled" in str(first.ended)
        assert second.ended == "well"

    with_tasks(colour, main)
    assert gate.snapshot() == FREE


def test_a_cancellation_is_never_taken_for_the_end_of_waiting() -> None:
    """Also where the time to wait has run out in the same turn of the loop."""
    gate = Bulkhead(1, 2)

    async def main() -> None:
        with virtual_time() as clock, gate:
            task = asyncio.ensure_future(gate.call(nothing))
            await asyncio.sleep(0)
            clock.advance(3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert gate.snapshot() == FREE


# ------------------------------------------------------------------------------- loops


def loop_of(colour: str) -> asyncio.AbstractEventLoop:
    if colour == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
@pytest.mark.parametrize(
    ("colour", "ends"),
    [
        ("asyncio", "closed"),
        ("asyncio", "closed when served"),
        ("asyncio", "dropped"),
        ("asyncio", "dropped when served"),
        ("uvloop", "closed"),
        ("uvloop", "closed when served"),
        # and one of uvloop's that is dropped lives on
    ],
)
@pytest.mark.parametrize("next_one", COLOURS)
def test_a_loop_that_ends_while_a_task_waits(colour: str, ends: str, next_one: str) -> None:
    """Without the task being cancelled, as `asyncio.run` would. The place goes to the next."""
    gate = Bulkhead(1, None)
    with callers(gate) as guests:
        ticket = gate.admit(0.0)
        loop = loop_of(colour)
        loop.set_exception_handler(lambda loop, context: None)  # which says that a task was destroyed
        task = loop.create_task(gate.call(nothing))
        loop.run_until_complete(asyncio.wait([task], timeout=0))
        assert guests.used() == (1, 1)
        guest = guests.start(next_one)
        assert guests.used() == (1, 2)
        if ends.endswith("served"):
            gate.ended(ticket, None, 0.0)
        if ends.startswith("closed"):
            loop.close()
        if not ends.endswith("served"):
            gate.ended(ticket, None, 0.0)
        del task, loop
        gc.collect()
        until(lambda: guests.admitted == [guest.name])
        guest.finish()


@pytest.mark.parametrize("next_one", COLOURS)
def test_a_run_of_trio_that_ends_while_a_task_waits(next_one: str) -> None:
    gate = Bulkhead(1, None)
    with callers(gate) as guests:
        ticket = gate.admit(0.0)

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(gate.call, nothing)
                await trio.testing.wait_all_tasks_blocked()
                guests.start(next_one)
                raise Boom

        with pytest.raises(ExceptionGroup):
            trio.run(main)
        assert guests.used() == (1, 1)
        gate.ended(ticket, None, 0.0)
        until(lambda: len(guests.admitted) == 1)


# ------------------------------------------------------------------- collected, and forked


@pytest.mark.parametrize("colour", ["asyncio", "uvloop"])
@pytest.mark.parametrize("queued", [False, True])
def test_a_coroutine_that_is_dropped(colour: str, queued: bool) -> None:
    """Inside, or in the queue."""
    gate = Bulkhead(1, None)

    async def main() -> None:
        ticket = gate.admit(0.0) if queued else None
        coroutine = gate.call(stay)
        coroutine.send(None)
        assert gate.snapshot() == {"limit": 1, "in_use": 1, "queued": queued}
        del coroutine
        assert gate.snapshot() == {"limit": 1, "in_use": queued, "queued": 0}
        if ticket is not None:
            gate.ended(ticket, None, 0.0)

    in_colour(colour, lambda: None, main)
    assert gate.snapshot() == FREE


SCRIPT = """
import os, threading
from redouble import Bulkhead

gate, queued, go = Bulkhead(2, None), threading.Event(), threading.Event()
ticket, other = gate.admit(0.0), gate.admit(0.0)
waiting = threading.Thread(target=gate.call, args=[go.wait])
waiting.start()
while not gate.snapshot()["queued"]:
    pass
child = os.fork()
if not child:
    fine = gate.snapshot() == {"limit": 2, "in_use": 0, "queued": 0}
    gate.ended(ticket, None, 0.0)  # what was begun by this thread goes on here too
    with gate, gate:
        fine = fine and gate.snapshot() == {"limit": 2, "in_use": 2, "queued": 0}
    fine = fine and gate.snapshot() == {"limit": 2, "in_use": 0, "queued": 0}
    os._exit(7 if fine and gate.call(str, "in") == "in" else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(gate.snapshot() == {"limit": 2, "in_use": 2, "queued": 1})
gate.ended(other, None, 0.0)
go.set()
waiting.join()
print(gate.snapshot()["in_use"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_begins_with_all_places_free() -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603
    assert ran.stdout.split() == ["7", "True", "1"], ran.stderr
