"""What the switches of `redouble.testing` are: for a ``with``, and for decorating a test of any colour."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from redouble._internal.callables import callable_kind, display_name
from redouble._internal.context_exits import ContextExits
from redouble._internal.public import public

__all__ = ["Switch"]


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@public("redouble.testing")
class Switch(AbstractContextManager[T, None]):
    """Something that is so inside a block, or in a function that it decorates."""

    def __init__(self, make: Callable[[], AbstractContextManager[T, Any]]) -> None:
        self._make = make
        self._ways_out = ContextExits[AbstractContextManager[T, Any]]()

    def __enter__(self) -> T:
        block = self._make()
        value = block.__enter__()
        self._ways_out.enter(block)
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._ways_out.leave().__exit__(kind, error, tb)

    if not TYPE_CHECKING:  # pragma: no branch  so that type checkers say so too

        async def __aenter__(self) -> NoReturn:
            raise TypeError("write `with` also in async code: entering and leaving never wait")

        async def __aexit__(self, *_: object) -> None:
            """Be there, so that `async with` comes as far as the message above."""

    def __call__(self, fn: F, /) -> F:
        """Decorate a function: each call of it is a block of its own."""
        if isinstance(fn, type):
            raise TypeError(f"cannot decorate the class {fn.__name__}: decorate its tests, or use a fixture")
        if callable_kind(fn) == "coroutine":

            async def aswitched(*args: Any, **kwargs: Any) -> Any:
                with self._make():
                    return await fn(*args, **kwargs)

            return cast("F", functools.update_wrapper(aswitched, fn))
        if callable_kind(fn) != "plain":
            raise TypeError(
                f"cannot decorate {display_name(fn)}, which is a generator: write `with` inside it"
            )

        def switched(*args: Any, **kwargs: Any) -> Any:
            with self._make():
                return fn(*args, **kwargs)

        return cast("F", functools.update_wrapper(switched, fn))
