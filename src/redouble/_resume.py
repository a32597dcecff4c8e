"""What `Retry.stream` returns: the items of a stream, and of those that resume it where it broke.

Of which colour a stream is, its reader says: nothing is opened before the first item is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from redouble._items import AsyncItems
from redouble._source import END, close_failed
from redouble._stream import Opener

__all__ = ["AsyncStream", "Either", "Stream"]

T = TypeVar("T")


def items(opener: Opener[T]) -> Generator[T, None, None]:
    """Yield the items of a source, and of those that resume it."""
    goes_on = True
    while goes_on:
        source, item = opener.open()
        try:
            while item is not END:
                opener.last = item
                yield item
                item = next(source.items, END)
            goes_on = False
        except GeneratorExit:
            opener.close(source)
            raise
        except Exception as error:
            close_failed(source)
            goes_on = opener.failed(error)
            if not goes_on:
                raise
        else:
            opener.close(source)
        finally:
            close_failed(source)  # Ctrl-C


class Remembering(AsyncItems[T]):
    """Async items that remember the last one, to resume after it."""

    __slots__ = ("_opener",)

    def __init__(self, opener: Opener[T]) -> None:
        super().__init__(opener)
        self._opener = opener

    async def __anext__(self, take: Any = None) -> T:
        self._opener.last = item = await super().__anext__(take)
        return item


class Stream(Iterator[T]):
    """An open-ended iterator over a stream; ``close()`` it early, or let a ``with`` do that."""

    _make: Callable[..., Opener[T]]
    _items: Generator[T, None, None] | None = None

    def __iter__(self) -> Generator[T, None, None]:
        if self._items is None:
            self._items = items(self._make(aio=False))
        return self._items

    def __next__(self) -> T:
        return next(iter(self))

    def close(self) -> None:
        """Close the stream."""
        self.__iter__().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


class AsyncStream(AsyncIterator[T]):
    """The same in async code; ``aclose()`` it early, or let an ``async with`` do that."""

    _make: Callable[..., Opener[T]]
    _async_items: AsyncItems[T] | None = None

    def __aiter__(self) -> AsyncItems[T]:
        if self._async_items is None:
            self._async_items = Remembering(self._make(aio=True))
        return self._async_items

    async def __anext__(self) -> T:
        return await anext(aiter(self))

    async def aclose(self) -> None:
        """Close the stream."""
        await self.__aiter__().aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()


class Either(Stream[T], AsyncStream[T]):
    """A stream that nobody has begun to read: of which colour it is, its reader says."""

    def __init__(self, make: Callable[..., Opener[T]]) -> None:
        self._make = make
