"""Entering context managers with retries: only the entering, never the body of the ``with``.

A body that failed may have had effects; only its author knows whether it may run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from functools import partial
from inspect import isawaitable
from math import inf
from typing import Any, TypeVar

from redouble._drivers.calls import adrive, begin_run, drive
from redouble._engine.options import Options, refuse_limits
from redouble._engine.run import Run
from redouble._internal.callables import UsageError, close_unawaited, display_name
from redouble._internal.public import public
from redouble._internal.shared_context_manager import ContextExits
from redouble._runtime.backend import backend, cancel_after

T = TypeVar("T")


@public("redouble.types")
class Entrance(AbstractContextManager[T, bool | None], AbstractAsyncContextManager[T, bool | None]):
    """The context manager returned by `Retry.enter`: for ``with`` or ``async with``, like the entered one."""

    def __init__(self, policy: Options, name: str, make: Callable[[], Any]) -> None:
        self._policy, self._name, self._make = policy, name, make
        self._exits = ContextExits[Callable[..., Any]]()

    def __enter__(self) -> T:
        run = self._begin(aio=False)
        return drive(run, None, self._enter, (run,), {})

    async def __aenter__(self) -> T:
        run = self._begin(aio=True)
        return await adrive(run, None, self._aenter, (run,), {})

    def _begin(self, *, aio: bool) -> Run:
        if not aio:
            refuse_limits(self._policy, "a `with` block")
        return begin_run(Run, self._policy, self._name, aio=aio)

    def _enter(self, run: Run) -> T:  # noqa: ARG002  blocking code has no limit
        manager: object = self._make()
        enter, leave = self._methods(manager, aio=False)
        entered: T = enter(manager)
        self._exits.enter(partial(leave, manager))
        return entered

    async def _aenter(self, run: Run) -> T:
        seconds = run.time_left()
        limit = cancel_after(seconds)
        with ExitStack() as stack:
            if seconds < inf:
                stack.enter_context(limit)
            manager: object = self._make()
            if isawaitable(manager) and not hasattr(manager, "__aenter__"):
                manager = await manager
            enter, leave = self._methods(manager, aio=True)
            entered: T = await enter(manager)
            if seconds < inf and not backend().remove_limit(limit):
                await leave(manager, None, None, None)
                raise run.expired()
            # The cancel scope stays open: a nursery that the manager has opened inside has to close first.
            self._exits.enter(partial(_leave, stack.pop_all(), partial(leave, manager)))
        if limit.cancelled_caught:
            raise run.expired()
        run.record_return(late=limit.cancel_called)
        return entered

    def __exit__(self, *raised: Any) -> bool | None:
        swallowed: bool | None = self._exits.leave()(*raised)
        return swallowed

    async def __aexit__(self, *raised: Any) -> bool | None:
        swallowed: bool | None = await self._exits.leave()(*raised)
        return swallowed

    def _methods(self, manager: object, *, aio: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Look up the enter and exit methods, as ``with`` does: on the type, both before either is called."""
        kind: Any = type(manager)
        enter, leave = ("__aenter__", "__aexit__") if aio else ("__enter__", "__exit__")
        if not (hasattr(kind, enter) and hasattr(kind, leave)):
            close_unawaited(manager)
            fits = hasattr(kind, "__enter__" if aio else "__aenter__")
            fix = f": write `{'with' if aio else 'async with'}`" if fits else ""
            made = f"{display_name(self._make)} made {kind.__qualname__!r}"
            raise UsageError(f"{made}, which has no {enter} and {leave}{fix}")
        return getattr(kind, enter), getattr(kind, leave)


async def _leave(limit: ExitStack, leave: Callable[..., Awaitable[bool | None]], *raised: Any) -> bool | None:
    with limit:
        return await leave(*raised)
