"""Fallback: something else instead of an error.

It makes no attempts and waits for nothing. A cancellation is nobody's to replace.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from enum import Enum
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from redouble._drivers.stream_function import PassiveStreamOwner, StreamFunction
from redouble._failures.verdict import FailureFilter, On
from redouble._internal.callables import callable_kind, close_unawaited, display_name, reject_awaitable
from redouble._internal.public import public
from redouble._internal.validation import takes_other_than
from redouble._layers.layer import Layer
from redouble._runtime.backend import cancelling

if TYPE_CHECKING:
    from redouble._layers.analysis import WorstCase

__all__ = ["Fallback"]


P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class _Nothing(Enum):
    """Stands for no value at all, where None is one."""

    NOTHING = "..."

    def __repr__(self) -> str:
        return self.value


NOTHING: Final = _Nothing.NOTHING


@public("redouble")
class Fallback(Layer):
    """Return something else when a call fails: ``Fallback(fn)``, or ``Fallback(value=...)``.

    ``fn`` gets the exception; in async code it may be a coroutine function. ``on`` says which errors are
    replaced: an exception type, a tuple, a rule, or a list of these. A generator is replaced as a whole, by
    what can be iterated over, and only if it fails before its first item. ``value`` is the same object for
    all calls.
    """

    def __init__(
        self, fn: Callable[[Exception], Any] | None = None, /, *, value: Any = NOTHING, on: On = Exception
    ) -> None:
        if (fn is None) == (value is NOTHING):
            raise TypeError("write Fallback(fn), with a function of the exception, or Fallback(value=...)")
        if fn is not None:
            _check_function(fn)
        self._fn, self._value = fn, value
        self._waits = fn is not None and callable_kind(fn) in ("coroutine", "async generator")
        self._failures = FailureFilter(on, "Fallback")

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn``, with something else instead of its errors."""
        self._refuse_async(fn)

        def replaced(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                result = fn(*args, **kwargs)
            except Exception as error:
                if not self._failures.count(error):
                    raise
                return cast("T", self._at_once(fn, error))
            return reject_awaitable(fn, result)

        return replaced

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn``, with something else instead of its errors, for a coroutine function."""

        async def replaced(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await fn(*args, **kwargs)
            except Exception as error:
                # A task that is being cancelled has to end, whatever its function made of that.
                if not self._failures.count(error) or cancelling(error):
                    raise
                instead = self._instead(error)
                return cast("T", await instead if isawaitable(instead) else instead)

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
                if not self._failures.count(error):
                    raise
                stream = cast("Generator[T, S, Any]", self._at_once(fn, error))
                if not hasattr(type(stream), "__iter__"):
                    raise _no_stream(self, stream) from error
            else:
                stream = PrimedGenerator(items, first)
            return (yield from stream)

        return replaced

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        """Return ``fn``, replaced if it fails before its first item, for an async generator function."""
        from redouble._drivers.async_items import AsyncItems  # noqa: PLC0415  for those who stream

        def replaced(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
            fn(*args, **kwargs)  # runs nothing yet; but wrong arguments are an error here and now
            return AsyncItems(FallbackStreamOwner(self, partial(fn, *args, **kwargs)))

        return StreamFunction(fn, replaced)

    def describe(self) -> str:
        own_time = "" if self._fn is None else f"; what {display_name(self._fn)} takes is not counted"
        return "something else instead of an error" + own_time

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del inner, worst
        for layer in outer:
            on = layer.traits().handles
            if on is not None and self._failures.covers(on):
                name = type(layer).__name__
                yield (
                    f"Fallback inside {name}, for the same errors: it replaces each of them before the "
                    f"{name} sees it, which then does nothing; put it outside"
                )

    def _instead(self, error: Exception) -> Any:
        return self._value if self._fn is None else self._fn(error)

    def _at_once(self, fn: object, error: Exception) -> object:
        instead: object = self._instead(error)
        if hasattr(type(instead), "__await__"):
            close_unawaited(instead)
            raise self._must_wait(fn)
        return instead

    def _refuse_async(self, fn: object) -> None:
        if self._waits:
            raise self._must_wait(fn)

    def _must_wait(self, fn: object) -> TypeError:
        return TypeError(
            f"{self!r} has to be awaited, and {display_name(fn)} blocks: write a plain function, or make both "
            "coroutine functions"
        )

    def __repr__(self) -> str:
        return "Fallback(value=...)" if self._fn is None else f"Fallback({display_name(self._fn)})"


class PrimedGenerator(Generator[T, S, Any]):
    """A generator whose first item has been taken already."""

    __slots__ = ("_first", "_items")

    def __init__(self, items: Generator[T, S, Any], first: T) -> None:
        self._items, self._first = items, [first]

    def __next__(self) -> T:
        return self._first.pop() if self._first else next(self._items)

    def send(self, value: S, /) -> T:
        return self._items.send(value)

    def throw(self, kind: Any, *more: Any) -> T:
        return self._items.throw(kind, *more)

    def close(self) -> None:
        self._items.close()


class FallbackStreamOwner(PassiveStreamOwner):
    """An async generator that may be replaced before its first item: the owner of its items."""

    def __init__(self, fallback: Fallback, make: Callable[[], AsyncGenerator[Any, Any]]) -> None:
        self._fallback, self._make = fallback, make

    async def aopen(self) -> tuple[Any, Any]:
        """Open it and take its first item, or that of what replaces it."""
        from redouble._drivers.stream_source import aopen_first  # noqa: PLC0415  for those who stream

        try:
            return await aopen_first(self._make)
        except Exception as error:
            if not self._fallback._failures.count(error) or cancelling(error):
                raise
            instead = self._fallback._instead(error)
            instead = await instead if isawaitable(instead) else instead
            if hasattr(type(instead), "__iter__"):
                instead = _items(instead)
            elif not hasattr(type(instead), "__aiter__"):
                raise _no_stream(self._fallback, instead) from error
        return await aopen_first(lambda: instead)


def _check_function(fn: Any) -> None:
    if isinstance(fn, type) and issubclass(cast("type[object]", fn), BaseException):
        raise TypeError(f"Fallback({fn.__name__}): write on={fn.__name__}, and what to return instead")
    if not callable(fn):
        raise TypeError(f"Fallback({fn!r}): write a function of the exception, or value={fn!r}")
    if (took := takes_other_than(fn, 1)) is not None:
        raise TypeError(f"Fallback({display_name(fn)}) takes {took}: write a function of the exception")


def _no_stream(fallback: Fallback, instead: object) -> TypeError:
    kind = type(instead).__name__
    return TypeError(f"{fallback!r} gave {kind!r}, which cannot be iterated over, in place of a generator")


async def _items(iterable: Iterable[T]) -> AsyncGenerator[T, None]:
    for item in iterable:
        yield item
