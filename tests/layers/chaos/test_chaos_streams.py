"""Streams through `Chaos`: an open stream behaves as it would without it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import Any

import pytest

from redouble import SYSTEM, Chaos, Layer, Pipeline, Timeout, errors
from redouble.testing import VirtualClock
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.virtual_time import at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

NEVER = Chaos(fault=Boom, rate=0)
ALWAYS = Chaos(fault=Boom, rate=1)
LATE = Chaos(latency=1, rate=1)
QUIET = pytest.mark.parametrize("layer", [NEVER, LATE, Pipeline(NEVER), LATE | NEVER | LATE])
COLOURS = pytest.mark.parametrize("colour", ASYNC)


class Tape:
    """A stream that records the values and errors that it receives."""

    def __init__(self) -> None:
        self.trail: list[object] = []

    def items(self) -> Generator[int, Any, str]:
        try:
            self.trail.append((yield 1))
            try:
                self.trail.append((yield 2))
            except Boom:
                self.trail.append("caught")
            return "end"
        finally:
            self.trail.append("closed")

    async def aitems(self) -> AsyncGenerator[int, Any]:
        try:
            self.trail.append((yield 1))
            try:
                self.trail.append((yield 2))
            except Boom:
                self.trail.append("caught")
            await SYSTEM.asleep(0)
        finally:
            self.trail.append("closed")


def stream_of(layer: Layer, tape: Tape) -> AsyncGenerator[int, Any]:
    return layer(tape.aitems)()


@QUIET
def test_send_throw_and_return_of_a_generator(layer: Layer) -> None:
    tape = Tape()

    def blocking(_: VirtualClock) -> None:
        stream = layer(tape.items)()
        assert (next(stream), stream.send("x")) == (1, 2)
        with pytest.raises(StopIteration) as end:
            stream.throw(Boom())
        assert end.value.value == "end"

    at("sync", blocking, lambda _: SYSTEM.asleep(0))
    assert tape.trail == ["x", "caught", "closed"]


@COLOURS
@QUIET
@pytest.mark.parametrize("ending", ["exhaust", "close", "caught", "thrown back", "break", "own error"])
def test_an_async_generator_ends_as_without_it(colour: str, layer: Layer, ending: str) -> None:
    tape = Tape()

    async def waiting(_: VirtualClock) -> None:
        stream, mine = stream_of(layer, tape), Boom("mine")
        assert await anext(stream) == 1
        match ending:
            case "exhaust":
                assert [item async for item in stream] == [2]
            case "close":
                await stream.aclose()
            case "caught":
                assert await stream.asend("x") == 2
                with pytest.raises(StopAsyncIteration):
                    await stream.athrow(mine)
            case "thrown back":
                with pytest.raises(Boom) as caught:
                    await stream.athrow(mine)
                assert caught.value is mine
            case "break":
                async for item in stream:
                    assert item == 2
                    break
                await stream.aclose()
            case _:
                with pytest.raises(Boom, match="mine"):
                    async for item in stream:
                        assert item == 2
                        raise mine
                await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    at(f"{colour} around", lambda _: None, waiting)
    trails: dict[str, list[object]] = {"exhaust": [None, None], "caught": ["x", "caught"]}
    begun: list[object] = [] if ending in ("close", "thrown back") else [None]
    assert tape.trail == [*trails.get(ending, begun), "closed"]


@COLOURS
def test_an_error_after_the_first_item_is_the_streams_own(colour: str) -> None:
    """The stream is not opened again, and chaos does not affect it."""
    own, opened = Boom("own"), list[None]()

    @NEVER
    async def aitems() -> AsyncIterator[int]:
        opened.append(None)
        yield 1
        raise own

    async def main() -> None:
        stream = aitems()
        assert await anext(stream) == 1
        with pytest.raises(Boom) as caught:
            await anext(stream)
        assert caught.value is own

    in_colour(colour, lambda: None, main)
    assert opened == [None]


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_stream_may_be_cancelled_between_items(colour: str) -> None:
    closed: list[str] = []

    @LATE
    async def aitems() -> AsyncIterator[int]:
        try:
            yield 1
            await SYSTEM.asleep(1000)
        finally:
            closed.append("closed")

    async def read() -> None:
        async for item in aitems():
            assert item == 1

    async def waiting(clock: VirtualClock) -> float:
        with pytest.raises(errors.AttemptTimeout):
            await Timeout(10).call(read)
        return clock.now()

    assert at(f"{colour} around", lambda _: None, waiting) == 10
    assert closed == ["closed"]


@COLOURS
def test_a_stream_hit_before_its_first_item_is_over(colour: str) -> None:
    tape = Tape()

    async def main() -> None:
        stream = stream_of(ALWAYS, tape)
        with pytest.raises(Boom):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    in_colour(colour, lambda: None, main)
    assert tape.trail == []
