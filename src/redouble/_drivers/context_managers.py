"""Entering context managers with retries: only the entering, never the body of the ``with``.

A body that failed may have had effects; only its author knows whether it may run again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, nullcontext
from inspect import isawaitable
from math import inf
from typing import Any, TypeVar, cast

from redouble._drivers.calls import adrive, begin_run, drive
from redouble._engine.options import Options, refuse_limits
from redouble._engine.run import Run
from redouble._internal.callables import UsageError, close_unawaited, display_name
from redouble._internal.public import public
from redouble._internal.shared_context_manager import (
    AsyncSharedContextManager,
    Block,
    never_began,
    try_from_start,
)
from redouble._runtime.backend import backend, cancel_after

T = TypeVar("T")


@public("redouble.types")
class Entrance(AsyncSharedContextManager[T], AbstractContextManager[T], AbstractAsyncContextManager[T]):
    """The context manager returned by `Retry.enter`: for ``with`` or ``async with``, like the entered one."""

    def __init__(self, policy: Options, name: str, make: Callable[[], Any]) -> None:
        self._policy, self._name, self._make = policy, name, make

    def _new_block(self) -> EnteredManager[T]:
        return EnteredManager(self._policy, self._name, self._make)

    @try_from_start
    async def __aexit__(self, kind: object, error: BaseException | None, tb: object) -> bool | None:
        try:
            tb = block = self._blocks().claim()  # a parameter has a value also if this is interrupted
            return await self._aend_block(block, error)
        except BaseException:
            if isinstance(tb, EnteredManager):
                await self._aend_block(cast("EnteredManager[T]", tb), error)
            raise


class EnteredManager(Block[T]):
    """The context manager that one ``with`` enters, with retries."""

    _manager: Any  # these two are set by the attempt that succeeds
    _leave: Callable[..., Any] | None = None
    _limit: ExitStack | None = None  # in async code

    def __init__(self, policy: Options, name: str, make: Callable[[], Any]) -> None:
        self._policy, self._name, self._make = policy, name, make

    def begin(self) -> T:
        """Make attempts to enter the manager."""
        run = self._begin(aio=False)
        return drive(run, None, self._enter, (run,), {})

    async def abegin(self) -> T:
        """Make attempts to enter the manager."""
        run = self._begin(aio=True)
        return await adrive(run, None, self._aenter, (run,), {})

    def _begin(self, *, aio: bool) -> Run:
        if not aio:
            refuse_limits(self._policy, "a `with` block")
        return begin_run(Run, self._policy, self._name, aio=aio)

    def _enter(self, run: Run) -> T:  # noqa: ARG002  blocking code has no limit
        self.leave(None)  # an earlier attempt may have been interrupted after it had entered
        manager: object = self._make()
        enter, leave = self._methods(manager, aio=False)
        entered: list[T] = []
        try:
            entered.extend(map(enter, (manager,)))  # one call: it also keeps what `enter` returns
        finally:
            if entered:
                self._manager, self._leave = manager, leave
        if not entered:
            raise StopIteration  # by `enter`, which has ended the map
        return entered[0]

    async def _aenter(self, run: Run) -> T:
        await self.aleave(None)  # an earlier attempt may have been interrupted after it had entered
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
            self._manager, self._leave = manager, leave
            if seconds < inf and not backend().remove_limit(limit):
                await self.aleave(None)
                raise run.expired()
            # The cancel scope stays open: a nursery that the manager has opened inside has to close first.
            self._limit = stack.pop_all()
        if limit.cancelled_caught:
            raise run.expired()
        run.record_return(late=limit.cancel_called)
        return entered

    def leave(self, error: BaseException | None) -> bool | None:
        """Leave the manager, unless that was begun before."""
        if (leave := self._leave) is None:
            return None
        kind, tb = (None, None) if error is None else (type(error), error.__traceback__)
        try:
            with self._limit or nullcontext():
                self._leave = None  # no signal handler can run between this and the call
                swallowed: bool | None = leave(self._manager, kind, error, tb)
        except BaseException as failure:
            if never_began(failure, leave):
                self._leave = leave
            raise
        return swallowed

    async def aleave(self, error: BaseException | None) -> bool | None:
        """Leave the manager, unless that was begun before."""
        if (leave := self._leave) is None:
            return None
        kind, tb = (None, None) if error is None else (type(error), error.__traceback__)
        try:
            with self._limit or nullcontext():
                self._leave = None  # no signal handler can run between this and the call
                swallowed: bool | None = await leave(self._manager, kind, error, tb)
        except BaseException as failure:
            if never_began(failure, leave):
                self._leave = leave
            raise
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
