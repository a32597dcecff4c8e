"""Fallback: a substitute value or stream instead of an error. A cancellation is never replaced."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._failures.verdict import FailureFilter, On
from redouble._internal.callables import (
    UsageError,
    callable_kind,
    close_unawaited,
    display_name,
    reject_awaitable,
)
from redouble._internal.public import public
from redouble._internal.validation import UNSET, signature_mismatch
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._runtime.backend import cancelling

if TYPE_CHECKING:
    from redouble._layers.analysis import WorstCase

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@public("redouble")
class Fallback(Layer):
    """Return something else when a call fails: ``Fallback(fn)``, or ``Fallback(value=...)``.

    ``fn`` receives the exception; in async code it may be a coroutine function. ``on`` selects the errors to
    replace: an exception type, a tuple, a rule, or a list of these. A generator is replaced as a whole, by
    an iterable, and only if it fails before its first item. ``value`` is the same object for all calls.
    """

    _kept_by_wrapper = True

    def __init__(
        self, fn: Callable[[Exception], Any] | None = None, /, *, value: Any = UNSET, on: On = Exception
    ) -> None:
        if (fn is None) == (value is UNSET):
            raise TypeError("write Fallback(fn), with a function of the exception, or Fallback(value=...)")
        if isinstance(fn, type) and issubclass(cast("type[object]", fn), BaseException):
            raise TypeError(f"Fallback({fn.__name__}): write on={fn.__name__}, and what to return instead")
        if fn is not None and not callable(fn):
            raise TypeError(f"Fallback({fn!r}): write a function of the exception, or value={fn!r}")
        if fn is not None and (taken := signature_mismatch(fn, 1)) is not None:
            raise TypeError(f"Fallback({display_name(fn)}) takes {taken}: write a function of the exception")
        self._fn, self._value = fn, value
        self._is_async = fn is not None and callable_kind(fn) in ("coroutine", "async generator")
        self._failures = FailureFilter(on, "Fallback")

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` with the fallback in place of its errors."""
        self._refuse_async(fn)

        def replaced(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return reject_awaitable(fn, fn(*args, **kwargs))
            except Exception as error:
                if not self._failures.matches(error):
                    raise
                return cast("T", self._blocking_substitute(fn, error))

        return replaced

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` with the fallback in place of its errors, for a coroutine function."""

        async def replaced(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await fn(*args, **kwargs)
            except Exception as error:
                # A task that is being cancelled has to end, even if its function raised another error.
                if not self._failures.matches(error) or cancelling(error):
                    raise
                substitute = self._substitute(error)
                return cast("T", await substitute if isawaitable(substitute) else substitute)

        return replaced

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn``, replaced if it fails before its first item, for a generator function."""
        self._refuse_async(fn)

        def replaced(*args: P.args, **kwargs: P.kwargs) -> Generator[T, S, Any]:
            items = fn(*args, **kwargs)
            stream: Generator[T, S, Any]
            try:
                first = next(items)
            except StopIteration as end:
                return end.value
            except Exception as error:
                if not self._failures.matches(error):
                    raise
                stream = cast("Generator[T, S, Any]", self._blocking_substitute(fn, error))
                if not hasattr(type(stream), "__iter__"):
                    raise _not_iterable(self, stream) from error
            else:
                stream = PrimedGenerator(items, first)
            return (yield from stream)

        return replaced

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn``, replaced if it fails before its first item, for an async generator function."""
        return wrap_stream(fn, lambda make: StreamOwner(partial(self._open_stream, make)))

    async def _open_stream(self, make: Callable[[], AsyncGenerator[Any, Any]]) -> tuple[Any, Any]:
        """Open a stream, or its substitute, and return it with its first item."""
        try:
            return await aopen_first(make)
        except Exception as error:
            if not self._failures.matches(error) or cancelling(error):
                raise
            substitute = self._substitute(error)
            substitute = await substitute if isawaitable(substitute) else substitute
            if hasattr(type(substitute), "__iter__"):
                substitute = _as_async_items(substitute)
            elif not hasattr(type(substitute), "__aiter__"):
                raise _not_iterable(self, substitute) from error
        return await aopen_first(lambda: substitute)

    def describe(self) -> str:
        own_time = "" if self._fn is None else f"; the time of {display_name(self._fn)} is not counted"
        return "another result instead of an error" + own_time

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        for layer in outer:
            on = layer.traits().handles
            if on is not None and self._failures.covers(on):
                name = type(layer).__name__
                yield (
                    f"Fallback inside {name}, for the same errors: it replaces each error before the "
                    f"{name} sees it, so the {name} does nothing; put it outside"
                )

    def _substitute(self, error: Exception) -> Any:
        return self._value if self._fn is None else self._fn(error)

    def _blocking_substitute(self, fn: object, error: Exception) -> object:
        substitute: object = self._substitute(error)
        if hasattr(type(substitute), "__await__"):
            close_unawaited(substitute)
            raise self._async_error(fn)
        return substitute

    def _refuse_async(self, fn: object) -> None:
        if self._is_async:
            raise self._async_error(fn)

    def _async_error(self, fn: object) -> UsageError:
        return UsageError(
            f"{self!r} has to be awaited, and {display_name(fn)} blocks: write a plain function, or make "
            "both coroutine functions"
        )

    def __repr__(self) -> str:
        return "Fallback(value=...)" if self._fn is None else f"Fallback({display_name(self._fn)})"


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


def _not_iterable(fallback: Fallback, substitute: object) -> TypeError:
    kind = type(substitute).__name__
    return TypeError(f"{fallback!r} returned {kind!r}, which cannot be iterated over, for a generator")


async def _as_async_items(iterable: Iterable[T]) -> AsyncGenerator[T, None]:
    for item in iterable:
        yield item
