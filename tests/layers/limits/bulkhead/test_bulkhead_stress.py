"""A bulkhead that everybody wants at once: never too many inside, and no place is lost.

Threads switch every microsecond here.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM, Bulkhead, errors
from redouble._layers.limits import slots as _places
from tests.support.fakes import ASYNC, COLOURS, in_colour

CALLS = 200
A_LITTLE = 0.0005


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Switch threads every microsecond."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class Room:
    """What is behind a gate, in both colours: it sees who is inside."""

    def __init__(self, gate: Bulkhead) -> None:
        self.gate = gate
        self.inside: set[object] = set()
        self.too_many: list[int] = []
        self.served: list[None] = []
        self.refused: list[None] = []
        self.wrong: list[BaseException] = []

    def call(self) -> None:
        with suppress(errors.BulkheadFull):
            return self.gate.call(self._visit)
        return self.refused.append(None)

    async def acall(self) -> None:
        try:
            await self.gate.call(self._avisit)
        except errors.BulkheadFull:
            self.refused.append(None)

    def _visit(self) -> None:
        me = object()
        self.inside.add(me)
        self._look()
        self.inside.discard(me)
        self.served.append(None)

    async def _avisit(self) -> None:
        me = object()
        self.inside.add(me)
        try:
            self._look()
            await SYSTEM.asleep(0)
            self._look()
        finally:
            self.inside.discard(me)
        self.served.append(None)

    def _look(self) -> None:
        if (now := len(self.inside)) > self.gate.limit:
            self.too_many.append(now)

    def everywhere(self, main: Callable[[str], None], colours: tuple[str, ...]) -> None:
        """Run it on threads of these colours, all starting at once, and see that all is well at the end."""
        start = threading.Barrier(len(colours))

        def run(colour: str) -> None:
            start.wait()
            try:
                main(colour)
            except BaseException as error:
                self.wrong.append(error)

        threads = [threading.Thread(target=run, args=[colour]) for colour in colours]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.wrong
        assert not self.too_many
        assert self.gate.snapshot() == {"limit": self.gate.limit, "in_use": 0, "queued": 0}
        tickets = [self.gate.admit(0.0) for _ in range(self.gate.limit)]
        with pytest.raises(errors.BulkheadFull):
            self.gate.admit(0.0)
        for ticket in tickets:
            self.gate.ended(ticket, None, 0.0)


async def gathered(colour: str, works: list[Callable[[], Any]], cancelled: Callable[[], bool]) -> None:
    """Do all at once, and cancel some of them at some moment."""
    if colour == "trio":
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in works]

            async def scoped(scope: trio.CancelScope, work: Callable[[], Any]) -> None:
                with scope:
                    await work()

            for scope, work in zip(scopes, works, strict=True):
                nursery.start_soon(scoped, scope, work)
            for scope in scopes:
                await trio.lowlevel.checkpoint()
                if cancelled():
                    scope.cancel()
    else:
        tasks = [asyncio.ensure_future(work()) for work in works]
        for task in tasks:
            await asyncio.sleep(0)
            if cancelled():
                task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError)


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
def test_everybody_at_once(limit: int, wait: float | None, queue: int | None, share: float) -> None:
    """Threads and loops, some of whose tasks are cancelled (``share``), and some who wait in vain."""
    room, chance = Room(Bulkhead(limit, wait, queue)), random.Random(limit)

    def main(colour: str) -> None:
        def blocking() -> None:
            for _ in range(CALLS):
                room.call()

        async def waiting() -> None:
            await gathered(colour, [room.acall] * CALLS, lambda: chance.random() < share)

        in_colour(colour, blocking, waiting)

    colours = COLOURS + ("sync",) * 3
    room.everywhere(main, colours)
    came, asked = len(room.served) + len(room.refused), CALLS * len(colours)
    if not share:
        assert came == asked
    assert asked - CALLS * len(ASYNC) <= came <= asked
    if wait is queue is None:
        assert not room.refused


def test_no_more_wait_than_may() -> None:
    room, seen, over = Room(Bulkhead(1, None, 2)), list[float](), threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(room.gate.snapshot()["queued"])

    def main(colour: str) -> None:
        for _ in range(CALLS * 4):
            room.call()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        room.everywhere(main, ("sync",) * 6)
    finally:
        over.set()
        watching.join()
    assert max(seen) <= 2


# ------------------------------------------------------------------------------ sequences


class Caller(_places.Lease):
    """One that comes, waits and leaves, and has a bell that may fall silent."""

    def __init__(self, log: list[Caller]) -> None:
        self.log = log
        self.deaf = False

    def ring(self) -> bool:
        if not self.deaf:
            self.log.append(self)
        return not self.deaf


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["come", "leave", "quit", "deafen"]), st.integers(0, 9))),
)
def test_any_sequence(limit: int, steps: list[tuple[str, int]]) -> None:
    """It does what a list of who is inside and a list of who waits would do."""
    places, log = _places.Slots(limit), list[Caller]()
    inside, waiting, served = list[Caller](), list[Caller](), list[Caller]()
    for step, which in steps:
        if step == "come":
            caller = Caller(log)
            if places.try_acquire(caller):
                assert len(inside) < limit
                inside.append(caller)
            else:
                waiting.append(caller)
                assert places.enqueue(caller, caller.ring, inf)
        elif step == "leave" and inside:
            places.release(inside.pop(which % len(inside)))
        elif step == "quit" and waiting:
            caller = waiting.pop(which % len(waiting))
            assert not places.stop_waiting(caller)
            places.release(caller)
        elif step == "deafen" and waiting:
            waiting[which % len(waiting)].deaf = True
        while waiting and len(inside) < limit:
            caller = waiting.pop(0)
            if not caller.deaf:
                inside.append(caller)
                served.append(caller)
        assert (places.leases, [*places.queue]) == ({*inside}, waiting)
        assert log == served
        assert places.counts() == (len(inside), len(waiting))
