"""Switch: a context manager of `redouble.testing` that also decorates tests, in every colour."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from redouble._internal.callables import callable_kind, display_name
from redouble._internal.public import public
from redouble._internal.shared_context_manager import Block, SharedContextManager

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@public("redouble.testing")
class Switch(SharedContextManager[T]):
    """A setting that applies inside a ``with`` block, or during each call of a function that it decorates."""

    def __init__(self, make: Callable[[], Block[T]]) -> None:
        self._make = make

    def _new_block(self) -> Block[T]:
        return self._make()

    if not TYPE_CHECKING:  # pragma: no branch  so that type checkers reject `async with`

        async def __aenter__(self) -> NoReturn:
            raise TypeError("write `with` also in async code: entering and leaving never wait")

        async def __aexit__(self, *_: object) -> None:
            """Exist, so that `async with` reaches the error of ``__aenter__``."""

    def __call__(self, fn: F, /) -> F:
        """Decorate a function: each of its calls runs in a block of its own."""
        if isinstance(fn, type):
            raise TypeError(f"cannot decorate the class {fn.__name__}: decorate its tests, or use a fixture")
        kind = callable_kind(fn)
        if kind not in ("plain", "coroutine"):
            raise TypeError(
                f"cannot decorate {display_name(fn)}, which is a generator: write `with` inside it"
            )

        def run_switched(*args: Any, **kwargs: Any) -> Any:
            with self._make():
                return fn(*args, **kwargs)

        async def arun_switched(*args: Any, **kwargs: Any) -> Any:
            with self._make():
                return await fn(*args, **kwargs)

        return cast("F", functools.update_wrapper(run_switched if kind == "plain" else arun_switched, fn))
