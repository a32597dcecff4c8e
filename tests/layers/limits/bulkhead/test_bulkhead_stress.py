"""A bulkhead under contention: never more calls in flight than the limit, and no slot is lost.

Threads switch every microsecond here.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM, Bulkhead, errors, priority
from redouble._runtime.slots import Lease, Slots
from tests.support.fakes import ASYNC, COLOURS, in_colour
from tests.support.runtime.tasks import gathered
from tests.support.thread_switching import switching

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures(switching.__name__)]

CALLS = 200
A_LITTLE = 0.0005


class Service:
    """The function behind a bulkhead, in both colours; it counts its calls in flight."""

    def __init__(self, gate: Bulkhead) -> None:
        self.gate = gate
        self.in_flight: set[object] = set()
        self.too_many: list[int] = []
        self.admitted: list[None] = []
        self.rejected: list[None] = []
        self.failed: list[BaseException] = []

    def call(self) -> None:
        with suppress(errors.BulkheadFull):
            return self.gate.call(self._occupy)
        return self.rejected.append(None)

    async def acall(self) -> None:
        try:
            await self.gate.call(self._aoccupy)
        except errors.BulkheadFull:
            self.rejected.append(None)

    def _occupy(self) -> None:
        me = object()
        self.in_flight.add(me)
        self._check()
        self.in_flight.discard(me)
        self.admitted.append(None)

    async def _aoccupy(self) -> None:
        me = object()
        self.in_flight.add(me)
        try:
            self._check()
            await SYSTEM.asleep(0)
            self._check()
        finally:
            self.in_flight.discard(me)
        self.admitted.append(None)

    def _check(self) -> None:
        if (now := len(self.in_flight)) > self.gate.limit:
            self.too_many.append(now)

    def everywhere(self, main: Callable[[str], None], colours: tuple[str, ...]) -> None:
        """Run ``main`` on threads of these colours, all at once; check that all slots are free at the end."""
        start = threading.Barrier(len(colours))

        def run(colour: str) -> None:
            start.wait()
            try:
                main(colour)
            except BaseException as error:
                self.failed.append(error)

        threads = [threading.Thread(target=run, args=[colour]) for colour in colours]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.failed
        assert not self.too_many
        assert {**self.gate.snapshot()} == dict.fromkeys(self.gate.snapshot(), 0) | {"limit": self.gate.limit}
        self.gate.reconfigure(self.gate)  # without the claims of refused calls
        tickets = [self.gate.admit(0.0) for _ in range(self.gate.limit)]
        with pytest.raises(errors.BulkheadFull):
            self.gate.admit(0.0)
        for ticket in tickets:
            self.gate.ended(ticket, None, 0.0)


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize(
    ("wait", "queue", "share"),
    [
        (None, None, 0.0),
        (None, None, 0.5),
        (A_LITTLE, None, 0.3),
        (0, None, 0.0),
        (None, 3, 0.3),
        (None, 0, 0.0),
    ],
)
def test_threads_and_tasks_of_all_colours_at_once(
    limit: int, wait: float | None, queue: int | None, share: float
) -> None:
    """A ``share`` of the tasks is cancelled, and some calls are rejected after their wait."""
    service, chance = Service(Bulkhead(limit, wait, queue)), random.Random(limit)

    def main(colour: str) -> None:
        def blocking() -> None:
            for _ in range(CALLS):
                service.call()

        async def waiting() -> None:
            await gathered(colour, [service.acall] * CALLS, lambda: chance.random() < share)

        in_colour(colour, blocking, waiting)

    colours = COLOURS + ("sync",) * 3
    service.everywhere(main, colours)
    finished, started = len(service.admitted) + len(service.rejected), CALLS * len(colours)
    if not share:
        assert finished == started
    assert started - CALLS * len(ASYNC) <= finished <= started
    if wait is queue is None:
        assert not service.rejected


@pytest.mark.parametrize("order", ["fifo", "lifo", "adaptive"])
@pytest.mark.parametrize(
    ("limit", "wait", "queue", "share"),
    [(1, None, 500, 0.0), (2, None, 40, 0.4), (3, A_LITTLE, 10, 0.3), (2, 0, 1, 0.0)],
)
def test_classes_on_threads_and_tasks_of_all_colours_at_once(
    order: Any, limit: int, wait: float | None, queue: int, share: float
) -> None:
    """Each call has a class or none; some are displaced from the queue."""
    shares = {"interactive": 0.5, "batch": 0.2}
    gate = Bulkhead(limit, wait, queue, order=order, shares=shares)
    service, chance = Service(gate), random.Random(limit)
    classes = ["interactive", "batch", "other", None]

    async def acall() -> None:
        with priority(chance.choice(classes)):
            await service.acall()

    def main(colour: str) -> None:
        def blocking() -> None:
            for _ in range(CALLS):
                with priority(chance.choice(classes)):
                    service.call()

        async def waiting() -> None:
            await gathered(colour, [acall] * CALLS, lambda: chance.random() < share)

        in_colour(colour, blocking, waiting)

    colours = COLOURS + ("sync",) * 3
    service.everywhere(main, colours)
    finished, started = len(service.admitted) + len(service.rejected), CALLS * len(colours)
    if not share:
        assert finished == started
    assert started - CALLS * len(ASYNC) <= finished <= started


def test_no_more_calls_wait_than_the_queue_allows() -> None:
    service, seen, over = Service(Bulkhead(1, None, 2)), list[float](), threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(service.gate.snapshot()["queued"])

    def main(colour: str) -> None:
        for _ in range(CALLS * 4):
            service.call()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        service.everywhere(main, ("sync",) * 6)
    finally:
        over.set()
        watching.join()
    assert max(seen) <= 2


# ------------------------------------------------------------------------------ sequences


class Caller(Lease):
    """A lease with its waker, which may report that its waiter no longer exists (``gone``)."""

    def __init__(self, wakes: list[Caller]) -> None:
        self.wakes = wakes
        self.gone = False

    def wake(self) -> bool:
        if not self.gone:
            self.wakes.append(self)
        return not self.gone


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["acquire", "release", "stop_waiting", "vanish"]), st.integers(0, 9))),
)
def test_any_sequence_of_calls_matches_a_model(limit: int, steps: list[tuple[str, int]]) -> None:
    """The model is a list of admitted calls and a list of waiting ones."""
    slots, wakes = Slots(limit), list[Caller]()
    admitted, waiting, woken = list[Caller](), list[Caller](), list[Caller]()
    for step, which in steps:
        if step == "acquire":
            caller = Caller(wakes)
            if slots.try_acquire(caller):
                assert len(admitted) < limit
                admitted.append(caller)
            else:
                waiting.append(caller)
                assert slots.enqueue(caller, caller.wake, inf)
        elif step == "release" and admitted:
            slots.release(admitted.pop(which % len(admitted)))
        elif step == "stop_waiting" and waiting:
            caller = waiting.pop(which % len(waiting))
            assert not slots.stop_waiting(caller)
            slots.release(caller)
        elif step == "vanish" and waiting:
            waiting[which % len(waiting)].gone = True
        while waiting and len(admitted) < limit:
            caller = waiting.pop(0)
            if not caller.gone:
                admitted.append(caller)
                woken.append(caller)
        assert (slots.leases, [*slots.queue]) == ({*admitted}, waiting)
        assert wakes == woken
        assert slots.counts() == (len(admitted), len(waiting))
