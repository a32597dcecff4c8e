"""The result of decorating an async generator function, and the owners of the streams that it opens.

A decorated function sets up the async generator that it returns, so it is no async generator function itself.
Frameworks and our own layers check `inspect.isasyncgenfunction`: a `StreamFunction` passes.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from redouble._drivers.opened_stream import AsyncSource, Home

__all__ = ["StreamFunction", "StreamOwner", "wrap_stream"]


P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class StreamOwner:
    """The owner of one async stream: opens its source and handles its end. This one only opens it.

    Each source that was opened ends by one of `failed`, `returned`, `cut` and `ended`.
    """

    home: Home | None = None  # where the stream is read; None before its first item is requested

    def __init__(self, open: Callable[[], Awaitable[tuple[AsyncSource[Any], Any]]]) -> None:  # noqa: A002
        self._open = open

    async def aopen(self) -> tuple[AsyncSource[Any], Any]:
        """Open a source and take its first item, or `END`."""
        try:
            return await self._open()
        except BaseException as error:
            self.cut(error)
            raise

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


class StreamFunction(Generic[P, T, S]):
    """A callable that `inspect` takes for an async generator function: it has the code of the original."""

    # In slots, and not in `__dict__`, which `functools.update_wrapper` copies to a wrapper of this one.
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
        return self.__qualname__  # pickle stores the name and imports it, as for a plain function

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"


def wrap_stream(
    fn: Callable[P, AsyncGenerator[T, S]], owner: Callable[[Callable[[], AsyncGenerator[T, S]]], StreamOwner]
) -> Callable[P, AsyncGenerator[T, S]]:
    """Return an async generator function whose streams have owners made by ``owner(open)``."""
    from redouble._drivers.async_generator import async_items  # noqa: PLC0415  only streams need it

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
        fn(*args, **kwargs)  # runs nothing yet, but raises TypeError for wrong arguments
        return async_items(owner(functools.partial(fn, *args, **kwargs)))

    return StreamFunction(fn, wrapped)
