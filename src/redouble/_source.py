"""What one attempt at a stream opened: to take items from, and to close exactly once.

A source is a generator, or whatever a function of the caller's returned: a file, a response, a list.
`opened` and `aopened` open one and take its first item, or leave nothing open; they are twins.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from inspect import isawaitable
from typing import Any, Final, Generic, TypeVar, cast

from redouble._cleanup import waits
from redouble._internal.callables import Misused, drop, spelled
from redouble._internal.logger import log

__all__ = ["END", "AsyncSource", "Source", "aopened", "opened"]

T = TypeVar("T")

END: Final[Any] = object()  # stands for the item after the last


class Source(Generic[T]):
    """A stream in blocking code. ``value`` is what an empty generator returned."""

    __slots__ = ("_open", "items", "value")

    def __init__(self, *stream: Iterable[T]) -> None:
        self._open: list[Any] = [*stream]
        self.value: object = None

    def hold(self, stream: object) -> None:
        """Take over something that was opened: it is what there is to iterate over, unless more follows."""
        self._open.insert(0, stream)

    def first(self) -> T:
        """Begin to iterate, and take the first item."""
        self.items: Iterator[T] = iter(self._open[0])
        if self.items is not self._open[0]:
            self._open.insert(0, self.items)
        return self.items.__next__()

    def close(self) -> None:
        """Close what can be closed: the iterator, then, whatever came of that, what it iterates over."""
        if self._open:
            close = getattr(self._open.pop(0), "close", None)
            try:
                if close is not None:
                    close()
            finally:
                self.close()


class AsyncSource(Generic[T]):
    """A stream in async code."""

    __slots__ = ("_open", "items", "value")

    def __init__(self, *stream: AsyncIterable[T]) -> None:
        self._open: list[Any] = [*stream]
        self.value: object = None

    def hold(self, stream: object) -> None:
        """Take over something that was opened: it is what there is to iterate over, unless more follows."""
        self._open.insert(0, stream)

    async def afirst(self) -> T:
        """Begin to iterate, and take the first item."""
        self.items: AsyncIterator[T] = aiter(self._open[0])
        if self.items is not self._open[0]:
            self._open.insert(0, self.items)
        return await self.items.__anext__()

    def leave_iterator(self) -> bool:
        """Take note that the iterator has ended; say whether there is anything else to be closed."""
        self._open.remove(self.items)
        return bool(self._open)

    def may_wait(self) -> bool:
        """Say whether closing it may have to wait."""
        return any(waits(stream) for stream in self._open)

    async def aclose(self) -> None:
        """Close what can be closed: the iterator, then, whatever came of that, what it iterates over."""
        if self._open:
            stream = self._open.pop(0)
            close = getattr(stream, "aclose", None) or getattr(stream, "close", None)
            try:
                if close is not None and isawaitable(closing := close()):
                    await closing
            finally:
                await self.aclose()


def opened(open: Callable[[], Iterable[T]], /) -> tuple[Source[T], T]:  # noqa: A002
    """Open a source and take its first item, or `END`; one that fails at that is closed."""
    source = Source(stream_of(open, open()))
    kept = False
    try:
        item = source.first()
        kept = True
    except StopIteration as end:
        source.value = getattr(end, "value", None)
        item, kept = END, True
    finally:
        if not kept:
            close_failed(source)
    return source, item


async def aopened(open: Callable[[], AsyncIterable[T]], /) -> tuple[AsyncSource[T], T]:  # noqa: A002
    """Open a source and take its first item, or `END`; one that fails at that is closed."""
    source = AsyncSource(await astream_of(open, open()))
    kept = False
    try:
        item = await source.afirst()
        kept = True
    except StopAsyncIteration as end:
        source.value = getattr(end, "value", None)
        item, kept = END, True
    finally:
        if not kept:
            await aclose_failed(source)
    return source, item


def close_failed(source: Source[Any]) -> None:
    """Close a source that failed: its error is the one that matters."""
    try:
        source.close()
    except Exception:
        log(COMPLAINT, trouble=True)


async def aclose_failed(source: AsyncSource[Any]) -> None:
    """Close a source that failed: its error is the one that matters."""
    try:
        await source.aclose()
    except Exception:
        log(COMPLAINT, trouble=True)


COMPLAINT = "a stream that had failed could not be closed either"


def stream_of(open: object, stream: object) -> Iterable[Any]:  # noqa: A002
    """Check what was opened."""
    if not hasattr(type(stream), "__iter__") and not hasattr(type(stream), "__getitem__"):
        drop(stream)
        fix = ": write `async for`" if hasattr(stream, "__aiter__") or isawaitable(stream) else ""
        raise Misused(f"{spelled(open)} opened {type(stream).__name__!r}, which cannot be iterated over{fix}")
    return cast("Iterable[Any]", stream)


async def astream_of(open: object, stream: object) -> AsyncIterable[Any]:  # noqa: A002
    """Check what was opened, having waited for it if it takes waiting."""
    if isawaitable(stream):
        stream = await stream
    if not hasattr(type(stream), "__aiter__"):
        fix = ": write `for`" if hasattr(type(stream), "__iter__") else ""
        raise Misused(f"{spelled(open)} opened {type(stream).__name__!r}, which `async for` cannot use{fix}")
    return cast("AsyncIterable[Any]", stream)
