"""Waiting for an adaptive rate: in order, and never under the lock; a cancelled call is not counted."""

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
from tests.support.bulkhead_callers import A_MINUTE, until
from tests.support.fakes import ASYNC, COLOURS, Boom, in_colour, nothing
from tests.support.layers.breaker_scripts import SHAPES, WAITING_SHAPES, Service
from tests.support.layers.limits.adaptive_rates import Throttled, throttled
from tests.support.layers.limits.wait_queues import LOOPS, with_tasks
from tests.support.runtime.cancellation import cancelled
from tests.support.runtime.tasks import Task, settled

SLOW = 1e-6  # calls a second: no test waits for the next permit


def slowed(rate: float) -> Any:
    """Return a gate that was throttled just now, and has this rate at first."""
    gate = AdaptiveRate(Throttled, least=rate)
    throttled(gate)
    return gate


@LOOPS
@pytest.mark.parametrize("leaving", [[], [0], [1], [3], [0, 1, 3]])
def test_waiters_advance_when_others_are_cancelled(colour: str, leaving: list[int]) -> None:
    passed: list[tuple[int, float]] = []

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        gate = slowed(4)

        async def work(number: int) -> None:
            passed.append((number, clock.now()))

        tasks: list[Task] = []
        for number in range(4):
            tasks.append(start(partial(gate.call, work, number)))
            await settled(colour)
        assert gate.snapshot()["queued"] == 4
        for number in leaving:
            tasks[number].cancel()
            await settled(colour)
        while gate.snapshot()["queued"]:
            await gate.call(nothing)

    with_tasks(colour, main)
    stayed = [number for number in range(4) if number not in leaving]
    assert [number for number, _ in passed] == stayed
    assert [moment for _, moment in passed] == pytest.approx(
        [0.25 * turn for turn in range(1, len(stayed) + 1)]
    )


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", WAITING_SHAPES)
def test_a_cancelled_call_is_not_counted(colour: str, shape: str) -> None:
    class Hanging(Service):
        async def acall(self, item: int = 0, *, scale: int = 1) -> int:
            await backend().sleep(1e6)
            return item

    gate: Any = AdaptiveRate(Exception)
    assert cancelled(colour, lambda: SHAPES[shape][1](gate, Hanging())) == "cancelled"
    assert gate.snapshot()["rate"] is None
    assert gate._bucket.meter.count == 0


@pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])
def test_an_error_raised_from_a_cancellation_is_not_counted(colour: str) -> None:
    gate = AdaptiveRate(Exception)

    async def failing() -> None:
        try:
            await backend().sleep(1e6)
        finally:
            raise Boom

    cancelled(colour, lambda: gate.call(failing))
    assert gate.snapshot()["rate"] is None


@pytest.mark.parametrize("colour", COLOURS)
def test_no_call_waits_under_the_lock(colour: str) -> None:
    """While a call waits, others can read the snapshot and record how they ended."""
    gate, passed = slowed(SLOW), list[str]()

    async def awork() -> None:
        passed.append("passed")

    def run() -> None:
        in_colour(colour, lambda: gate.call(passed.append, "passed"), lambda: gate.call(awork))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: gate.snapshot()["queued"] == 1)
    assert gate._wait_queue._lock.acquire(blocking=False)
    gate._wait_queue._lock.release()
    assert passed == []
    gate._bucket._least = 1e6
    gate.ended(None, Boom(), SYSTEM.now())  # changes the rate, so that the waiter checks again
    thread.join(A_MINUTE)
    assert passed == ["passed"]


@pytest.mark.parametrize("colour", ASYNC)
def test_a_blocking_call_never_waits_on_the_thread_of_a_loop(colour: str) -> None:
    gate = slowed(SLOW)

    async def main() -> None:
        with pytest.raises(errors.RateLimited, match="cannot wait on the thread of an event loop"):
            gate.call(int)
        with pytest.raises(errors.RateLimited, match="cannot wait on the thread of an event loop"), gate:
            pass

    in_colour(colour, lambda: None, main)


def test_a_waiting_task_can_be_cancelled() -> None:
    gate = slowed(SLOW)

    async def main() -> None:
        with trio.move_on_after(0) as scope:
            await gate.call(nothing)
        assert scope.cancelled_caught

    trio.run(main)
    assert gate.snapshot()["queued"] == 0
