"""One bulkhead for threads and event loops at once: one limit, and one queue."""

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
from tests.support.streams import Reader, until_closed


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_one_limit_for_all_colours(limit: int) -> None:
    """Of two callers of every colour ``limit`` are admitted, and one more for each that ends."""
    with callers(Bulkhead(limit, None)) as group:
        all_callers = [group.start(colour) for colour in COLOURS * 2]
        rest = len(all_callers) - limit
        assert group.used() == (limit, rest)
        until(lambda: len(group.admitted) == limit)
        for ended in range(1, rest + 1):
            next(caller for caller in all_callers if caller.name == group.admitted[ended - 1]).finish()
            until(lambda ended=ended: len(group.admitted) == limit + ended)  # type: ignore[misc]
            assert group.used() == (limit, rest - ended)
        assert all(caller.error is None for caller in all_callers)


@pytest.mark.parametrize("seed", range(3))
def test_first_come_first_served_across_colours(seed: int) -> None:
    colours = [*COLOURS, *COLOURS]
    random.Random(seed).shuffle(colours)
    gate = Bulkhead(1, None)
    with callers(gate) as group:
        first = gate.admit(0.0)
        all_callers = [group.start(colour) for colour in colours]
        assert group.used() == (1, len(colours))
        gate.ended(first, None, 0.0)
        for number, caller in enumerate(all_callers, 1):
            until(lambda number=number: len(group.admitted) == number)  # type: ignore[misc]
            assert group.admitted[-1] == caller.name
            assert group.used() == (1, len(colours) - number)
            caller.finish()
    assert group.admitted == [caller.name for caller in all_callers]


@pytest.mark.parametrize("first", COLOURS)
@pytest.mark.parametrize("queue", [0, 1, 3])
def test_a_full_queue_rejects_further_calls(first: str, queue: int) -> None:
    with callers(Bulkhead(1, None, queue)) as group:
        inside = group.start(first)
        for colour in COLOURS[:queue]:
            assert group.start(colour).error is None
        for colour in COLOURS:
            error = group.start(colour).error
            assert isinstance(error, errors.BulkheadFull)
            waiting = "1 is" if queue == 1 else f"{queue} are"
            assert str(error).endswith(f"and {waiting} waiting already" if queue else "and no call may wait")
        assert group.used() == (1, queue)
        inside.finish()
        until(lambda: group.used() == (min(1, queue), max(0, queue - 1)))
        assert group.start(first).error is None, "the queue is no longer full"


@pytest.mark.parametrize("colour", ASYNC)
def test_many_tasks_of_one_loop(colour: str) -> None:
    """Never more than the limit in flight, and all are admitted in order of arrival."""
    gate, admitted, in_flight, most = Bulkhead(3, None), list[int](), set[int](), list[int]()

    @gate
    async def work(number: int) -> None:
        admitted.append(number)
        in_flight.add(number)
        most.append(len(in_flight))
        await SYSTEM.asleep(0)
        in_flight.discard(number)

    async def in_asyncio() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(work(number))

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(work, number)

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)
    assert sorted(admitted) == list(range(50))
    if colour != "trio":  # Trio starts its tasks in random order
        assert admitted == sorted(admitted)
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
        use(gate)  # a free slot needs no waiting
        with gate, pytest.raises(errors.BulkheadFull) as caught:
            use(gate)
        why = (
            "it does not wait" if wait == 0 else "a blocking call cannot wait on the thread of an event loop"
        )
        assert str(caught.value).endswith(f", and {why}")

    in_colour(colour, lambda: None, main)
    assert gate.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


@pytest.mark.parametrize("colour", ASYNC)
def test_a_blocking_call_waits_on_a_worker_thread(colour: str) -> None:
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
def test_a_blocking_call_waits_if_the_current_loop_is_not_running(colour: str) -> None:
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


def test_a_collected_generator_releases_its_slot(colour: str) -> None:
    """The generators are in reference cycles, so that only the garbage collector closes them."""
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
def test_a_stream_holds_its_slot_while_it_is_open(colour: str, reader: Reader) -> None:
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
        await until_closed(colour)
        assert gate.snapshot()["in_use"] == 0

    def blocking() -> None:
        reader.read(gate(items), [])

    in_colour(colour, blocking, waiting)
    assert set(used) == {1}
    assert gate.snapshot()["in_use"] == 0


@pytest.mark.parametrize("after", [1, 2])
def test_a_stream_whose_close_raises_releases_its_slot(colour: str, after: int) -> None:
    gate = Bulkhead(1, 0)

    def failing() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def afailing() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def waiting() -> None:
        await Reader("close", after).aread(gate(afailing), [])

    with pytest.raises(Boom):
        in_colour(colour, lambda: Reader("close", after).read(gate(failing), []), waiting)
    assert gate.snapshot()["in_use"] == 0
