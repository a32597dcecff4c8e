"""The result of decorating an async generator function.

A decorated function sets up the async generator that it returns, so it is no async generator function itself.
Frameworks and our own layers check `inspect.isasyncgenfunction`: a `StreamFunction` passes.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from types import FunctionType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from redouble._drivers.async_generator import async_items
from redouble._drivers.opened_stream import StreamOwner

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


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
    fn: Callable[P, AsyncGenerator[T, S]],
    owner: Callable[[functools.partial[AsyncGenerator[T, S]]], StreamOwner],
) -> Callable[P, AsyncGenerator[T, S]]:
    """Return an async generator function whose streams have owners made by ``owner(open)``."""

    def wrapped(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
        fn(*args, **kwargs)  # runs nothing yet, but raises TypeError for wrong arguments
        return async_items(owner(functools.partial(fn, *args, **kwargs)))

    return StreamFunction(fn, wrapped)
