"""An adaptive limit that everybody wants at once: never too many inside, and no place is lost.

Threads switch every microsecond in the first half; tasks are cancelled anywhere in the second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import SYSTEM, AdaptiveConcurrency, errors
from tests.layers.limits.bulkhead.test_bulkhead_stress import gathered
from tests.support.fakes import Boom, in_colour
from tests.support.thread_switching import everywhere, switching

SWITCHING = pytest.mark.usefixtures(switching.__name__)

THREADS = 8
CALLS = 300


class Room:
    """What is behind a gate, in both colours: it sees how many are inside."""

    def __init__(self, gate: AdaptiveConcurrency, most: int) -> None:
        self.gate, self.most = gate, most
        self.inside: set[object] = set()
        self.limits: set[int] = set()
        self.too_many: list[int] = []
        self.served: list[None] = []
        self.refused: list[None] = []
        self.number = count()

    def call(self, shape: int = 0) -> None:
        with suppress(Boom, TimeoutError):
            try:
                if shape == 0:
                    self.gate.call(self._visit)
                elif shape == 1:
                    with self.gate:
                        self._visit()
                else:
                    list(self.gate(self._items)())
            except errors.BulkheadFull:
                self.refused.append(None)

    async def acall(self, waits: int = 1) -> None:
        async def avisit() -> None:
            me = self._come()
            try:
                for _ in range(waits):
                    await SYSTEM.asleep(0)
            finally:
                self._go(me)

        with suppress(Boom, TimeoutError):
            try:
                await self.gate.call(avisit)
            except errors.BulkheadFull:
                self.refused.append(None)

    def _visit(self) -> None:
        self._go(self._come())

    def _items(self) -> Any:
        self._visit()
        yield

    def _come(self) -> object:
        me = object()
        self.inside.add(me)
        self.limits.add(self.gate.limit)
        if (now := len(self.inside)) > self.most:
            self.too_many.append(now)
        return me

    def _go(self, me: object) -> None:
        self.inside.discard(me)
        self.served.append(None)
        if next(self.number) % 5 == 0:
            raise Boom if next(self.number) % 2 else TimeoutError

    def check(self, asked: int | None = None) -> None:
        """See that all is well when everybody is gone: all places are there, and no more."""
        assert not self.too_many
        assert asked in (None, len(self.served) + len(self.refused))
        limit = self.gate.limit
        assert self.gate.snapshot() == {"limit": limit, "in_use": 0}
        tickets = [self.gate.admit(0.0) for _ in range(limit)]
        with pytest.raises(errors.BulkheadFull):
            self.gate.admit(0.0)
        for ticket in tickets:
            self.gate.ended(ticket, None, 0.0)


def blocking(room: Room) -> Callable[[str], None]:
    def work(owner: str) -> None:
        for number in range(CALLS):
            room.call(number % 3)

    return work


def looping(room: Room) -> Callable[[str], None]:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CALLS):
                tasks.create_task(room.acall())

    return lambda _: asyncio.run(main())


@SWITCHING
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("works", [(blocking,), (blocking, looping)])
def test_everybody_at_once(limit: int, works: tuple[Callable[[Room], Callable[[str], None]], ...]) -> None:
    room = Room(AdaptiveConcurrency(limit, limit, limit, window=1e-4), limit)
    everywhere(*(work(room) for work in works), threads=THREADS)
    room.check(THREADS * CALLS)


@SWITCHING
@pytest.mark.parametrize("by", ["gradient", "vegas", "aimd"])
def test_while_the_limit_changes_all_the_time(by: Any) -> None:
    """By every window, and every window is over as soon as there is enough in it."""
    gate = AdaptiveConcurrency(4, 2, 6, by, window=1e-6, relearn=1e-5, slow=1e-5, on=Exception)
    room = Room(gate, 6)
    everywhere(blocking(room), looping(room), threads=THREADS)
    blocking(room)("alone, and so never refused")
    room.check((THREADS + 1) * CALLS)
    assert {2, 4} <= room.limits <= {2, 3, 4, 5, 6}


# ------------------------------------------------------------------------- cancellations


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@settings(max_examples=25)
@given(
    limit=st.integers(1, 4),
    waits=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
    share=st.sampled_from([0.3, 0.7, 1.0]),
)
def test_random_cancellations_lose_no_place(
    colour: str, limit: int, waits: list[int], seed: int, share: float
) -> None:
    room, chance = Room(AdaptiveConcurrency(limit, limit, limit), limit), random.Random(seed)

    def visiting(times: int) -> Callable[[], Any]:
        return lambda: room.acall(times)

    async def main() -> None:
        await gathered(colour, [visiting(times) for times in waits], lambda: chance.random() < share)

    in_colour(colour, lambda: None, main)
    assert not room.inside
    room.check()


@given(st.lists(st.tuples(st.sampled_from(["come", "good", "bad", "cancelled"]), st.integers(0, 9))))
@settings(max_examples=50)
def test_any_sequence(steps: list[tuple[str, int]]) -> None:
    """It does what a list of who is inside would do, whatever the limit is by then."""
    gate, inside = AdaptiveConcurrency(2, 1, 4, window=0.5, on=Boom), list[Any]()
    ends: dict[str, BaseException | None] = {"good": None, "bad": Boom(), "cancelled": GeneratorExit()}
    for now, (step, which) in enumerate(steps):
        if step != "come":
            if inside:
                gate.ended(inside.pop(which % len(inside)), ends[step], float(now))
        elif len(inside) < gate.limit:
            inside.append(gate.admit(float(now)))
        else:
            with pytest.raises(errors.BulkheadFull):
                gate.admit(float(now))
        assert gate.snapshot() == {"limit": gate.limit, "in_use": len(inside)}
        assert 1 <= gate.limit <= 4
