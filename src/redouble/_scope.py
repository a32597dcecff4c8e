"""What the switches of `redouble.testing` are: for a ``with``, and for decorating a test of any colour."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn, TypeVar, cast

from redouble._callable import colour, spelled

__all__ = ["Scope"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Scope(AbstractContextManager[T, None]):
    """Something that is so inside a block, or in a function that it decorates."""

    def __init__(self, make: Callable[[], AbstractContextManager[T, Any]]) -> None:
        self._make = make
        self._entered: list[AbstractContextManager[T, Any]] = []

    def __enter__(self) -> T:
        block = self._make()
        value = block.__enter__()
        self._entered.append(block)
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(kind, error, tb)

    async def __aenter__(self) -> NoReturn:
        raise TypeError("write `with` also in async code: entering and leaving never wait")

    async def __aexit__(self, *_: object) -> None:
        """Be there, so that `async with` comes as far as the message above."""

    def __call__(self, fn: F, /) -> F:
        """Decorate a function: each call of it is a block of its own."""
        if colour(fn) == "coroutine":

            async def ascoped(*args: Any, **kwargs: Any) -> Any:
                with self._make():
                    return await fn(*args, **kwargs)

            return cast("F", functools.update_wrapper(ascoped, fn))
        if colour(fn) != "plain":
            raise TypeError(f"cannot decorate {spelled(fn)}, which is a generator: write `with` inside it")

        def scoped(*args: Any, **kwargs: Any) -> Any:
            with self._make():
                return fn(*args, **kwargs)

        return cast("F", functools.update_wrapper(scoped, fn))
