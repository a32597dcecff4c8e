"""Faults in the queue for permits: heads that do not react, closed loops, finalisers, forks and signals."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import inf

import pytest

from redouble import SYSTEM
from redouble._layers.limits.rate.wait_queue import HEAD_GRACE, WAKE_LATENCY, Waiter
from redouble.errors import RateLimited
from redouble.testing import VirtualClock, virtual_time
from tests.support.bulkhead_callers import A_MINUTE
from tests.support.fakes import ASYNC
from tests.support.layers.limits.wait_queues import (
    FAR,
    LOOPS,
    Permits,
    QueuedCall,
    queue_after_one_call,
    queue_of,
    with_tasks,
)
from tests.support.runtime.tasks import Task, loop_of, settled

# ------------------------------------------------------------------ unresponsive heads


@LOOPS
def test_an_unresponsive_head_is_skipped(colour: str) -> None:
    """Each waiter behind it wakes it once more, and passes shortly after its own turn, in order."""
    _, queue = queue_after_one_call()
    admitted: list[tuple[int, float]] = []

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        queue._try_acquire_in_turn(Waiter(), lambda: None, inf)

        async def wait(number: int) -> None:
            await queue.aenter()
            admitted.append((number, clock.now()))

        for number in range(3):
            start(partial(wait, number))
            await settled(colour)
        await SYSTEM.asleep(60)
        assert len(queue) == 0

    with_tasks(colour, main)
    assert [number for number, _ in admitted] == [0, 1, 2]
    moments = [moment for _, moment in admitted]
    assert moments[0] == pytest.approx(2 + 2 * HEAD_GRACE)
    assert all(later - sooner >= 1 - 1e-6 for sooner, later in pairwise(moments))
    assert moments[-1] <= 4 + 4 * HEAD_GRACE + 1e-6


def test_waiters_far_behind_a_late_head_check_rarely() -> None:
    """A thousand that check ten times a second each would keep the event loop from running the head."""
    _, queue = queue_after_one_call(0.001)
    waiters = [Waiter() for _ in range(1000)]
    with virtual_time() as clock:
        for waiter in waiters:
            queue._try_acquire_in_turn(waiter, object, inf)
        clock.advance(2)
        for rarer in (2, 4, 8):
            checks = [queue._try_acquire_in_turn(waiter, object, inf) for waiter in (waiters[1], waiters[-1])]
            assert checks == [HEAD_GRACE, 999 * WAKE_LATENCY * rarer]
        clock.advance(HEAD_GRACE)
        assert queue._try_acquire_in_turn(waiters[-1], object, inf) is None  # skips the head all the same


def test_a_skipped_head_that_reacts_late_is_the_head_again() -> None:
    _, queue = queue_after_one_call()
    late, second, third = Waiter(), Waiter(), Waiter()
    woken: list[str] = []
    with virtual_time() as clock:
        queue._try_acquire_in_turn(late, lambda: woken.append("late"), inf)
        queue._try_acquire_in_turn(second, object, inf)
        queue._try_acquire_in_turn(third, object, inf)
        clock.advance(2 + HEAD_GRACE)
        assert queue._try_acquire_in_turn(second, object, inf) == HEAD_GRACE
        assert woken == ["late"]
        clock.advance(HEAD_GRACE)
        assert queue._try_acquire_in_turn(second, object, inf) is None
        queue._dequeue(second)
        assert list(queue._queue) == [third]
        assert queue._try_acquire_in_turn(late, object, inf) == pytest.approx(1)
        assert list(queue._queue) == [late, third]
        clock.advance(1)
        assert queue._try_acquire_in_turn(third, object, inf) == HEAD_GRACE
        assert queue._try_acquire_in_turn(late, object, inf) is None


def test_a_head_that_reacts_in_time_is_not_skipped() -> None:
    _, queue = queue_after_one_call()
    first, second = Waiter(), Waiter()
    with virtual_time() as clock:
        assert queue._try_acquire_in_turn(first, object, inf) == 1
        assert queue._try_acquire_in_turn(second, object, inf) == pytest.approx(2 + HEAD_GRACE)
        clock.advance(1 + HEAD_GRACE / 2)
        assert queue._try_acquire_in_turn(second, object, inf) == HEAD_GRACE
        clock.advance(HEAD_GRACE / 2)
        assert queue._try_acquire_in_turn(second, object, inf) == HEAD_GRACE
        assert queue._try_acquire_in_turn(first, object, inf) is None
        queue._dequeue(first)
        assert queue._try_acquire_in_turn(second, object, inf) == pytest.approx(1)


@pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])
def test_a_waiter_whose_loop_was_closed_is_removed(colour: str) -> None:
    pacer, admitted = Permits(), list[str]()
    queue = queue_of(pacer)
    loop = loop_of(colour)
    loop.set_exception_handler(lambda loop, context: None)  # called for the destroyed task
    task = loop.create_task(queue.aenter())
    loop.run_until_complete(asyncio.wait([task], timeout=0))
    next_call = QueuedCall(queue, "sync", admitted)
    assert len(queue) == 2
    loop.close()
    queue.update_pacer(pacer.add, 1)
    next_call.thread.join(A_MINUTE)
    assert (admitted, len(queue), pacer.fast_path_closed) == (["sync"], 0, False)
    del task


def test_removing_the_last_waiter_opens_the_fast_path() -> None:
    pacer = Permits()
    queue = queue_of(pacer)
    for _ in range(3):
        queue._try_acquire_in_turn(Waiter(), lambda: False, inf)
    assert pacer.fast_path_closed
    queue.update_pacer(pacer.add, 1)
    assert (len(queue), pacer.fast_path_closed) == (0, False)


# ------------------------------------------------------------------------------- forks


def test_a_forked_child_begins_with_an_empty_queue() -> None:
    pacer = Permits()
    queue = queue_of(pacer)
    queue._try_acquire_in_turn(Waiter(), object, inf)
    taken = threading.Thread(target=queue._lock.acquire)  # a thread that does not exist in the child
    taken.start()
    taken.join()
    queue._after_fork()
    assert (len(queue), pacer.fast_path_closed) == (0, False)
    pacer.available = 1
    queue.acquire_at(0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_call_in_a_forked_child_passes_while_others_wait_in_the_parent() -> None:
    pacer = Permits()
    queue = queue_of(pacer, 0)
    queue._try_acquire_in_turn(waiter := Waiter(), object, inf)
    child = os.fork()
    if not child:  # pragma: no cover
        pacer.available = 1
        try:
            queue.enter()
            os._exit(0 if len(queue) == 0 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(queue) == 1
    queue._dequeue(waiter)


# ------------------------------------------------------------------------ without waiting


def test_a_call_that_does_not_wait_overtakes_no_waiter() -> None:
    pacer = Permits()
    queue = queue_of(pacer)
    queue._try_acquire_in_turn(waiter := Waiter(), object, inf)
    queue.update_pacer(pacer.add, 1)
    with pytest.raises(RateLimited, match="and it does not wait") as caught:
        queue.acquire_at(0.0)
    assert caught.value.retry_after == FAR
    queue.update_pacer(pacer.add, 1)
    queue.acquire_at(0.0)
    assert (pacer.available, pacer.fast_path_closed) == (1, True)
    queue._dequeue(waiter)
    assert not pacer.fast_path_closed


def test_a_call_of_a_signal_handler_is_rejected_while_its_thread_holds_the_lock() -> None:
    """It cannot take a permit in the middle of an update, and cannot wait for its own thread."""
    queue = queue_of(Permits(1))
    with queue._lock, pytest.raises(RateLimited, match="a signal handler cannot use it"):
        queue.acquire_at(0.0)
    queue.acquire_at(0.0)


def test_what_a_finaliser_changes_in_the_middle_of_an_operation_is_deferred() -> None:
    """A waiter whose task was collected leaves the queue afterwards, and the next one is woken."""
    pacer, woken = Permits(), list[str]()
    queue = queue_of(pacer)
    first, second = Waiter(), Waiter()
    queue._try_acquire_in_turn(first, lambda: woken.append("first"), inf)
    queue._try_acquire_in_turn(second, lambda: woken.append("second"), inf)

    def middle() -> None:
        queue._dequeue(first)
        queue.update_pacer(pacer.add, 1)
        assert queue.query_pacer(lambda now: (len(queue), pacer.available)) == (2, 0)
        assert pacer.fast_path_closed
        assert not woken

    queue._run_exclusively(middle)
    assert (len(queue), pacer.available, set(woken)) == (1, 1, {"second"})
    queue._dequeue(second)
    assert not pacer.fast_path_closed


def test_a_query_of_a_signal_handler_leaves_the_fast_path_closed() -> None:
    """The operation that it interrupted opens the fast path again."""
    pacer = Permits(1)
    queue = queue_of(pacer)

    def middle() -> None:
        queue.query_pacer(lambda now: None)
        assert pacer.fast_path_closed

    queue.update_pacer(middle)
    assert not pacer.fast_path_closed


def test_the_pacer_is_queried_under_the_lock_and_keeps_its_fast_path() -> None:
    pacer = Permits(3)
    queue = queue_of(pacer)
    assert queue.query_pacer(lambda now: (queue._owned_by_this_thread(), pacer.available)) == (True, 3)
    assert not pacer.fast_path_closed
    queue._try_acquire_in_turn(Waiter(), object, inf)
    queue._try_acquire_in_turn(Waiter(), object, inf)
    queue.query_pacer(lambda now: None)
    assert pacer.fast_path_closed
