"""`open_first` and `aopen_first`: open one source and take its first item."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import Any

import pytest

from redouble import Retry
from redouble._drivers.opened_stream import END, AsyncSource, Source, aopen_first, open_first
from tests.support.drivers.closable_responses import Response
from tests.support.fakes import ASYNC, SYNC, Boom, in_colour


@pytest.mark.parametrize("colour", SYNC)
def test_open_first_returns_a_source_and_its_first_item(colour: str) -> None:
    """An empty generator has `END` as its first item, and its return value as ``value``."""

    def count(*numbers: int, end: str) -> Generator[int, None, str]:
        yield from numbers
        return end

    source, item = open_first(partial(count, 1, 2, end="x"))
    assert (item, list(source.items)) == (1, [2])
    source, item = open_first(partial(count, end="x"))
    assert item is END
    assert source.value == "x"
    source.close()


@pytest.mark.parametrize("colour", ASYNC)
def test_aopen_first_returns_a_source_and_its_first_item(colour: str) -> None:
    async def count(*numbers: int) -> AsyncIterator[int]:
        for number in numbers:
            yield number

    async def main() -> None:
        source, item = await aopen_first(partial(count, 1, 2))
        assert (item, [item async for item in source.items]) == (1, [2])
        source, item = await aopen_first(count)
        assert (item is END, source.value) == (True, None)
        await source.aclose()

    in_colour(colour, lambda: None, main)


def test_a_source_is_closed_once() -> None:
    """Closing it again does nothing."""
    log: list[str] = []
    source = Source[int](Response(log, [1]))
    assert source.first() == 1
    source.close()
    source.close()
    assert log == ["open", "iterator", "response"]

    async def main() -> None:
        source = AsyncSource[int](Response(log, [1]))
        assert await source.afirst() == 1
        await source.aclose()
        await source.aclose()

    log.clear()
    in_colour("asyncio", lambda: None, main)
    assert log == ["open", "iterator", "response"]


def test_a_source_is_closed_if_making_its_iterator_fails(colour: str) -> None:
    log: list[str] = []

    class Broken(Response):
        def __iter__(self) -> Iterator[Any]:
            raise Boom("no iterator")

        def __aiter__(self) -> AsyncIterator[Any]:
            raise Boom("no iterator")

    make: Callable[[], Any] = lambda: Broken(log, [1])
    stream: Any = Retry(on=Boom, attempts=2, backoff=[0]).stream(make)

    def blocking() -> None:
        next(stream)

    async def waiting() -> None:
        await anext(stream)

    with pytest.raises(Boom, match="no iterator"):
        in_colour(colour, blocking, waiting)
    assert log == ["open", "response"] * 2
