"""The line for a permit: first come first served in any mixture of colours, and who leaves loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from math import inf
from typing import Any

import pytest
import trio

from redouble._layers.limits.pacing import GcraPacer
from redouble._layers.limits.wait_queue import Waiter, WaitQueue
from redouble.errors import RateLimited
from redouble.testing import VirtualClock, virtual_time
from tests.layers.limits.bulkhead.test_bulkhead_faults import Task, settled
from tests.layers.limits.bulkhead.test_bulkhead_waiting import VIRTUAL, turned
from tests.support.bulkhead_callers import A_MINUTE, until
from tests.support.fakes import COLOURS, Boom, in_colour

FAR = 1e6  # seconds: nobody waits for that in a test
LOOPS = pytest.mark.parametrize("colour", ["asyncio", "trio"])


class Permits:
    """A pace of which permits are put there by hand."""

    def __init__(self, there: int = 0) -> None:
        self.there = there
        self.held = False

    def close_fast_path(self) -> None:
        self.held = True

    def open_fast_path(self) -> None:
        self.held = False

    def due(self, now: float, ahead: int = 0, /) -> float:
        return 0.0 if self.there > ahead else FAR

    def take(self, now: float, /) -> None:
        self.there -= 1

    def add(self, permits: int) -> None:
        self.there += permits


def refused(why: str, wait: float) -> RateLimited:
    return RateLimited(why, retry_after=wait)


def line_of(pace: Any, patience: float | None = None) -> WaitQueue:
    return WaitQueue(pace, patience, refused)


def one_after(interval: float = 1.0, patience: float | None = None) -> tuple[GcraPacer, WaitQueue]:
    """Make a line at which somebody has just passed."""
    flow = GcraPacer(interval, 1)
    line = line_of(flow, patience)
    line.acquire_at(0.0)
    return flow, line


def with_tasks(colour: str, main: Callable[[VirtualClock, Callable[..., Task]], Awaitable[None]]) -> None:
    """Run something that starts tasks, in virtual time."""

    async def waiting(clock: VirtualClock) -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                await main(clock, partial(Task, colour, nursery))
        else:
            await main(clock, partial(Task, colour, None))

    turned(colour, lambda clock: None, waiting)


# ------------------------------------------------------------------------------ in order


class QueuedCall:
    """One that waits, on a thread of its own and in some colour."""

    def __init__(self, line: WaitQueue, colour: str, came: list[str]) -> None:
        def run() -> None:
            in_colour(colour, line.enter, line.aenter)
            came.append(colour)

        before = len(line)
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        until(lambda: len(line) > before)


@pytest.mark.parametrize("colours", [COLOURS, COLOURS[::-1]])
def test_one_line_for_all_colours(colours: tuple[str, ...]) -> None:
    """And while they wait the lock is free, and nobody else passes."""
    pace, came = Permits(), list[str]()
    line = line_of(pace)
    waiters = [QueuedCall(line, colour, came) for colour in colours]
    assert line._lock.acquire(blocking=False)
    line._lock.release()
    assert pace.held
    for number, waiter in enumerate(waiters, 1):
        line.update_pacer(pace.add, 1)
        waiter.thread.join(A_MINUTE)
        assert came == list(colours[:number])
    assert (len(line), pace.there, pace.held) == (0, 0, False)


@LOOPS
@pytest.mark.parametrize("gone", [[], [0], [1], [2], [0, 1], [1, 2], [0, 1, 2]])
def test_who_is_cancelled_takes_nothing_and_the_others_move_up(colour: str, gone: list[int]) -> None:
    flow, line = one_after()
    came: list[tuple[int, float]] = []

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        async def wait(number: int) -> None:
            await line.aenter()
            came.append((number, clock.now()))

        tasks: list[Task] = []
        for number in range(3):
            tasks.append(start(partial(wait, number)))
            await settled(colour)
        assert len(line) == 3
        for number in gone:
            tasks[number].cancel()
            await settled(colour)
            assert "Cancelled" in str(tasks[number].ended)
        while len(line):
            await line.aenter()  # behind all of them
        assert flow.arrival_time == flow.fast_arrival_time == clock.now() + 1

    with_tasks(colour, main)
    assert came == [(left, when) for when, left in enumerate((n for n in range(3) if n not in gone), 1)]


@LOOPS
def test_one_that_is_cancelled_when_its_turn_has_come_takes_nothing(colour: str) -> None:
    pace = Permits()
    line = line_of(pace)

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        first, second = start(line.aenter), None
        await settled(colour)
        second = start(line.aenter)
        await settled(colour)
        line.update_pacer(pace.add, 1)
        first.cancel()
        await settled(colour)
        assert "Cancelled" in str(first.ended)
        assert (second.ended, pace.there, len(line)) == ("well", 0, 0)

    with_tasks(colour, main)


@VIRTUAL
def test_one_whose_waiting_ends_in_an_error_leaves(colour: str) -> None:
    class Breaking(Permits):
        asked = 0

        def due(self, now: float, ahead: int = 0, /) -> float:
            self.asked += 1
            if self.asked > 2:
                raise Boom
            return super().due(now, ahead)

    pace = Breaking()
    line = line_of(pace)
    with pytest.raises(Boom):
        turned(colour, lambda clock: line.enter(), lambda clock: line.aenter())
    assert (len(line), pace.held) == (0, False)


def test_who_finds_a_permit_does_not_wait(colour: str) -> None:
    pace = Permits(1)
    line = line_of(pace)
    in_colour(colour, line.enter, line.aenter)
    assert (pace.there, len(line), pace.held) == (0, 0, False)


def test_whoever_is_rung_for_finds_the_lock_free() -> None:
    pace, found = Permits(), list[bool]()
    line = line_of(pace)
    line._try_acquire_in_turn(Waiter(), lambda: found.append(line._owned_by_this_thread()), inf)
    line._try_acquire_in_turn(last := Waiter(), lambda: found.append(line._owned_by_this_thread()), inf)
    line.update_pacer(pace.add, 1)
    line._dequeue(last)
    assert found == [False, False]


# ------------------------------------------------------------------------------ threads


def test_a_thread_in_virtual_time_that_is_not_first_waits_for_who_is() -> None:
    line, came = one_after()[1], list[float]()
    with virtual_time() as clock:
        line._try_acquire_in_turn(first := Waiter(), object, inf)

        def run() -> None:
            line.enter()
            came.append(clock.now())

        thread = threading.Thread(target=copy_context().run, args=[run], daemon=True)
        thread.start()
        until(lambda: len(line) == 2)
        assert (clock.now(), came) == (0, [])
        line._dequeue(first)
        thread.join(A_MINUTE)
    assert came == [1]


def test_threads_in_virtual_time_are_served_in_order() -> None:
    """The first one moves the clock, and the others wait for it."""
    line, came = line_of(GcraPacer(1.0, 1)), list[float]()
    with virtual_time() as clock:

        def run() -> None:
            line.enter()
            came.append(clock.now())

        contexts = [copy_context() for _ in range(4)]
        threads = [threading.Thread(target=context.run, args=[run], daemon=True) for context in contexts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(A_MINUTE)
        assert clock.now() == 3
    assert (len(came), len(line)) == (4, 0)
