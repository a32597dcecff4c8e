"""Async generators, hedged up to their first item: the first one that yields wins, the others are closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from redouble import SYSTEM, Hedge, policy_of
from redouble._runtime.backend import backend
from tests.support.fakes import Boom, Panic, always
from tests.support.layers.hedge_attempts import LOOPS, ON_ASYNCIO, limit, timed
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


@dataclass
class Streams:
    """Streams with three items each; a step is how long the first item takes, and the error instead of it."""

    steps: list[tuple[float, type[BaseException] | None]]
    began: list[float] = field(default_factory=list[float])
    closed: list[int] = field(default_factory=list[int])
    sent: list[Any] = field(default_factory=list[Any])

    async def items(self, name: str = "", *, empty: bool = False) -> AsyncGenerator[str, Any]:
        self.began.append(round(SYSTEM.now(), 2))
        number = len(self.began)
        seconds, error = self.steps[number - 1]
        try:
            await backend().sleep(seconds)
            if error is not None:
                raise error(f"stream {number}")
            for item in range(0 if empty else 3):
                self.sent.append((yield f"{name}{number}.{item}"))
                await backend().sleep(1)
        finally:
            self.closed.append(number)


async def read(stream: AsyncGenerator[str, Any]) -> str:
    """Read a stream to its end, and return its items and when it ended."""
    began = SYSTEM.now()
    items: list[str] = []
    try:
        async with aclosing(stream):
            async for item in stream:
                items.append(item)  # noqa: PERF401  an error may follow
    except Exception as error:
        items.append(f"{type(error).__name__}({error})")
    return f"{' '.join(items)} after {SYSTEM.now() - began:g}"


OVER: dict[str, Any] = {"failover": True}


ROWS: list[tuple[dict[str, Any], list[tuple[float, Any]], str, list[float]]] = [
    ({}, [(0.5, None)], "1.0 1.1 1.2 after 3.5", [0]),
    ({}, [(9, None), (1, None)], "2.0 2.1 2.2 after 5", [0, 1]),
    ({}, [(1.5, None), (9, None)], "1.0 1.1 1.2 after 4.5", [0, 1]),
    ({}, [(0.5, Boom)], "ScriptedError(stream 1) after 0.5", [0]),
    ({}, [(3, None), (1, Boom)], "1.0 1.1 1.2 after 6", [0, 1]),
    ({}, [(3, Boom), (1, Boom)], "ScriptedError(stream 1) after 3", [0, 1]),
    ({"on": OSError}, [(3, None), (1, Boom)], "ScriptedError(stream 2) after 2", [0, 1]),
    ({**OVER}, [(0.5, Boom), (1, None)], "2.0 2.1 2.2 after 4.5", [0, 0.5]),
    ({**OVER}, [(0.5, None)], "1.0 1.1 1.2 after 3.5", [0]),
    ({"delay": [1, 2], "hedges": 2}, [(9, None), (9, None), (1, None)], "3.0 3.1 3.2 after 7", [0, 1, 3]),
    (
        {"until": always(False)},
        [(0.5, None)],
        "1.0 1.1 1.2 after 3.5",
        [0],
    ),
]


@LOOPS
@pytest.mark.parametrize(("options", "steps", "ends", "began"), ROWS)
def test_one_stream(colour: str, options: dict[str, Any], steps: Any, ends: str, began: list[float]) -> None:
    streams = Streams(steps)
    arguments: dict[str, Any] = {"delay": 1, "max_extra_load": None, **options}
    hedge = Hedge(**arguments)

    async def main() -> str:
        return await read(hedge(streams.items)())

    assert timed(colour, main) == ends
    assert streams.began == began
    assert sorted(streams.closed) == list(range(1, len(began) + 1))


@LOOPS
def test_losing_streams_are_closed_before_the_first_item(colour: str) -> None:
    streams = Streams([(9, None), (1, None)])

    async def main() -> list[int]:
        async with aclosing(Hedge(1, None)(streams.items)()) as stream:
            assert await anext(stream) == "2.0"
            closed = [*streams.closed]
        return [*closed, -1, *streams.closed]

    assert timed(colour, main) == [1, -1, 1, 2]


@LOOPS
def test_a_stream_that_yields_too_late_is_closed(colour: str) -> None:
    """It swallows its cancellation, and yields an item that nobody reads."""
    closed: list[int] = []
    began: list[int] = []

    async def items() -> AsyncGenerator[int, None]:
        began.append(len(began))
        number = len(began)
        try:
            with suppress(BaseException):
                await backend().sleep(9 if number == 1 else 1)
            yield number
        finally:
            closed.append(number)

    async def main() -> list[int]:
        return [item async for item in Hedge(1, None)(items)()]

    assert timed(colour, main) == [2]
    assert closed == [1, 2]


@LOOPS
def test_items_can_be_sent_and_errors_thrown(colour: str) -> None:
    streams = Streams([(9, None), (1, None)])

    async def main() -> list[str]:
        stream = Hedge(1, None)(streams.items)("s")
        found = [await anext(stream), await stream.asend("sent")]
        with pytest.raises(Boom):
            await stream.athrow(Boom("thrown"))
        return found

    assert timed(colour, main) == ["s2.0", "s2.1"]
    assert (streams.sent, streams.closed) == (["sent"], [1, 2])


@LOOPS
def test_an_empty_stream_wins_too(colour: str) -> None:
    streams = Streams([(9, None), (1, None)])

    async def main() -> str:
        return await read(Hedge(1, None)(streams.items)(empty=True))

    assert timed(colour, main) == " after 2"
    assert sorted(streams.closed) == [1, 2]


@LOOPS
def test_the_delay_is_measured_up_to_the_first_item(colour: str) -> None:
    hedge = Hedge(max_extra_load=0.5, minimum=4)

    async def main() -> list[Any]:
        streams = Streams([(0.5, None)] * 4)
        for _ in range(4):
            await read(hedge(streams.items)())
        return [hedge.snapshot()["delay"], await read(hedge(Streams([(9, None), (1, None)]).items)())]

    assert timed(colour, main) == [0.53125, "2.0 2.1 2.2 after 4.53125"]


@LOOPS
def test_other_streams_and_other_arguments(colour: str) -> None:
    here, there = Streams([(9, None), (9, None)]), Streams([(1, None)])
    hedge = Hedge(1, None, hedges=2, different=[{"name": "eu"}, there.items])

    async def main() -> str:
        return await read(hedge(here.items)("us"))

    assert timed(colour, main) == "us1.0 us1.1 us1.2 after 6"
    assert (here.began, there.began, sorted(here.closed)) == ([0, 1], [2], [1, 2])


@LOOPS
@pytest.mark.parametrize("moment", [0.5, 1.5, 2.5])
def test_a_cancelled_reader_leaves_no_stream_open(colour: str, moment: float) -> None:
    streams = Streams([(9, None), (1, None)])

    async def main() -> None:
        async with limit(moment):
            await read(Hedge(1, None)(streams.items)())

    timed(colour, main)
    assert sorted(streams.closed) == list(range(1, len(streams.began) + 1))


@LOOPS
def test_a_base_exception_closes_the_other_stream(colour: str) -> None:
    streams = Streams([(9, None), (1, Panic)])

    async def main() -> None:
        with pytest.raises(Panic):
            await read(Hedge(1, None)(streams.items)())

    timed(colour, main)
    assert sorted(streams.closed) == [1, 2]


@ON_ASYNCIO
def test_a_stream_that_is_not_read_opens_nothing(colour: str) -> None:
    streams = Streams([])

    async def main() -> None:
        stream = Hedge(1, None)(streams.items)()
        await asyncio.sleep(5)
        await stream.aclose()

    timed(colour, main)
    assert streams.began == []


def test_a_decorated_stream_keeps_its_policy() -> None:
    hedge = Hedge(1, None)
    decorated = hedge(Streams.items)
    assert policy_of(decorated) is hedge
    assert decorated.__name__ == "items"
