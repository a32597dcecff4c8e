"""`Coalesce` under contention: at most one call of a key is in flight, and every caller gets its outcome.

Threads switch every microsecond here.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM, Coalesce
from redouble._layers.results.flight import FlightTable
from tests.support.fakes import ASYNC, COLOURS, Boom, in_colour
from tests.support.runtime.tasks import gathered
from tests.support.thread_switching import switching

KEYS, CALLS = 3, 150


class Service:
    """A function that fails at times, and counts its calls in flight for each key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = Counter[int]()
        self.too_many: list[int] = []
        self.ended: list[None] = []

    def enter(self, key: int) -> None:
        with self.lock:
            self.running[key] += 1
            if self.running[key] > 1:
                self.too_many.append(key)

    def leave(self, key: int) -> None:
        with self.lock:
            self.running[key] -= 1

    def fetch(self, key: int) -> int:
        self.enter(key)
        try:
            return self.answer(key)
        finally:
            self.leave(key)

    async def afetch(self, key: int) -> int:
        self.enter(key)
        try:
            await SYSTEM.asleep(0)
            return self.answer(key)
        finally:
            self.leave(key)

    def answer(self, key: int) -> int:
        if random.random() < 0.2:
            raise Boom
        return key


@pytest.mark.stress
@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_threads_and_tasks_of_all_colours_at_once(share: float) -> None:
    """A ``share`` of the tasks is cancelled; all loops share the calls of the async function."""
    coalesce, blocking, aio = Coalesce(), Service(), Service()
    fn, afn = coalesce(blocking.fetch), coalesce(aio.afetch)
    failed: list[BaseException] = []

    def works() -> None:
        for number in range(CALLS):
            with suppress(Boom):
                assert fn(number % KEYS) == number % KEYS
            blocking.ended.append(None)

    async def call() -> None:
        key = random.randrange(KEYS)
        with suppress(Boom):
            assert await afn(key) == key
        aio.ended.append(None)

    def run(colour: str) -> None:
        async def waiting() -> None:
            await gathered(colour, [call] * CALLS, lambda: random.random() < share)

        try:
            in_colour(colour, works, waiting)
        except BaseException as error:
            failed.append(error)

    colours = (*COLOURS, *ASYNC, "sync", "sync")
    threads = [threading.Thread(target=run, args=[colour], daemon=True) for colour in colours]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not failed
    assert not blocking.too_many
    assert not aio.too_many
    assert len(blocking.ended) == CALLS * sum(colour not in ASYNC for colour in colours)
    if not share:
        assert len(aio.ended) == CALLS * sum(colour in ASYNC for colour in colours)
    assert coalesce.snapshot() == {"in_flight": 0, "waiting": 0}


# ------------------------------------------------------------------------------- sequences


STEPS = st.lists(
    st.tuples(st.sampled_from(["call", "end", "fail", "close"]), st.integers(0, 2), st.integers(0, 9)),
    max_size=40,
)


@given(STEPS)
def test_any_sequence_of_calls_matches_a_model(steps: list[tuple[str, int, int]]) -> None:
    """The model is the list of callers of each key; the first of them is in flight."""
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, int, int]]) -> None:
    coalesce, ends = Coalesce(), dict[int, asyncio.Future[object]]()
    running, most = Counter[int](), Counter[int]()
    present: dict[int, list[asyncio.Task[object]]] = {0: [], 1: [], 2: []}
    serial = 0

    @coalesce
    async def fetch(key: int) -> object:
        running[key] += 1
        most[key] = max(most[key], running[key])
        ends[key] = asyncio.get_running_loop().create_future()
        try:
            return await ends[key]
        finally:
            running[key] -= 1

    async def settled() -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    for step, key, which in steps:
        callers = present[key]
        if step == "call":
            callers.append(asyncio.ensure_future(fetch(key)))
        elif callers and step == "close":
            closed = callers.pop(which % len(callers))
            closed.cancel()
            await settled()
            assert closed.cancelled()
        elif callers:
            serial += 1
            if step == "end":
                ends[key].set_result(serial)
            else:
                ends[key].set_exception(Boom(str(serial)))
            await settled()
            for caller in callers:
                error = caller.exception()
                assert (caller.result() if error is None else int(str(error))) == serial
            callers.clear()
        await settled()
        expected = {name: min(len(tasks), 1) for name, tasks in present.items()}
        assert {name: running[name] for name in present} == expected
        waiting = sum(max(len(tasks) - 1, 0) for tasks in present.values())
        assert coalesce.snapshot() == {"in_flight": sum(expected.values()), "waiting": waiting}
    for tasks in present.values():
        for task in tasks:
            task.cancel()
        await settled()
    assert max(most.values(), default=0) <= 1
    assert coalesce.snapshot() == {"in_flight": 0, "waiting": 0}


def test_a_table_can_be_referred_to_weakly() -> None:
    """The tables of functions that no longer exist are gone."""
    coalesce = Coalesce()
    assert isinstance(coalesce._table_of(len), FlightTable)
    assert len(coalesce._tables) == 0
