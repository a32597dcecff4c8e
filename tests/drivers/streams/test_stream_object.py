"""What `Retry.stream` returns: an iterator of either colour, and a context manager that closes it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import Any

import pytest

from redouble import Retry
from redouble.types import Stream
from tests.support.fakes import Boom, Virtual, in_colour
from tests.support.streams import ScriptedSource

POLICY = Retry(on=Boom, backoff=[0] * 9)


def tape(*sources: list[Any]) -> ScriptedSource:
    return ScriptedSource(sources or [[1, 2, 3]], Virtual(), [])


def test_an_unread_stream_has_both_colours() -> None:
    stream: object = POLICY.stream(tape().items)
    assert isinstance(stream, Stream)
    assert isinstance(stream, Iterable)
    assert isinstance(stream, AsyncIterable)


def test_nothing_is_opened_before_it_is_read(colour: str) -> None:
    one = tape()

    def blocking() -> None:
        with POLICY.stream(one.items) as stream:
            iter(stream)

    async def waiting() -> None:
        async with POLICY.stream(one.aitems) as stream:
            aiter(stream)

    in_colour(colour, blocking, waiting)
    assert one.trail == []


def test_a_second_iterator_continues_the_stream(colour: str) -> None:
    """It continues at the current item; after its end the stream stays ended."""
    one = tape()

    def blocking() -> list[object]:
        stream = POLICY.stream(one.items)
        return [next(stream), next(iter(stream)), *stream, *stream, next(stream, "end")]

    async def waiting() -> list[object]:
        stream = POLICY.stream(one.aitems)
        first = [await anext(stream), await anext(aiter(stream))]
        return [*first, *[item async for item in stream], await anext(stream, "end")]

    assert in_colour(colour, blocking, waiting) == [1, 2, 3, "end"]
    assert one.opened == 1


@pytest.mark.parametrize("way", ["end", "raise", "return", "exhaust"])
def test_a_with_block_closes_the_stream(colour: str, way: str) -> None:
    """The stream is closed however the block ends, and an error of the body is raised."""
    one = tape(["fail"], [1, 2, 3])

    def blocking() -> str:
        with POLICY.stream(one.items) as stream:
            assert next(stream) == 1
            if way == "exhaust":
                assert [*stream] == [2, 3]
            if way == "raise":
                raise LookupError
            if way == "return":
                return way
        return "end"

    async def waiting() -> str:
        async with POLICY.stream(one.aitems) as stream:
            assert await anext(stream) == 1
            if way == "exhaust":
                assert [item async for item in stream] == [2, 3]
            if way == "raise":
                raise LookupError
            if way == "return":
                return way
        return "end"

    if way == "raise":
        with pytest.raises(LookupError):
            in_colour(colour, blocking, waiting)
    else:
        in_colour(colour, blocking, waiting)
    assert one.trail == ["open:1", "close:1", "open:2", "close:2"]


def test_streams_of_one_policy_are_independent(colour: str) -> None:
    one, other = tape(["fail"], [1, 2]), tape([3, "fail"])

    def blocking() -> list[object]:
        pair = zip(POLICY.stream(one.items), POLICY.stream(other.items), strict=False)
        first = next(pair)
        with pytest.raises(Boom):
            next(pair)
        return [*first]

    async def waiting() -> list[object]:
        left, right = POLICY.stream(one.aitems), POLICY.stream(other.aitems)
        first = [await anext(left), await anext(right)]
        assert await anext(left) == 2
        with pytest.raises(Boom):
            await anext(right)
        await left.aclose()
        return first

    assert in_colour(colour, blocking, waiting) == [1, 3]
    assert one.trail[-1] == "close:2"
    assert other.trail == ["open:1", "close:1"]
