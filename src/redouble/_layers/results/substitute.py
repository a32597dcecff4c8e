"""The functions and the value that a `Fallback` answers with: tried in order, in blocking and async code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from copy import copy
from functools import partial
from inspect import isawaitable
from itertools import chain
from typing import Any, Concatenate, NoReturn, TypeAlias, TypeVar, cast

from redouble._drivers.opened_stream import aopen_first
from redouble._engine.per_call import missing_parameters
from redouble._internal.callables import UsageError, callable_kind, close_unawaited, display_name
from redouble._internal.validation import UNSET, signature_mismatch, takes_more_than_one
from redouble._runtime.backend import task_cancelled

S = TypeVar("S")
T = TypeVar("T")

OfError: TypeAlias = Callable[[Exception], Any]
OfCall: TypeAlias = Callable[Concatenate[Exception, ...], Any]


class Substitute:
    """One answer of a fallback: a value, or a function of the error and, if it needs them, the arguments."""

    __slots__ = ("_fn", "_value", "takes_arguments")

    def __init__(self, fn: Callable[..., Any] | None, value: object = None) -> None:
        self._fn, self._value = fn, value
        self.takes_arguments = fn is not None and _takes_arguments(fn)

    def of(self, error: Exception, args: Any, kwargs: Any) -> Any:
        """Return what replaces an error of a call with these arguments."""
        if self._fn is None:
            return self._value
        return self._fn(error, *args, **kwargs) if self.takes_arguments else self._fn(error)

    def check(self, fn: Callable[..., Any]) -> None:
        """Raise TypeError if the function cannot be called with the arguments of ``fn``."""
        if self._fn is None or not self.takes_arguments:
            return
        wanted = missing_parameters(self._fn, fn, "error")
        if wanted is not None:
            raise TypeError(
                f"Fallback({display_name(self._fn)}) does not accept the arguments of {display_name(fn)} "
                f"after the exception: write a function of ({wanted}), or of the exception alone"
            )

    def of_request(self) -> Substitute:
        """Return the same for a client, where the argument of a call is the request."""
        if not self.takes_arguments or self._fn is None:
            return self
        if signature_mismatch(self._fn, 2) is not None:
            name = display_name(self._fn)
            raise TypeError(f"Fallback({name}) of a client: write a function of (error, request)")
        return Substitute(partial(_of_request, self._fn))


def _of_request(fn: Callable[..., Any], error: Exception, *call: Any) -> Any:
    return fn(error, call[0].request)


class SubstituteChain:
    """The answers of one fallback, tried in order: if one fails, the next one is asked.

    An error of the last one comes out; its context are those of the others, and that of the call.
    """

    __slots__ = ("_all", "_title", "is_async")

    def __init__(self, title: str, fns: tuple[Callable[..., Any], ...], value: object) -> None:
        self._title = title  # of the fallback, for messages
        self._all = [Substitute(fn) for fn in fns]
        if value is not UNSET:
            self._all.append(Substitute(None, value))
        self.is_async = any(callable_kind(fn) in ("coroutine", "async generator") for fn in fns)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def takes_arguments(self) -> bool:
        """True if a function takes the arguments of the call."""
        return any(substitute.takes_arguments for substitute in self._all)

    def of_request(self) -> SubstituteChain:
        """Return the same for a client, where the argument of a call is the request."""
        made = copy(self)
        made._all = [substitute.of_request() for substitute in self._all]
        return made

    def check(self, fn: Callable[..., Any], *, blocking: bool = False) -> None:
        """Raise TypeError if they cannot replace the calls of ``fn``."""
        if blocking and self.is_async:
            raise self._async_error(fn)
        for substitute in self._all:
            substitute.check(fn)

    def first(self, fn: object, error: Exception, args: Any, kwargs: Any, at: int = 0) -> object:
        """Return what replaces an error in blocking code."""
        try:
            return self._blocking(fn, error, args, kwargs, at)
        except Exception as failure:
            if not self._another_follows(at, failure, error):
                raise
            return self.first(fn, error, args, kwargs, at + 1)  # here, so that the failure is its context

    async def afirst(self, error: Exception, args: Any, kwargs: Any, at: int = 0) -> object:
        """Return what replaces an error in async code."""
        try:
            return await self._waiting(error, args, kwargs, at)
        except Exception as failure:
            if not self._another_follows(at, failure, error) or task_cancelled(failure):
                raise
            return await self.afirst(error, args, kwargs, at + 1)

    def first_stream(self, fn: object, error: Exception, args: Any, kwargs: Any, at: int = 0) -> Any:
        """Return the stream that replaces an error; one that is not the last has its first item already."""
        try:
            stream = self._blocking(fn, error, args, kwargs, at)
            if not hasattr(type(stream), "__iter__"):
                self._refuse_items(stream, error)
            return primed(cast("Iterable[Any]", stream)) if at + 1 < len(self._all) else stream
        except Exception as failure:
            if not self._another_follows(at, failure, error):
                raise
            return self.first_stream(fn, error, args, kwargs, at + 1)

    async def open_first(self, error: Exception, args: Any, kwargs: Any, at: int = 0) -> tuple[Any, Any]:
        """Open the async stream that replaces an error, and return it with its first item."""
        try:
            stream: Any = await self._waiting(error, args, kwargs, at)
            if hasattr(cast("object", type(stream)), "__iter__"):
                stream = _as_async_items(stream)
            elif not hasattr(cast("object", type(stream)), "__aiter__"):
                self._refuse_items(stream, error)
            return await aopen_first(lambda: stream)
        except Exception as failure:
            if not self._another_follows(at, failure, error) or task_cancelled(failure):
                raise
            return await self.open_first(error, args, kwargs, at + 1)

    def _blocking(self, fn: object, error: Exception, args: Any, kwargs: Any, at: int) -> object:
        substitute: object = self._all[at].of(error, args, kwargs)
        if hasattr(type(substitute), "__await__"):
            close_unawaited(substitute)
            raise self._async_error(fn)
        return substitute

    async def _waiting(self, error: Exception, args: Any, kwargs: Any, at: int) -> object:
        substitute: object = self._all[at].of(error, args, kwargs)
        return await substitute if isawaitable(substitute) else substitute

    def _another_follows(self, at: int, failure: Exception, error: Exception) -> bool:
        """Return True if the next answer is tried after a failure of the one at this place."""
        if failure.__context__ is None and failure is not error:
            failure.__context__ = error  # a refused result is no error that is being handled
        return at + 1 < len(self._all) and not issubclass(type(failure), UsageError)

    def _refuse_items(self, substitute: object, error: Exception) -> NoReturn:
        kind = type(substitute).__name__
        raise UsageError(
            f"{self._title} returned {kind!r}, which cannot be iterated over, for a generator"
        ) from error

    def _async_error(self, fn: object) -> UsageError:
        return UsageError(
            f"{self._title} has to be awaited, and {display_name(fn)} blocks: write a plain function, or "
            "make both coroutine functions"
        )


def _takes_arguments(fn: object) -> bool:
    """Validate a function; return True if it takes the arguments of the call too."""
    if isinstance(fn, type) and issubclass(cast("type[object]", fn), BaseException):
        raise TypeError(f"Fallback({fn.__name__}): write on={fn.__name__}, and what to return instead")
    if not callable(fn):
        raise TypeError(f"Fallback({fn!r}): write a function of the exception, or value={fn!r}")
    takes = takes_more_than_one(fn)
    if takes is None:
        raise TypeError(f"Fallback({display_name(fn)}) takes no argument: write a function of the exception")
    return takes


class PrimedGenerator(Generator[T, S, Any]):
    """A generator whose first item has been read already, and is yielded again."""

    def __init__(self, items: Generator[T, S, Any], first: T) -> None:
        self._items, self._first = items, [first]

    def __next__(self) -> T:
        return self._first.pop() if self._first else next(self._items)

    def send(self, value: S, /) -> T:
        return self._items.send(value)

    def throw(self, kind: Any, *more: Any) -> T:
        return self._items.throw(kind, *more)


def primed(iterable: Iterable[Any]) -> Any:
    """Return an iterator that has read its first item: an error before that is raised now."""
    items: Any = iter(iterable)
    try:
        first = next(items)
    except StopIteration as end:
        return _returning(end.value)
    return PrimedGenerator[Any, Any](items, first) if hasattr(items, "send") else chain((first,), items)


def _returning(value: object) -> Generator[Any, Any, Any]:
    yield from ()
    return value


async def _as_async_items(iterable: Iterable[T]) -> AsyncGenerator[T, None]:
    for item in iterable:
        yield item
