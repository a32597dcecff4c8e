"""No slot of a bulkhead is lost by a cancellation, the end of a loop, the garbage collector or a fork."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from redouble import Bulkhead, Clock
from redouble.testing import virtual_time
from tests.support.bulkhead_callers import callers, until
from tests.support.fakes import ASYNC, COLOURS, Boom, Panic, in_colour
from tests.support.garbage_collection import untraced
from tests.support.runtime.tasks import Task, loop_of, settled

pytestmark = pytest.mark.usefixtures(untraced.__name__)

FREE = {"limit": 1, "in_use": 0, "queued": 0}
LOOPS = pytest.mark.parametrize("colour", ASYNC)


async def stay() -> None:
    """Hold the slot until cancelled."""
    await (trio.sleep_forever if trio.lowlevel.in_trio_task() else asyncio.Event().wait)()


async def nothing() -> None: ...


def with_tasks(colour: str, main: Callable[[Callable[..., Task]], Any]) -> None:
    """Run ``main`` with a function that starts a task."""

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            await main(partial(Task, colour, nursery))
            nursery.cancel_scope.cancel()

    async def in_asyncio() -> None:
        await main(partial(Task, colour, None))

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)


# -------------------------------------------------------------------------- cancellation


@LOOPS
def test_a_cancelled_call_releases_its_slot(colour: str) -> None:
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
def test_a_cancelled_waiter_leaves_the_queue(colour: str, which: int) -> None:
    """The other waiters are admitted, in order."""
    gate, admitted = Bulkhead(1, None), list[int]()

    async def main(start: Callable[..., Task]) -> None:
        ticket, tasks = gate.admit(0.0), list[Task]()

        async def work_on(number: int) -> None:
            admitted.append(number)

        for number in range(3):
            tasks.append(start(lambda number=number: gate.call(work_on, number)))
            await settled(colour)
        tasks[which].cancel()
        await settled(colour)
        assert gate.snapshot()["queued"] == 2
        gate.ended(ticket, None, 0.0)
        await settled(colour)
        assert "Cancelled" in str(tasks[which].ended)

    with_tasks(colour, main)
    assert admitted == [number for number in range(3) if number != which]
    assert gate.snapshot() == FREE


@LOOPS
def test_a_waiter_cancelled_right_after_its_admission_releases_the_slot(colour: str) -> None:
    """The task is cancelled nevertheless, and the slot goes to the next waiter."""
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


def test_a_cancellation_is_not_mistaken_for_the_end_of_the_wait() -> None:
    """Even if the time to wait runs out in the same iteration of the loop."""
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


@pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
@pytest.mark.parametrize(
    ("colour", "ends"),
    [
        ("asyncio", "closed"),
        ("asyncio", "closed after admission"),
        ("asyncio", "dropped"),
        ("asyncio", "dropped after admission"),
        ("uvloop", "closed"),
        ("uvloop", "closed after admission"),
        # no "dropped" for uvloop: its loops stay alive without references
    ],
)
@pytest.mark.parametrize("next_colour", COLOURS)
def test_a_loop_that_ends_while_a_task_waits_loses_no_slot(colour: str, ends: str, next_colour: str) -> None:
    """The task is not cancelled first, as `asyncio.run` would do. The slot goes to the next waiter."""
    gate = Bulkhead(1, None)
    with callers(gate) as group:
        ticket = gate.admit(0.0)
        loop = loop_of(colour)
        loop.set_exception_handler(lambda loop, context: None)  # called for the destroyed task
        task = loop.create_task(gate.call(nothing))
        loop.run_until_complete(asyncio.wait([task], timeout=0))
        assert group.used() == (1, 1)
        caller = group.start(next_colour)
        assert group.used() == (1, 2)
        if ends.endswith("admission"):
            gate.ended(ticket, None, 0.0)
        if ends.startswith("closed"):
            loop.close()
        if not ends.endswith("admission"):
            gate.ended(ticket, None, 0.0)
        del task, loop
        gc.collect()
        until(lambda: group.admitted == [caller.name])
        caller.finish()


@pytest.mark.parametrize("next_colour", COLOURS)
def test_a_trio_run_that_ends_while_a_task_waits_loses_no_slot(next_colour: str) -> None:
    gate = Bulkhead(1, None)
    with callers(gate) as group:
        ticket = gate.admit(0.0)

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(gate.call, nothing)
                await trio.testing.wait_all_tasks_blocked()
                group.start(next_colour)
                raise Boom

        with pytest.raises(ExceptionGroup):
            trio.run(main)
        assert group.used() == (1, 1)
        gate.ended(ticket, None, 0.0)
        until(lambda: len(group.admitted) == 1)


# ------------------------------------------------------------------- collected, and forked


@pytest.mark.parametrize("colour", ["asyncio", "uvloop"])
@pytest.mark.parametrize("queued", [False, True])
def test_a_dropped_coroutine_releases_its_slot_or_leaves_the_queue(colour: str, queued: bool) -> None:
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
    gate.ended(ticket, None, 0.0)  # a call that this thread began before the fork ends here too
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
def test_a_forked_child_begins_with_all_slots_free() -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603
    assert ran.stdout.split() == ["7", "True", "1"], ran.stderr


class Interrupting(Clock):
    """A clock whose reading is interrupted, as by Ctrl-C."""

    def now(self) -> float:
        raise Panic


def test_the_end_of_a_block_or_generator_reads_no_clock_before_it_releases_the_slot() -> None:
    """Every call before the release is a place where Ctrl-C loses the slot."""
    gate = Bulkhead(1, wait=0)
    gate.clock = Interrupting()

    @gate
    def numbers() -> Iterator[int]:
        yield 1

    with gate:
        assert gate.snapshot()["in_use"] == 1
    assert gate.snapshot() == FREE
    assert list(numbers()) == [1]
    assert gate.snapshot() == FREE
