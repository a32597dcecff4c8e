"""Streams that are hedged up to their first item: the first one that yields wins, the others are closed."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Generator, Iterable
from typing import Any

from redouble._drivers.opened_stream import END, AsyncSource, Source, aopen_first, open_first


class StartedStream(Generator[Any, Any, Any]):
    """A stream of blocking code whose first item has been taken: a generator that begins with that item."""

    def __init__(self, source: Source[Any], item: Any) -> None:
        self._source, self._first = source, [item]
        self._items: Any = source.items
        self.is_empty = item is END
        self.value = source.value  # what an empty generator returned

    def send(self, value: Any, /) -> Any:
        """Return the first item; afterwards, continue the stream."""
        return self._first.pop() if self._first else self._items.send(value)

    def throw(self, *error: Any) -> Any:
        """Throw into the stream."""
        return self._items.throw(*error)

    def close(self) -> None:
        """Close the stream."""
        self._source.close()


class StartedAsyncStream:
    """A stream of async code and its first item."""

    def __init__(self, source: AsyncSource[Any], item: Any) -> None:
        self.source, self.item = source, item

    async def aclose(self) -> None:
        """Close the stream."""
        await self.source.aclose()


def open_stream(make: Callable[[], Iterable[Any]]) -> StartedStream:
    """Open a stream and take its first item."""
    return StartedStream(*open_first(make))


async def aopen_stream(make: Callable[[], AsyncIterable[Any]]) -> StartedAsyncStream:
    """Open a stream and take its first item."""
    return StartedAsyncStream(*await aopen_first(make))
