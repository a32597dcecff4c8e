"""Bad luck in the line for a permit: first ones that never come, loops that are gone, and forks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from redouble import SYSTEM
from redouble._layers.limits.wait_queue import HEAD_GRACE, Waiter
from redouble.errors import RateLimited
from redouble.testing import VirtualClock, virtual_time
from tests.layers.limits.bulkhead.test_bulkhead_faults import Task, loop_of, settled
from tests.layers.limits.rate.test_wait_queue import (
    FAR,
    LOOPS,
    Permits,
    QueuedCall,
    line_of,
    one_after,
    with_tasks,
)
from tests.support.bulkhead_callers import A_MINUTE
from tests.support.fakes import ASYNC

# ------------------------------------------------------------------- who does not come


@LOOPS
def test_a_first_one_that_does_not_come_is_passed_by(colour: str) -> None:
    """A little after one's own turn, having rung for it once more; the rate is kept, and so is the order."""
    _, line = one_after()
    came: list[tuple[int, float]] = []

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        line._try_acquire_in_turn(Waiter(), lambda: None, inf)

        async def wait(number: int) -> None:
            await line.aenter()
            came.append((number, clock.now()))

        for number in range(3):
            start(partial(wait, number))
            await settled(colour)
        await SYSTEM.asleep(60)
        assert len(line) == 0

    with_tasks(colour, main)
    assert [number for number, _ in came] == [0, 1, 2]
    moments = [moment for _, moment in came]
    assert moments[0] == pytest.approx(2 + 2 * HEAD_GRACE)
    assert all(later - sooner >= 1 - 1e-6 for sooner, later in pairwise(moments))
    assert moments[-1] <= 4 + 4 * HEAD_GRACE + 1e-6


def test_one_that_was_passed_by_is_the_first_again_when_it_comes() -> None:
    _, line = one_after()
    late, second, third = Waiter(), Waiter(), Waiter()
    rung: list[str] = []
    with virtual_time() as clock:
        line._try_acquire_in_turn(late, lambda: rung.append("late"), inf)
        line._try_acquire_in_turn(second, object, inf)
        line._try_acquire_in_turn(third, object, inf)
        clock.advance(2 + HEAD_GRACE)
        assert line._try_acquire_in_turn(second, object, inf) == HEAD_GRACE
        assert rung == ["late"]
        clock.advance(HEAD_GRACE)
        assert line._try_acquire_in_turn(second, object, inf) is None
        line._dequeue(second)
        assert list(line._queue) == [third]
        assert line._try_acquire_in_turn(late, object, inf) == pytest.approx(1)
        assert list(line._queue) == [late, third]
        clock.advance(1)
        assert line._try_acquire_in_turn(third, object, inf) == HEAD_GRACE
        assert line._try_acquire_in_turn(late, object, inf) is None


def test_a_first_one_that_comes_in_time_is_not_passed_by() -> None:
    _, line = one_after()
    first, second = Waiter(), Waiter()
    with virtual_time() as clock:
        assert line._try_acquire_in_turn(first, object, inf) == 1
        assert line._try_acquire_in_turn(second, object, inf) == pytest.approx(2 + HEAD_GRACE)
        clock.advance(1 + HEAD_GRACE / 2)
        assert line._try_acquire_in_turn(second, object, inf) == HEAD_GRACE
        clock.advance(HEAD_GRACE / 2)
        assert line._try_acquire_in_turn(second, object, inf) == HEAD_GRACE
        assert line._try_acquire_in_turn(first, object, inf) is None
        line._dequeue(first)
        assert line._try_acquire_in_turn(second, object, inf) == pytest.approx(1)


@pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])
def test_a_waiter_whose_loop_was_closed_is_taken_out(colour: str) -> None:
    pace, came = Permits(), list[str]()
    line = line_of(pace)
    loop = loop_of(colour)
    loop.set_exception_handler(lambda loop, context: None)  # which says that a task was destroyed
    task = loop.create_task(line.aenter())
    loop.run_until_complete(asyncio.wait([task], timeout=0))
    next_one = QueuedCall(line, "sync", came)
    assert len(line) == 2
    loop.close()
    line.update_pacer(pace.add, 1)
    next_one.thread.join(A_MINUTE)
    assert (came, len(line), pace.held) == (["sync"], 0, False)
    del task


def test_the_last_one_of_all_whose_loops_were_closed_opens_the_line() -> None:
    pace = Permits()
    line = line_of(pace)
    for _ in range(3):
        line._try_acquire_in_turn(Waiter(), lambda: False, inf)
    assert pace.held
    line.update_pacer(pace.add, 1)
    assert (len(line), pace.held) == (0, False)


def test_one_that_leaves_just_before_it_is_rung_for_rings_itself() -> None:
    """The collector may take somebody out while we look for the first one, and even after that."""

    class Queue(OrderedDict[Waiter, Callable[[], object]]):
        troubles = 2

        def __iter__(self) -> Iterator[Waiter]:
            if self.troubles:
                self.troubles -= 1
                raise RuntimeError("changed size during iteration")
            return super().__iter__()

        def get(self, key: Any, default: Any = None, /) -> Any:
            self.pop(key, None)
            return super().get(key, default)

    line = line_of(Permits())
    line._queue = Queue({Waiter(): object})
    line.update_pacer(int)
    assert len(line) == 0


# ------------------------------------------------------------------------------- forks


def test_a_child_begins_with_an_empty_line() -> None:
    pace = Permits()
    line = line_of(pace)
    line._try_acquire_in_turn(Waiter(), object, inf)
    taken = threading.Thread(target=line._lock.acquire)  # by a thread that is not there in the child
    taken.start()
    taken.join()
    line._after_fork()
    assert (len(line), pace.held) == (0, False)
    pace.there = 1
    line.acquire_at(0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_real_child_passes_though_others_wait_in_the_parent() -> None:
    pace = Permits()
    line = line_of(pace, 0)
    line._try_acquire_in_turn(waits := Waiter(), object, inf)
    child = os.fork()
    if not child:  # pragma: no cover
        pace.there = 1
        try:
            line.enter()
            os._exit(0 if len(line) == 0 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(line) == 1
    line._dequeue(waits)


# ------------------------------------------------------------------------ without waiting


def test_who_does_not_wait_passes_nobody_by() -> None:
    pace = Permits()
    line = line_of(pace)
    line._try_acquire_in_turn(waits := Waiter(), object, inf)
    line.update_pacer(pace.add, 1)
    with pytest.raises(RateLimited, match="and it does not wait") as caught:
        line.acquire_at(0.0)
    assert caught.value.retry_after == FAR
    line.update_pacer(pace.add, 1)
    line.acquire_at(0.0)
    assert (pace.there, pace.held) == (1, True)
    line._dequeue(waits)
    assert not pace.held


def test_a_signal_in_the_middle_of_counting_is_refused() -> None:
    """What runs then cannot be counted in, and must not wait for the thread that it stopped: its own."""
    line = line_of(Permits(1))
    with line._lock, pytest.raises(RateLimited, match="a signal has come in the middle of counting"):
        line.acquire_at(0.0)
    line.acquire_at(0.0)


def test_what_the_pace_is_asked_is_asked_while_nobody_passes() -> None:
    pace = Permits(3)
    line = line_of(pace)
    assert line.query_pacer(lambda now: (pace.held, line._owned_by_this_thread(), pace.there)) == (
        True,
        True,
        3,
    )
    assert not pace.held
    line._try_acquire_in_turn(Waiter(), object, inf)
    line._try_acquire_in_turn(Waiter(), object, inf)
    line.query_pacer(lambda now: None)
    assert pace.held
