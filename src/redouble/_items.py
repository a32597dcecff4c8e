"""An async generator around another one, as a class.

Why not an async generator itself: one that is left by ``break`` stays open until the event loop gets
round to it, and Trio warns of that. This one closes what it is wrapped around at once. What is opened, and
what is made of its end, is its owner's business.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import FunctionType, MethodType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from redouble._source import END, AsyncSource, aclose_failed
from redouble._time import backend

__all__ = ["AsyncItems", "Owner", "StreamFunction"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class Owner(Protocol):
    """Whoever wraps a stream."""

    async def aopen(self) -> tuple[AsyncSource[Any], Any]:
        """Open a source and take its first item, or `END`."""
        ...

    def failed(self, error: Exception, *, final: bool = False) -> bool:
        """Learn that the source failed after its first item; say whether to open another one.

        ``final``: it failed to close, and nobody wants another one.
        """
        ...

    def cut(self, error: BaseException | None) -> object:
        """Learn that a cancellation, or its like, went through the source and ended it."""
        ...

    def ended(self) -> None:
        """Learn that the source came to its end, or was closed."""
        ...


class AsyncItems(AsyncGenerator[T, Any]):
    """The items of one stream, on behalf of one consumer."""

    __slots__ = ("__weakref__", "_home", "_owner", "_source", "_take")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._source: AsyncSource[T] | None = None
        self._take: Callable[[], Awaitable[T]] | None = None  # nothing is open yet
        self._home: object = None

    async def __anext__(self, take: Callable[[], Awaitable[T]] | None = None) -> T:
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
                raise  # it was not opened, or is busy with somebody else, as the error says
            self._source, self._take = None, _over
            await aclose_failed(source)
            if not self._owner.failed(error):
                raise
        finally:
            if cut and self._source is not None and _is_over(self._source.items):
                self._source, self._take = None, _over
                self._owner.cut(sys.exception())
        return await self.__anext__(self._begin)

    async def asend(self, value: Any, /) -> T:
        if self._source is None:
            if value is not None and self._take is None:
                raise TypeError("can't send non-None value to a just-started async generator")
            return await self.__anext__()
        return await self.__anext__(functools.partial(_generator(self._source).asend, value))

    async def athrow(self, kind: Any, *more: Any) -> T:
        if self._source is None:
            self._take = _over
            raise more[0] if more and more[0] is not None else kind
        return await self.__anext__(functools.partial(_generator(self._source).athrow, kind, *more))

    async def aclose(self) -> None:
        if self.ag_running:
            raise RuntimeError("aclose(): asynchronous generator is already running")
        source, self._source, self._take = self._source, None, _over
        if source is not None:
            await _close(source, self._owner)

    def __del__(self) -> None:
        source = self._source
        if source is None:
            return
        here = backend()
        if self._home is not None and here.home() is self._home:
            here.finish(_close(source, self._owner), source.may_wait)
        else:  # in another thread, or after the event loop, whose own hooks see to what was open
            self._owner.cut(None)

    @property
    def ag_running(self) -> bool:
        """Whether somebody waits for an item, as an async generator's attribute of that name says it."""
        source = self._source
        return self._take is _busy or bool(source is not None and getattr(source.items, "ag_running", False))

    def may_wait(self) -> bool:
        """Say whether closing it may have to wait."""
        return self._source is not None and self._source.may_wait()

    async def _begin(self) -> T:
        self._take = _busy
        self._home = backend().home()
        try:
            source, item = await self._owner.aopen()
        finally:
            self._take = _over
        self._source, self._take = source, source.items.__anext__
        if item is END:
            raise StopAsyncIteration
        first: T = item
        return first


# What taking the next item amounts to while there is none to be had. Functions, and not methods: an object
# that refers to itself would not be closed at once.


async def _busy() -> Any:
    raise RuntimeError("anext(): asynchronous generator is already running")


async def _over() -> Any:
    raise StopAsyncIteration


async def _close(source: AsyncSource[Any], owner: Owner) -> None:
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


def _is_over(items: AsyncIterator[Any]) -> bool:
    if isinstance(items, AsyncItems):
        return items._take is _over
    return getattr(items, "ag_frame", items) is None  # what is no generator may be asked again


def _generator(source: AsyncSource[T]) -> AsyncGenerator[T, Any]:
    items: Any = source.items
    return items  # type: ignore[no-any-return]  # whoever sends to a mere iterator is told so by Python


class StreamFunction(Generic[P, T, S]):
    """What decorating an async generator function gives: a function, and to `inspect` one of that kind.

    Frameworks ask `inspect.isasyncgenfunction`, and so do our own layers.
    """

    # In slots: what a wrapper around this one takes over (`functools.update_wrapper`) must not be these.
    __slots__ = ("__code__", "__defaults__", "__dict__", "__kwdefaults__", "__weakref__", "_make")

    __name__: str
    __qualname__: str

    def __init__(self, fn: Callable[..., Any], make: Callable[P, AsyncGenerator[T, S]]) -> None:
        self._make = make
        original: Any = fn
        while isinstance(original, functools.partial | MethodType):
            original = original.func if isinstance(original, functools.partial) else original.__func__
        if not isinstance(original, FunctionType | StreamFunction):
            original = type(original).__call__
        self.__name__, self.__qualname__ = original.__name__, original.__qualname__
        self.__code__ = original.__code__
        self.__defaults__ = original.__defaults__
        self.__kwdefaults__ = original.__kwdefaults__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
        return self._make(*args, **kwargs)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__  # found by name, as functions are

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"
