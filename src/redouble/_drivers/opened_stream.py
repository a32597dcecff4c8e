"""The source that one attempt at a stream has opened: it yields items, and is closed exactly once.

A source is a generator, or what a function of the caller's returned: a file, a response, a list.
`open_first` and `aopen_first` open one and take its first item, or leave nothing open; they are twins.
"""

from __future__ import annotations

import sys
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from functools import partial
from inspect import isawaitable
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from redouble._internal.callables import UsageError, close_unawaited, display_name
from redouble._internal.logger import log
from redouble._runtime.backend import backend

if TYPE_CHECKING:
    from redouble._runtime.backend import Backend
    from redouble._runtime.call_stack import EnclosingCall

T = TypeVar("T")

END: Final[Any] = object()  # the item after the last


class OpenedSource(Generic[T]):
    """The opened stream of one attempt: the objects to be closed, the innermost one first."""

    __slots__ = ("_open", "last", "value")

    def __init__(self, *stream: object) -> None:
        self._open: list[Any] = [*stream]
        self.value: object = None  # what an empty generator returned
        self.last: Any = None  # the last item, if the stream is to be resumed after it

    def hold(self, stream: object) -> None:
        """Own another opened object: the last one is iterated over, all are closed."""
        self._open.insert(0, stream)

    @property
    def stream(self) -> Any:
        """The object held last, which is iterated over."""
        return self._open[0]

    @property
    def is_open(self) -> bool:
        """True if something is left to be closed."""
        return bool(self._open)


class Source(OpenedSource[T]):
    """The opened stream of one attempt in blocking code."""

    __slots__ = ("items",)

    def first(self) -> T:
        """Begin to iterate, and take the first item."""
        self.items: Iterator[T] = iter(self._open[0])
        if self.items is not self._open[0]:
            self._open.insert(0, self.items)
        return self.items.__next__()

    def close(self) -> None:
        """Close the iterator, then, even if that failed, the object that it iterates over."""
        if self._open:
            close = getattr(self._open.pop(0), "close", None)
            try:
                if close is not None:
                    close()
            finally:
                self.close()


class AsyncSource(OpenedSource[T]):
    """The opened stream of one attempt in async code."""

    __slots__ = ("items",)

    async def afirst(self) -> T:
        """Begin to iterate, and take the first item."""
        self.items: AsyncIterator[T] = aiter(self._open[0])
        if self.items is not self._open[0]:
            self._open.insert(0, self.items)
        hooks = sys.get_asyncgen_hooks()
        if hooks.finalizer is None or not _is_generator(self.items):
            return await self.items.__anext__()
        # A generator keeps the finaliser that is set at its first use.
        here = backend()
        is_here = partial(here.is_home, here.home())
        sys.set_asyncgen_hooks(finalizer=partial(_finalize, hooks.finalizer, is_here))
        try:
            first = self.items.__anext__()
        finally:
            sys.set_asyncgen_hooks(*hooks)
        return await first

    async def aclose(self) -> None:
        """Close the iterator, then, even if that failed, the object that it iterates over."""
        if self._open:
            stream = self._open.pop(0)
            try:
                if _is_generator(stream):
                    await close_generator(stream)
                else:
                    close = getattr(stream, "aclose", None) or getattr(stream, "close", None)
                    if close is not None and isawaitable(closing := close()):
                        await closing
            finally:
                await self.aclose()


def _is_generator(stream: object) -> bool:
    return isinstance(stream, AsyncGeneratorType)


async def close_generator(items: Any) -> None:
    """Do what ``items.aclose()`` does, but never while it runs, and safe from the garbage collector.

    The collector finalises a generator and its source together, in any order. It would interrupt a waiting
    cleanup that `aclose()` has begun.
    """
    if items.ag_frame is None or items.ag_running:
        return
    try:
        await items.athrow(GeneratorExit)
    except (GeneratorExit, StopAsyncIteration):
        return
    raise RuntimeError("async generator ignored GeneratorExit")


def _finalize(finalizer: Callable[[Any], None], is_here: Callable[[], bool], source: object) -> None:
    """Finalise a source as the event loop does, unless the generator around it is about to close it."""
    if not is_here():
        finalizer(source)


class StreamOwner:
    """The owner of one async stream: opens its source and handles its end. This one only opens it.

    Each source that was opened ends by one of `failed`, `returned`, `cut` and `ended`. As a context manager
    it calls `cut` if a cancellation or another BaseException, and no Exception, leaves the block.
    """

    # The backend, and the event loop or Trio run, that reads the stream; None before its first item is read.
    home: tuple[Backend, object] | None = None

    def __init__(self, open: Callable[[], Awaitable[tuple[AsyncSource[Any], Any]]]) -> None:  # noqa: A002
        self._open = open

    async def aopen(self) -> tuple[AsyncSource[Any], Any]:
        """Open a source and take its first item, or `END`."""
        with self:
            try:
                return await self._open()
            except Exception as error:
                self.cut(error)
                raise

    def call(self) -> EnclosingCall | None:
        """Return the call of a policy that opened the source; None for another layer."""
        return None

    def failed(self, error: Exception, *, final: bool = False) -> bool:  # noqa: ARG002
        """Handle a failure of the source after its first item; return True to open another one.

        ``final``: closing it failed, and the consumer wants no more items.
        """
        self.cut(error)
        return False

    def returned(self, error: Exception) -> None:
        """Handle the end of the source by an error that the consumer has thrown into it."""
        self.cut(error)

    def cut(self, error: BaseException | None) -> None:
        """Handle the end of the source by a cancellation or another BaseException; None: it was abandoned."""

    def ended(self) -> None:
        """Handle the regular end, or the closing, of the source."""
        self.cut(None)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if error is not None and not isinstance(error, Exception):
            self.cut(error)


class ConsumerReply:
    """What a consumer does at an item: ``next``, ``send`` or ``throw``. Closing is not caught."""

    __slots__ = ("_items", "asked", "sent", "thrown")

    def __init__(self, items: object) -> None:
        self._items = items
        self.asked = False  # True if the consumer has called ``next``, and `items` may have raised the error
        self.sent: object = None
        self.thrown: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
        its_own = self.asked and getattr(self._items, "ag_frame", None) is None  # a generator that has ended
        self.thrown = None if its_own or isinstance(error, GeneratorExit) else error
        return self.thrown is not None


def open_first(open: Callable[[], Iterable[T]], /) -> tuple[Source[T], T]:  # noqa: A002
    """Open a source and take its first item, or `END`; close it if that fails."""
    source: Source[T] = Source(stream_of(open, open()))
    ready = False
    try:
        item = source.first()
        ready = True
    except StopIteration as end:
        source.value = getattr(end, "value", None)
        item, ready = END, True
    finally:
        if not ready:
            close_failed(source)
    return source, item


async def aopen_first(open: Callable[[], AsyncIterable[T]], /) -> tuple[AsyncSource[T], T]:  # noqa: A002
    """Open a source and take its first item, or `END`; close it if that fails."""
    source: AsyncSource[T] = AsyncSource(await astream_of(open, open()))
    ready = False
    try:
        item = await source.afirst()
        ready = True
    except StopAsyncIteration as end:
        source.value = getattr(end, "value", None)
        item, ready = END, True
    finally:
        if not ready:
            await aclose_failed(source)
    return source, item


def close_failed(source: Source[Any]) -> None:
    """Close a source that failed; log an error of closing, since the first error is the one to raise."""
    try:
        source.close()
    except Exception:
        log(CLOSE_FAILED, error=True)


async def aclose_failed(source: AsyncSource[Any]) -> None:
    """Close a source that failed; log an error of closing, since the first error is the one to raise."""
    try:
        await source.aclose()
    except Exception:
        log(CLOSE_FAILED, error=True)


CLOSE_FAILED = "a stream that had failed could not be closed either"


def stream_of(open: object, stream: object) -> Iterable[Any]:  # noqa: A002
    """Return the opened stream; raise `UsageError` if it cannot be iterated over."""
    if not hasattr(type(stream), "__iter__") and not hasattr(type(stream), "__getitem__"):
        close_unawaited(stream)
        fix = ": write `async for`" if hasattr(stream, "__aiter__") or isawaitable(stream) else ""
        raise UsageError(
            f"{display_name(open)} opened {type(stream).__name__!r}, which cannot be iterated over{fix}"
        )
    return cast("Iterable[Any]", stream)


async def astream_of(open: object, stream: object) -> AsyncIterable[Any]:  # noqa: A002
    """Return the opened stream, awaited if necessary; raise `UsageError` if ``async for`` cannot use it."""
    if isawaitable(stream):
        stream = await stream
    if not hasattr(type(stream), "__aiter__"):
        fix = ": write `for`" if hasattr(type(stream), "__iter__") else ""
        raise UsageError(
            f"{display_name(open)} opened {type(stream).__name__!r}, which `async for` cannot use{fix}"
        )
    return cast("AsyncIterable[Any]", stream)
