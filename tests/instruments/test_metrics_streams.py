"""A stream is counted as one call, with its attempts, first item and end; a cancelled one is not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

import pytest

from redouble import SYSTEM, Retry
from redouble.instruments import memory
from redouble.instruments.memory import Metrics, Summary
from tests.support.fakes import ASYNC, Boom, Panic, Virtual, in_colour
from tests.support.instruments.counts import NAME, counts, policy
from tests.support.scripted import cancelled_in
from tests.support.streams import SHAPES, Reader, ScriptedSource, Source, Takes, until_closed

WELL: dict[str, float] = {"calls true": 1, "attempts none ok": 1}
AGAIN = WELL | {"attempts unknown failed": 1, "retries unknown": 1}


def lost(reason: str, attempts: int = 1) -> dict[str, float]:
    told: dict[str, float] = {"calls false": 1, "attempts unknown failed": attempts}
    if attempts > 1:
        told["retries unknown"] = attempts - 1
    return told | {"errors ScriptedError": 1, f"given_up {reason}": 1}


# The script of the streams, the reader, the expected counts, and the time to the first item.
ROWS: list[tuple[Sequence[Source], Reader, dict[str, float], float | None]] = [
    ([[1, 2]], Reader(), WELL, 0),
    ([[]], Reader(), WELL, None),
    ([[Takes(2), "fail"], [Takes(3), 1, Takes(9), 2]], Reader(), AGAIN, 6),
    ([[Takes(2), "fail"], []], Reader(), AGAIN, None),
    ([["fail"]], Reader(), lost("attempts", 3), None),
    ([[Takes(4), 1, Takes(9), "fail"]], Reader(), lost("committed"), 4),
    ([[Takes(4), 1, 2, 3]], Reader("break"), WELL, 4),
    ([[Takes(4), 1, 2, 3]], Reader("close", 2), WELL, 4),
    ([[Takes(2), "fail"], [1, 2, 3]], Reader("break", 2), AGAIN, 3),
    ([[Panic()]], Reader(), {}, None),
    ([[1, Panic()]], Reader(), {}, None),
]


def read(colour: str, script: Sequence[Source], reader: Reader) -> dict[str, Metrics]:
    """Read a stream in every shape of a colour, and return the metrics of each."""
    every: dict[str, Metrics] = {}

    def one(shape: str) -> tuple[Retry, ScriptedSource]:
        every[shape] = memory.instrument()
        retrying = policy(attempts=3)
        clock = retrying.clock
        assert isinstance(clock, Virtual)
        return retrying, ScriptedSource(script, clock, [])

    def blocking() -> None:
        for name, shape in SHAPES.items():
            retrying, tape = one(name)
            with every[name], suppress(Boom, Panic):
                reader.read(lambda: shape(retrying, tape.items), [])  # noqa: B023

    async def waiting() -> None:
        for name, shape in SHAPES.items():
            retrying, tape = one(name)
            with every[name], suppress(Boom, Panic):
                await reader.aread(lambda: shape(retrying, tape.aitems), [])  # noqa: B023
                await until_closed(colour)

    in_colour(colour, blocking, waiting)
    return every


@pytest.mark.parametrize(("script", "reader", "expected", "first"), ROWS)
def test_a_stream_is_counted_once(
    colour: str, script: Sequence[Source], reader: Reader, expected: dict[str, float], first: float | None
) -> None:
    every = read(colour, script, reader)
    assert {shape: counts(metrics) for shape, metrics in every.items()} == dict.fromkeys(every, expected)
    wanted = Summary(0, 0, 0, 0) if first is None else Summary(1, first, first, first)
    for metrics in every.values():
        assert metrics.histogram("time_to_first_item", name=NAME) == wanted


def resumed(colour: str, *script: Source) -> tuple[Metrics, list[object]]:
    """Read a stream that is resumed, and return the metrics and the items."""
    clock, items = Virtual(), list[object]()
    tape = ScriptedSource(script, clock, [])
    retrying = policy(attempts=3, clock=clock)

    def blocking() -> None:
        items.extend(retrying.stream(tape.items, resume=lambda last: tape.items()))

    async def waiting() -> None:
        async for item in retrying.stream(tape.aitems, resume=lambda last: tape.aitems()):
            items.append(item)

    with memory.instrument() as metrics:
        try:
            in_colour(colour, blocking, waiting)
        except Boom as error:
            items.append(error)
    return metrics, items


def test_a_resumed_stream_is_one_call(colour: str) -> None:
    """A stream that breaks several times has one first item."""
    metrics, items = resumed(colour, [Takes(5), 1, "fail"], [Takes(7), 2, "fail"], ["fail"], [3])
    assert items == [1, 2, 3]
    assert counts(metrics) == {
        "calls true": 1,
        "attempts unknown failed": 3,
        "attempts none ok": 1,
        "retries unknown": 3,
    }
    assert metrics.histogram("time_to_first_item") == Summary(1, 5, 5, 5)


def test_a_stream_that_cannot_be_resumed_is_one_call(colour: str) -> None:
    metrics, items = resumed(colour, [Takes(5), 1, "fail"], ["fail"])
    assert (items[0], type(items[1])) == (1, Boom)
    assert counts(metrics) == lost("attempts", 3)
    assert metrics.histogram("time_to_first_item") == Summary(1, 5, 5, 5)


def test_the_duration_of_a_resumed_stream(colour: str) -> None:
    """From its start: 12 seconds until it broke, 1 second of delay, 3 more seconds."""
    metrics, items = resumed(colour, [Takes(5), 1, Takes(7), "fail"], [Takes(3), 2])
    assert items == [1, 2]
    assert metrics.histogram("call_duration") == Summary(1, 16, 16, 16)
    assert metrics.histogram("attempt_duration") == Summary(2, 15, 3, 12)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("items", [0, 2])
def test_a_cancelled_stream_is_not_counted(colour: str, items: int) -> None:
    async def source() -> AsyncGenerator[int]:
        for number in range(items):
            yield number
        await SYSTEM.asleep(1000)

    async def reading(retrying: Retry) -> None:
        async for _ in retrying(source)():
            pass

    async def main() -> None:
        await cancelled_in(colour, lambda: reading(policy()))

    with memory.instrument() as metrics:
        in_colour(colour, lambda: None, main)
    assert metrics.series() == {}
