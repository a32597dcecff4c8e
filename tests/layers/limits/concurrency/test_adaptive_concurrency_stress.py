"""An adaptive limit under contention: never more calls in flight than the limit, and none miscounted.

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
from tests.support.fakes import Boom, in_colour
from tests.support.runtime.tasks import gathered
from tests.support.thread_switching import run_in_threads, switching

pytestmark = pytest.mark.stress

SWITCHING = pytest.mark.usefixtures(switching.__name__)

THREADS = 8
CALLS = 300


class Service:
    """The function behind a gate, in both colours; it counts its calls in flight."""

    def __init__(self, gate: AdaptiveConcurrency, most: int) -> None:
        self.gate, self.most = gate, most
        self.in_flight: set[object] = set()
        self.limits: set[int] = set()
        self.too_many: list[int] = []
        self.finished: list[None] = []
        self.rejected: list[None] = []
        self.number = count()

    def call(self, shape: int = 0) -> None:
        with suppress(Boom, TimeoutError):
            try:
                if shape == 0:
                    self.gate.call(self._occupy)
                elif shape == 1:
                    with self.gate:
                        self._occupy()
                else:
                    list(self.gate(self._items)())
            except errors.BulkheadFull:
                self.rejected.append(None)

    async def acall(self, waits: int = 1) -> None:
        async def occupy() -> None:
            me = self._begin()
            try:
                for _ in range(waits):
                    await SYSTEM.asleep(0)
            finally:
                self._end(me)

        with suppress(Boom, TimeoutError):
            try:
                await self.gate.call(occupy)
            except errors.BulkheadFull:
                self.rejected.append(None)

    def _occupy(self) -> None:
        self._end(self._begin())

    def _items(self) -> Any:
        self._occupy()
        yield

    def _begin(self) -> object:
        me = object()
        self.in_flight.add(me)
        self.limits.add(self.gate.limit)
        if (now := len(self.in_flight)) > self.most:
            self.too_many.append(now)
        return me

    def _end(self, me: object) -> None:
        self.in_flight.discard(me)
        self.finished.append(None)
        if next(self.number) % 5 == 0:
            raise Boom if next(self.number) % 2 else TimeoutError

    def check(self, calls: int | None = None) -> None:
        """Check that no call is in flight, and that exactly ``limit`` calls are admitted now."""
        assert not self.too_many
        assert calls in (None, len(self.finished) + len(self.rejected))
        limit = self.gate.limit
        assert {**self.gate.snapshot()} == dict.fromkeys(self.gate.snapshot(), 0) | {"limit": limit}
        self.gate.reconfigure(self.gate)  # without the claims of refused calls
        tickets = [self.gate.admit(0.0) for _ in range(limit)]
        with pytest.raises(errors.BulkheadFull):
            self.gate.admit(0.0)
        for ticket in tickets:
            self.gate.ended(ticket, None, 0.0)


def blocking(service: Service) -> Callable[[str], None]:
    def work(owner: str) -> None:
        for number in range(CALLS):
            service.call(number % 3)

    return work


def looping(service: Service) -> Callable[[str], None]:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CALLS):
                tasks.create_task(service.acall())

    return lambda _: asyncio.run(main())


SHARES = {"interactive": 0.5, "batch": 0.2}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"queue": 5, "wait": None, "order": "adaptive"},
    {"queue": 1000, "wait": 0.001, "shares": SHARES, "priority": "batch"},
    {"shares": SHARES},
]


@SWITCHING
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("works", [(blocking,), (blocking, looping)])
def test_threads_and_tasks_at_once(
    limit: int, works: tuple[Callable[[Service], Callable[[str], None]], ...], options: dict[str, Any]
) -> None:
    service = Service(AdaptiveConcurrency(limit, limit, limit, window=1e-4, **options), limit)
    run_in_threads(*(work(service) for work in works), threads=THREADS)
    service.check(THREADS * CALLS)


@SWITCHING
@pytest.mark.parametrize("options", OPTIONS[:2])
@pytest.mark.parametrize("by", ["gradient", "vegas", "aimd"])
def test_no_call_is_miscounted_while_the_limit_changes(by: Any, options: dict[str, Any]) -> None:
    """Every window changes the limit, and ends as soon as it has enough samples."""
    gate = AdaptiveConcurrency(4, 2, 6, by, window=1e-6, relearn=1e-5, slow=1e-5, on=Exception, **options)
    service = Service(gate, 6)
    run_in_threads(blocking(service), looping(service), threads=THREADS)
    blocking(service)("alone, and so never rejected")
    service.check((THREADS + 1) * CALLS)
    assert {2, 4} <= service.limits <= {2, 3, 4, 5, 6}


# ------------------------------------------------------------------------- cancellations


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@settings(max_examples=25)
@given(
    limit=st.integers(1, 4),
    waits=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
    share=st.sampled_from([0.3, 0.7, 1.0]),
)
def test_no_call_is_miscounted_by_random_cancellations(
    colour: str, limit: int, waits: list[int], seed: int, share: float
) -> None:
    service, chance = Service(AdaptiveConcurrency(limit, limit, limit), limit), random.Random(seed)

    def calling(times: int) -> Callable[[], Any]:
        return lambda: service.acall(times)

    async def main() -> None:
        await gathered(colour, [calling(times) for times in waits], lambda: chance.random() < share)

    in_colour(colour, lambda: None, main)
    assert not service.in_flight
    service.check()


@given(st.lists(st.tuples(st.sampled_from(["admit", "good", "bad", "cancelled"]), st.integers(0, 9))))
@settings(max_examples=50)
def test_any_sequence_of_calls_matches_a_model(steps: list[tuple[str, int]]) -> None:
    """The model is a list of the calls in flight; the limit may change at every step."""
    gate, in_flight = AdaptiveConcurrency(2, 1, 4, window=0.5, on=Boom), list[Any]()
    ends: dict[str, BaseException | None] = {"good": None, "bad": Boom(), "cancelled": GeneratorExit()}
    for now, (step, which) in enumerate(steps):
        if step != "admit":
            if in_flight:
                gate.ended(in_flight.pop(which % len(in_flight)), ends[step], float(now))
        elif len(in_flight) < gate.limit:
            in_flight.append(gate.admit(float(now)))
        else:
            with pytest.raises(errors.BulkheadFull):
                gate.admit(float(now))
        assert gate.snapshot() == {"limit": gate.limit, "in_use": len(in_flight)}
        assert 1 <= gate.limit <= 4
