"""Those who wait for an adaptive rate: in order, never under the lock, and a cancelled call says nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from redouble import SYSTEM, AdaptiveRate, errors
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from tests.layers.limits.bulkhead.test_bulkhead_faults import Task, settled
from tests.layers.limits.bulkhead.test_bulkhead_waiting import nothing
from tests.layers.limits.rate.test_adaptive_rate import Throttled, throttled
from tests.layers.limits.rate.test_adaptive_rate_sync_async import WAITING
from tests.layers.limits.rate.test_wait_queue import LOOPS, with_tasks
from tests.runtime.test_cancellation import cancelled
from tests.support.breaker_scripts import SHAPES, Service
from tests.support.bulkhead_callers import A_MINUTE, until
from tests.support.fakes import ASYNC, COLOURS, Boom, in_colour

SLOW = 1e-6  # calls a second: nobody waits for that in a test


def slowed(rate: float) -> Any:
    """Make one that has been throttled just now, and lets calls pass at this rate at first."""
    gate = AdaptiveRate(Throttled, least=rate)
    throttled(gate)
    return gate


@LOOPS
@pytest.mark.parametrize("gone", [[], [0], [1], [3], [0, 1, 3]])
def test_who_is_cancelled_loses_nothing_for_the_others(colour: str, gone: list[int]) -> None:
    came: list[tuple[int, float]] = []

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        gate = slowed(4)

        async def work(number: int) -> None:
            came.append((number, clock.now()))

        tasks: list[Task] = []
        for number in range(4):
            tasks.append(start(partial(gate.call, work, number)))
            await settled(colour)
        assert gate.snapshot()["queued"] == 4
        for number in gone:
            tasks[number].cancel()
            await settled(colour)
        while gate.snapshot()["queued"]:
            await gate.call(nothing)

    with_tasks(colour, main)
    stayed = [number for number in range(4) if number not in gone]
    assert [number for number, _ in came] == stayed
    assert [moment for _, moment in came] == pytest.approx(
        [0.25 * turn for turn in range(1, len(stayed) + 1)]
    )


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", WAITING)
def test_a_cancelled_call_says_nothing(colour: str, shape: str) -> None:
    class Hanging(Service):
        async def acall(self, item: int = 0, *, scale: int = 1) -> int:
            await backend().sleep(1e6)
            return item

    gate: Any = AdaptiveRate(Exception)
    assert cancelled(colour, lambda: SHAPES[shape][1](gate, Hanging())) == "cancelled"
    assert gate.snapshot()["rate"] is None
    assert gate._bucket.meter.count == 0


@pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])
def test_what_is_made_of_a_cancellation_says_nothing_either(colour: str) -> None:
    gate = AdaptiveRate(Exception)

    async def spoilt() -> None:
        try:
            await backend().sleep(1e6)
        finally:
            raise Boom

    cancelled(colour, lambda: gate.call(spoilt))
    assert gate.snapshot()["rate"] is None


@pytest.mark.parametrize("colour", COLOURS)
def test_nobody_waits_under_the_lock(colour: str) -> None:
    """Others can ask it something, and learn, while one waits."""
    gate, came = slowed(SLOW), list[str]()

    async def acome() -> None:
        came.append("came")

    def run() -> None:
        in_colour(colour, lambda: gate.call(came.append, "came"), lambda: gate.call(acome))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: gate.snapshot()["queued"] == 1)
    assert gate._wait_queue._lock.acquire(blocking=False)
    gate._wait_queue._lock.release()
    assert came == []
    gate._bucket._least = 1e6
    gate.ended(None, Boom(), SYSTEM.now())  # an answer, and with it another rate: who waits looks again
    thread.join(A_MINUTE)
    assert came == ["came"]


@pytest.mark.parametrize("colour", ASYNC)
def test_a_blocking_call_never_waits_on_the_thread_of_a_loop(colour: str) -> None:
    gate = slowed(SLOW)

    async def main() -> None:
        with pytest.raises(errors.RateLimited, match="cannot wait on the thread of an event loop"):
            gate.call(int)
        with pytest.raises(errors.RateLimited, match="cannot wait on the thread of an event loop"), gate:
            pass

    in_colour(colour, lambda: None, main)


def test_a_task_is_cut_while_it_waits() -> None:
    gate = slowed(SLOW)

    async def main() -> None:
        with trio.move_on_after(0) as scope:
            await gate.call(nothing)
        assert scope.cancelled_caught

    trio.run(main)
    assert gate.snapshot()["queued"] == 0
