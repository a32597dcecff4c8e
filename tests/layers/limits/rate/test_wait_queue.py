"""The queue for permits: first come, first served in any mixture of colours; a cancelled call takes none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from math import inf

import pytest

from redouble._layers.limits.rate.pacing import NONE_AHEAD, Ahead, GcraPacer
from redouble._layers.limits.rate.wait_queue import Waiter
from redouble.testing import VirtualClock, virtual_time
from tests.support.bulkhead_callers import A_MINUTE, until
from tests.support.fakes import COLOURS, Boom, in_colour
from tests.support.layers.limits.wait_queues import (
    LOOPS,
    Permits,
    QueuedCall,
    queue_after_one_call,
    queue_of,
    with_tasks,
)
from tests.support.runtime.tasks import Task, settled
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour

# ------------------------------------------------------------------------------ in order


@pytest.mark.parametrize("colours", [COLOURS, COLOURS[::-1]])
def test_one_queue_for_all_colours(colours: tuple[str, ...]) -> None:
    """While calls wait, the lock is free and the fast path is closed."""
    pacer, admitted = Permits(), list[str]()
    queue = queue_of(pacer)
    waiters = [QueuedCall(queue, colour, admitted) for colour in colours]
    assert queue._lock.acquire(blocking=False)
    queue._lock.release()
    assert pacer.fast_path_closed
    for number, waiter in enumerate(waiters, 1):
        queue.update_pacer(pacer.add, 1)
        waiter.thread.join(A_MINUTE)
        assert admitted == list(colours[:number])
    assert (len(queue), pacer.available, pacer.fast_path_closed) == (0, 0, False)


@LOOPS
@pytest.mark.parametrize("leaving", [[], [0], [1], [2], [0, 1], [1, 2], [0, 1, 2]])
def test_a_cancelled_waiter_takes_no_permit_and_the_others_advance(colour: str, leaving: list[int]) -> None:
    pacer, queue = queue_after_one_call()
    admitted: list[tuple[int, float]] = []

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        async def wait(number: int) -> None:
            await queue.aenter()
            admitted.append((number, clock.now()))

        tasks: list[Task] = []
        for number in range(3):
            tasks.append(start(partial(wait, number)))
            await settled(colour)
        assert len(queue) == 3
        for number in leaving:
            tasks[number].cancel()
            await settled(colour)
            assert "Cancelled" in str(tasks[number].ended)
        while len(queue):
            await queue.aenter()  # behind all of them
        assert pacer.arrival_time == pacer.fast_arrival_time == clock.now() + 1

    with_tasks(colour, main)
    assert admitted == [
        (left, when) for when, left in enumerate((n for n in range(3) if n not in leaving), 1)
    ]


@LOOPS
def test_a_waiter_cancelled_at_its_turn_takes_no_permit(colour: str) -> None:
    pacer = Permits()
    queue = queue_of(pacer)

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        first, second = start(queue.aenter), None
        await settled(colour)
        second = start(queue.aenter)
        await settled(colour)
        queue.update_pacer(pacer.add, 1)
        first.cancel()
        await settled(colour)
        assert "Cancelled" in str(first.ended)
        assert (second.ended, pacer.available, len(queue)) == ("well", 0, 0)

    with_tasks(colour, main)


@VIRTUAL_COLOURS
def test_a_waiter_whose_wait_fails_leaves_the_queue(colour: str) -> None:
    class Breaking(Permits):
        asked = 0

        def due(self, now: float, cost: float = 1.0, ahead: Ahead = NONE_AHEAD, /) -> float:
            self.asked += 1
            if self.asked > 2:
                raise Boom
            return super().due(now, cost, ahead)

    pacer = Breaking()
    queue = queue_of(pacer)
    with pytest.raises(Boom):
        in_virtual_colour(colour, lambda clock: queue.enter(), lambda clock: queue.aenter())
    assert (len(queue), pacer.fast_path_closed) == (0, False)


def test_an_available_permit_is_taken_without_waiting(colour: str) -> None:
    pacer = Permits(1)
    queue = queue_of(pacer)
    in_colour(colour, queue.enter, queue.aenter)
    assert (pacer.available, len(queue), pacer.fast_path_closed) == (0, 0, False)


def test_waiters_are_woken_without_the_lock() -> None:
    pacer, found = Permits(), list[bool]()
    queue = queue_of(pacer)
    queue._try_acquire_in_turn(Waiter(), lambda: found.append(queue._owned_by_this_thread()), inf)
    queue._try_acquire_in_turn(last := Waiter(), lambda: found.append(queue._owned_by_this_thread()), inf)
    queue.update_pacer(pacer.add, 1)
    queue._dequeue(last)
    assert found == [False, False]


# ------------------------------------------------------------------------------ threads


def test_a_thread_in_virtual_time_really_waits_for_the_head_of_the_queue() -> None:
    queue, admitted = queue_after_one_call()[1], list[float]()
    with virtual_time() as clock:
        queue._try_acquire_in_turn(first := Waiter(), object, inf)

        def run() -> None:
            queue.enter()
            admitted.append(clock.now())

        thread = threading.Thread(target=copy_context().run, args=[run], daemon=True)
        thread.start()
        until(lambda: len(queue) == 2)
        assert (clock.now(), admitted) == (0, [])
        queue._dequeue(first)
        thread.join(A_MINUTE)
    assert admitted == [1]


def test_threads_in_virtual_time_pass_one_after_the_other() -> None:
    """The head of the queue moves the clock, and the others wait for it."""
    queue, admitted = queue_of(GcraPacer(1.0, 1)), list[float]()
    with virtual_time() as clock:

        def run() -> None:
            queue.enter()
            admitted.append(clock.now())

        contexts = [copy_context() for _ in range(4)]
        threads = [threading.Thread(target=context.run, args=[run], daemon=True) for context in contexts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(A_MINUTE)
        assert clock.now() == 3
    assert (len(admitted), len(queue)) == (4, 0)
