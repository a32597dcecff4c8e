"""An async generator around another one, as a class.

A real async generator stays open after a ``break`` until the event loop finalises it, and Trio warns about
that. This class closes its source at once. Its owner opens the source and handles its end.
"""

from __future__ import annotations

import functools
import gc
import sys
from _thread import get_ident
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import AsyncGeneratorType
from typing import Any, Protocol, TypeVar
from weakref import ref

from redouble._drivers.opened_stream import END, AsyncSource, aclose_failed, close_without_suspending
from redouble._runtime.backend import Backend, backend

__all__ = ["AsyncItems", "StreamOwner", "has_own_end"]


T = TypeVar("T")


class StreamOwner(Protocol):
    """The owner of a wrapped stream: opens its sources and handles their ends."""

    async def aopen(self) -> tuple[AsyncSource[Any], Any]:
        """Open a source and take its first item, or `END`."""
        ...

    def failed(self, error: Exception, *, final: bool = False) -> bool:
        """Handle the failure of the source after its first item; return True to open another one.

        ``final``: closing it failed, and the consumer wants no more items.
        """
        ...

    def returned(self, error: Exception) -> None:
        """Handle the end of the source by an error that the consumer has thrown into it."""
        ...

    def cut(self, error: BaseException | None) -> None:
        """Handle the end of the source by a cancellation, or another BaseException.

        Closing what is left of it may follow, and then `ended` or `failed` are called too.
        """
        ...

    def ended(self) -> None:
        """Handle the regular end, or the closing, of the source."""
        ...


class AsyncItems(AsyncGenerator[T, Any]):
    """The items of one stream, for one consumer."""

    __slots__ = ("__weakref__", "_backend", "_home", "_owner", "_source", "_take")

    def __init__(self, owner: StreamOwner) -> None:
        self._owner = owner
        self._source: AsyncSource[T] | None = None
        self._take: Callable[[], Awaitable[T]] | None = None  # nothing is open yet
        self._home: object = None

    # One method, for speed, although `take` and `thrown` are only for `asend` and `athrow`.
    async def __anext__(self, take: Callable[[], Awaitable[T]] | None = None, thrown: object = None) -> T:
        cut = True
        try:
            item = await (take or self._take or self._begin)()
            cut = False
            return item
        except StopAsyncIteration:
            cut = False
            await self.aclose()
            raise
        except Exception as error:
            cut = False
            source = self._source
            if source is None or self.ag_running:
                raise  # no source is open, or it serves another task: `error` reports that
            self._source, self._take = None, _raise_running
            try:
                await aclose_failed(source)
            finally:
                self._take = _raise_stop
            if error is thrown:
                self._owner.returned(error)
                raise
            if not self._owner.failed(error):
                raise
        finally:
            if cut and self._source is not None and _has_ended(self._source.items):
                self._take = _raise_stop
                if not self._source.leave_iterator():
                    self._source = None
                self._owner.cut(sys.exception())
        return await self.__anext__(self._begin)

    async def asend(self, value: Any, /) -> T:
        if self._source is None:
            if value is not None and self._take is None:
                raise TypeError("can't send non-None value to a just-started async generator")
            return await self.__anext__()
        return await self.__anext__(functools.partial(_generator(self._source).asend, value))

    async def athrow(self, kind: Any, *more: Any) -> T:
        error = more[0] if more and more[0] is not None else kind
        if self._source is None:
            self._take = _raise_stop
            raise error
        # As in blocking code: only an error thrown before the second item is known to be the consumer's.
        thrown = error if isinstance(self._take, functools.partial) else None
        return await self.__anext__(functools.partial(_generator(self._source).athrow, kind, *more), thrown)

    async def aclose(self) -> None:
        if self.ag_running:
            raise RuntimeError("aclose(): asynchronous generator is already running")
        source, self._source, self._take = self._source, None, _raise_stop
        if source is not None:
            await _close(source, self._owner)

    def __del__(self) -> None:
        source = self._source
        if source is None:
            return
        if not self._backend.is_home(self._home):
            self._owner.cut(
                None
            )  # another thread, or the loop has ended: the hooks of the event loop close it
        elif not source.may_wait():
            close_without_suspending(_close(source, self._owner))
        elif not in_garbage_collection() or not has_own_end(source.items):
            self._backend.run_detached(_close(source, self._owner))
        else:
            # The garbage collector finalises the iterator together with this object, in any order, so it may
            # be in the middle of its cleanup. It is left alone; everything else that was opened is closed.
            self._owner.cut(None)
            if source.leave_iterator():
                self._backend.run_detached(_close(source, self._owner))

    @property
    def ag_running(self) -> bool:
        """True if a task awaits an item, like the attribute of an async generator."""
        source = self._source
        return self._take is _raise_running or bool(
            source is not None and getattr(source.items, "ag_running", False)
        )

    @property
    def is_open(self) -> bool:
        """True if a source is open."""
        return self._source is not None

    def may_wait(self) -> bool:
        """Return True if closing it may have to await something."""
        return self._source is not None and self._source.may_wait()

    async def _begin(self) -> T:
        self._take = _raise_running
        self._backend: Backend = backend()  # here, not in __init__: blocking code loads no backend
        self._home = self._backend.home()
        try:
            source, item = await self._owner.aopen()
        finally:
            self._take = _raise_stop
        self._source, self._take = source, functools.partial(_take_second, ref(self))
        if item is END:
            raise StopAsyncIteration
        first: T = item
        return first


# The values of `_take` other than the source's `__anext__`. Functions, and not methods: an object that refers
# to itself would not be finalised at once.


async def _raise_running() -> Any:
    raise RuntimeError("anext(): asynchronous generator is already running")


async def _take_second(reader: Callable[[], AsyncItems[T] | None]) -> T:
    items: Any = reader()
    items._take = items._source.items.__anext__  # later items come directly from the source
    second: T = await items._take()
    return second


async def _raise_stop() -> Any:
    raise StopAsyncIteration


async def _close(source: AsyncSource[Any], owner: StreamOwner) -> None:
    cut = True
    try:
        await source.aclose()
        cut = False
    except Exception as error:
        cut = False
        owner.failed(error, final=True)
        raise
    finally:
        if cut:
            owner.cut(sys.exception())
    owner.ended()


def _has_ended(items: AsyncIterator[Any]) -> bool:
    if isinstance(items, AsyncItems):
        return items._take is _raise_stop
    return getattr(items, "ag_frame", items) is None  # an iterator that is no generator may have more items


def has_own_end(items: object) -> bool:
    """Return True if these items have a finaliser of their own, which the garbage collector calls."""
    return isinstance(items, AsyncItems | AsyncGeneratorType) or getattr(items, "has_own_end", False) is True


# The thread in which the garbage collector is running, if it is.
_collecting_thread: list[int] = []


def in_garbage_collection() -> bool:
    """Return True if the garbage collector is running in this thread."""
    return get_ident() in _collecting_thread


def _track_collector(phase: str, _: object) -> None:
    _collecting_thread[:] = [get_ident()] if phase == "start" else []


gc.callbacks.append(_track_collector)


def _generator(source: AsyncSource[T]) -> AsyncGenerator[T, Any]:
    items: Any = source.items
    return items  # type: ignore[no-any-return]  # sending to a plain iterator raises Python's own error
