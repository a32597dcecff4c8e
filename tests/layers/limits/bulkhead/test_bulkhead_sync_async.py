"""One bulkhead for threads and event loops at once: one cap, and one queue."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import trio

from redouble import SYSTEM, Bulkhead, errors
from tests.support.bulkhead_callers import callers, until
from tests.support.fakes import ASYNC, COLOURS, SYNC, Boom, in_colour
from tests.support.streams import Reader


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_one_cap_for_all_colours(limit: int) -> None:
    """Two of every colour come; as many are inside as may be, and one comes for each that leaves."""
    with callers(Bulkhead(limit, None)) as guests:
        everybody = [guests.start(colour) for colour in COLOURS * 2]
        rest = len(everybody) - limit
        assert guests.used() == (limit, rest)
        until(lambda: len(guests.admitted) == limit)
        for gone in range(1, rest + 1):
            next(guest for guest in everybody if guest.name == guests.admitted[gone - 1]).finish()
            until(lambda gone=gone: len(guests.admitted) == limit + gone)  # type: ignore[misc]
            assert guests.used() == (limit, rest - gone)
        assert all(guest.error is None for guest in everybody)


@pytest.mark.parametrize("seed", range(3))
def test_first_come_first_served_across_colours(seed: int) -> None:
    colours = [*COLOURS, *COLOURS]
    random.Random(seed).shuffle(colours)
    gate = Bulkhead(1, None)
    with callers(gate) as guests:
        first = gate.admit(0.0)
        everybody = [guests.start(colour) for colour in colours]
        assert guests.used() == (1, len(colours))
        gate.ended(first, None, 0.0)
        for number, guest in enumerate(everybody, 1):
            until(lambda number=number: len(guests.admitted) == number)  # type: ignore[misc]
            assert guests.admitted[-1] == guest.name
            assert guests.used() == (1, len(colours) - number)
            guest.finish()
    assert guests.admitted == [guest.name for guest in everybody]


@pytest.mark.parametrize("first", COLOURS)
@pytest.mark.parametrize("queue", [0, 1, 3])
def test_so_many_may_wait(first: str, queue: int) -> None:
    with callers(Bulkhead(1, None, queue)) as guests:
        inside = guests.start(first)
        for colour in COLOURS[:queue]:
            assert guests.start(colour).error is None
        for colour in COLOURS:
            error = guests.start(colour).error
            assert isinstance(error, errors.BulkheadFull)
            assert str(error).endswith(f"and {queue} wait already" if queue else "and no call may wait")
        assert guests.used() == (1, queue)
        inside.finish()
        until(lambda: guests.used() == (min(1, queue), max(0, queue - 1)))
        assert guests.start(first).error is None, "there is room again"


@pytest.mark.parametrize("colour", ASYNC)
def test_many_tasks_of_one_loop(colour: str) -> None:
    """Never more than the limit inside, all served, and in the order in which they came."""
    gate, came, inside, most = Bulkhead(3, None), list[int](), set[int](), list[int]()

    @gate
    async def work(number: int) -> None:
        came.append(number)
        inside.add(number)
        most.append(len(inside))
        await SYSTEM.asleep(0)
        inside.discard(number)

    async def in_asyncio() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(work(number))

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(work, number)

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)
    assert sorted(came) == list(range(50))
    if colour != "trio":  # which begins its tasks in no order
        assert came == sorted(came)
    assert max(most) == 3
    assert gate.snapshot() == {"limit": 3, "in_use": 0, "queued": 0}


# --------------------------------------------------- a blocking call on the thread of a loop


def nothing() -> None: ...


def no_items() -> Iterator[None]:
    yield from ()


def with_statement(gate: Bulkhead) -> None:
    with gate:
        pass


BLOCKING: list[Callable[[Bulkhead], object]] = [
    lambda gate: gate.call(nothing),
    lambda gate: gate(nothing)(),
    lambda gate: list(gate(no_items)()),
    with_statement,
]


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("wait", [None, 0, 1000])
@pytest.mark.parametrize("use", BLOCKING)
def test_a_blocking_call_never_waits_on_the_thread_of_a_loop(
    colour: str, wait: float | None, use: Callable[[Bulkhead], object]
) -> None:
    gate = Bulkhead(1, wait)

    async def main() -> None:
        use(gate)  # with a place to be had it is as good as any
        with gate, pytest.raises(errors.BulkheadFull) as caught:
            use(gate)
        why = (
            "it does not wait" if wait == 0 else "a blocking call cannot wait on the thread of an event loop"
        )
        assert str(caught.value).endswith(f", and {why}")

    in_colour(colour, lambda: None, main)
    assert gate.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


@pytest.mark.parametrize("colour", ASYNC)
def test_it_waits_on_another_thread(colour: str) -> None:
    gate = Bulkhead(1, None)

    async def main() -> None:
        ticket = gate.admit(0.0)

        def free() -> None:
            until(lambda: gate.snapshot()["queued"] == 1)
            gate.ended(ticket, None, 0.0)

        if colour == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, free)
                assert await trio.to_thread.run_sync(gate.call, int) == 0
        else:
            freed = asyncio.create_task(asyncio.to_thread(free))
            assert await asyncio.to_thread(gate.call, int) == 0
            await freed

    in_colour(colour, lambda: None, main)


@pytest.mark.parametrize("colour", SYNC)
def test_a_loop_that_is_set_and_does_not_run_is_none(colour: str) -> None:
    gate = Bulkhead(1, 0.001)

    def blocking() -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            with gate, pytest.raises(errors.BulkheadFull, match=r"no slot came free within 0\.001 s"):
                gate.call(int)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    in_colour(colour, blocking, lambda: asyncio.sleep(0))


# ------------------------------------------------------------------------------- streams


def test_generators_in_a_cycle(colour: str) -> None:
    """Nobody closes them but the collector."""
    gate = Bulkhead(3, 0)

    @gate
    def items(own: list[object]) -> Iterator[int]:
        yield 1
        own.append(None)

    def leak() -> None:
        own = list[object]()
        stream = items(own)
        own.append(stream)
        next(stream)

    def blocking() -> None:
        gc.disable()
        try:
            for _ in range(3):
                leak()
            with pytest.raises(errors.BulkheadFull):
                leak()
        finally:
            gc.enable()
        gc.collect()
        assert gate.snapshot()["in_use"] == 0
        leak()
        gc.collect()

    async def waiting() -> None:
        blocking()

    in_colour(colour, blocking, waiting)
    assert gate.snapshot()["in_use"] == 0


@pytest.mark.parametrize("reader", [Reader(), *(Reader(way) for way in ("break", "close", "drop"))])
def test_a_stream_holds_its_place_while_it_is_open(colour: str, reader: Reader) -> None:
    gate, used = Bulkhead(1, 0), list[float]()

    def items() -> Iterator[int]:
        for number in range(3):
            used.append(gate.snapshot()["in_use"])
            yield number

    async def aitems() -> AsyncIterator[int]:
        for item in items():
            yield item

    async def waiting() -> None:
        await reader.aread(gate(aitems), [])
        gc.collect()
        assert gate.snapshot()["in_use"] == 0

    def blocking() -> None:
        reader.read(gate(items), [])

    in_colour(colour, blocking, waiting)
    assert set(used) == {1}
    assert gate.snapshot()["in_use"] == 0


@pytest.mark.parametrize("after", [1, 2])
def test_a_stream_that_cannot_be_closed(colour: str, after: int) -> None:
    gate = Bulkhead(1, 0)

    def spoilt() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def aspoilt() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def waiting() -> None:
        await Reader("close", after).aread(gate(aspoilt), [])

    with pytest.raises(Boom):
        in_colour(colour, lambda: Reader("close", after).read(gate(spoilt), []), waiting)
    assert gate.snapshot()["in_use"] == 0
