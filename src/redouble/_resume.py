"""What `Retry.stream` returns: the items of a stream, and of those that resume it where it broke.

Of which colour a stream is, its reader says: nothing is opened before the first item is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from inspect import GEN_SUSPENDED, getgeneratorstate
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from redouble._internal.public import public
from redouble._items import AsyncItems
from redouble._source import END, close_failed
from redouble._stream import Opener

__all__ = ["Stream"]

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

    async def __anext__(self, take: Any = None, thrown: object = None) -> T:
        self._opener.last = item = await super().__anext__(take, thrown)
        return item


@public("redouble.types")
class Stream(Iterator[T], AsyncIterator[T]):
    """The items of a stream, for ``for`` or ``async for``, as what opens it demands.

    It is closed at its end; to close it early, use it in a ``with`` or ``async with``.
    """

    def __init__(self, make: Callable[..., Opener[T]]) -> None:
        # Both are made now, so that threads may share it; nothing is opened before somebody reads.
        self._items = items(make(aio=False))
        self._async_items: AsyncItems[T] = Remembering(make(aio=True))

    def __iter__(self) -> Generator[T, None, None]:
        return self._items

    def __aiter__(self) -> AsyncItems[T]:
        return self._async_items

    def __next__(self) -> T:
        return next(iter(self))

    async def __anext__(self) -> T:
        return await anext(aiter(self))

    def close(self) -> None:
        """Close the stream."""
        if self._async_items.begun:
            raise TypeError("this stream was read by `async for`: write `async with`, or await aclose()")
        self._items.close()

    async def aclose(self) -> None:
        """Close the stream."""
        if getgeneratorstate(cast("Any", self._items)) == GEN_SUSPENDED:
            raise TypeError("this stream was read by `for`: write `with`, or close()")
        await self._async_items.aclose()

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()
