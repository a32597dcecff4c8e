"""The interface of the async backends, and the detection of the one that runs the current task.

Detection happens at every call, because one policy may serve both asyncio and Trio, and it imports neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterator
from sys import modules
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from redouble._runtime.loop_waker import LoopWaker

    class CancelScope(Protocol):
        """A ``with`` block that can be cancelled: the part of Trio's cancel scope that we use."""

        @property
        def cancel_called(self) -> bool:
            """True if the time limit was reached."""
            ...

        @property
        def cancelled_caught(self) -> bool:
            """True if the block ended by the scope's cancellation, which the scope has caught."""
            ...

        def __enter__(self) -> object:
            """Enter the scope."""
            ...

        def __exit__(self, kind: Any, error: Any, tb: Any, /) -> bool:
            """Leave the scope; return True to swallow its own cancellation."""
            ...

    class Backend(Protocol):
        """The interface of the modules `asyncio_backend` and `trio_backend`."""

        def now(self) -> float:
            """Return the time: of Trio's clock, or of the system's monotonic clock under asyncio."""
            ...

        def sleep(self, seconds: float, /) -> Awaitable[None]:
            """Sleep; at least one checkpoint, also for 0 seconds."""
            ...

        def cancelling(self, error: BaseException | None = None, /) -> bool:
            """Return True if this task is being cancelled, other than by a group that raised ``error``.

            Always False under Trio, where the delay before a retry raises the cancellation.
            """
            ...

        def task_cancelled(self, error: BaseException | None = None, /) -> bool:
            """Return the same under asyncio; under Trio, True if the next checkpoint raises."""
            ...

        def cancel_after(self, seconds: float, /) -> CancelScope:
            """Return a scope that is cancelled after ``seconds`` and catches its own cancellation."""
            ...

        def seconds_left(self, limit: Any, /) -> float:
            """Return the seconds until the limit of a scope that is entered; infinity if it has none."""
            ...

        def remove_limit(self, limit: Any, /) -> bool:
            """Remove the limit of a scope that is still entered; return True if it was not yet reached."""
            ...

        def waker(self) -> LoopWaker:
            """Return two functions: ``wake``, to call once from any thread, and one to await until then.

            ``wake`` returns False if the event loop has ended: then no task waits.
            """
            ...

        def direct_waker(self) -> LoopWaker:
            """Return the same functions for a task that is usually woken in its own event loop.

            There ``wake`` needs no detour. It may be called again.
            """
            ...

        async def checkpoint(self) -> None:
            """Raise the pending cancellation of the current task, if there is one."""
            ...

        def home(self) -> object:
            """Return the identity of the running event loop or Trio run; None (asyncio) if there is none."""
            ...

        def is_home(self, place: object, /) -> bool:
            """Return True if that event loop or Trio run is the one that runs here."""
            ...

        def awaiting_tasks(self, task: Any = None, /) -> Iterator[object]:
            """Yield the coroutine of the task that awaits this one, by default the current, then of its own.

            A task is awaited by another if it is cancelled with it. Several tasks that await one are none.
            """
            ...

        def run_detached(self, work: Coroutine[Any, Any, None], /) -> None:
            """Run a coroutine that the caller cannot await, in a task of its own."""
            ...


class Cancellation(BaseException):
    """The base of signals that end a blocking call as a cancellation ends a task: no failure of anything."""


_loaded: Backend | None = None


def backend() -> Backend:
    """Return the backend of the async library that runs the current task."""
    global _loaded  # noqa: PLW0603  an import statement at every call would be slow
    if modules.get("trio") is not None:
        from redouble._runtime import trio_backend  # noqa: PLC0415  only once Trio is imported

        if trio_backend.running():
            return trio_backend
    if _loaded is None:
        from redouble._runtime import asyncio_backend  # noqa: PLC0415  only once async code runs

        _loaded = asyncio_backend
    return _loaded


def cancel_after(seconds: float) -> CancelScope:
    """Return a scope that is cancelled after ``seconds`` and catches its own cancellation."""
    return (backend() if _loaded is None or "trio" in modules else _loaded).cancel_after(seconds)


def cancelling(error: BaseException | None = None) -> bool:
    """Return True if the current asyncio task is being cancelled, even if the operation swallowed that."""
    return backend().cancelling(error)


def task_cancelled(error: BaseException | None = None) -> bool:
    """Return True if the current task is cancelled, so that ``error`` says nothing about the operation."""
    return backend().task_cancelled(error)


def under_trio() -> bool:
    """Return True inside a Trio task, where async code uses Trio's clock (blocking code does not)."""
    # While another thread imports Trio, its modules are there without their attributes.
    in_trio_task: Any = getattr(modules.get("trio.lowlevel"), "in_trio_task", None)
    return in_trio_task is not None and bool(in_trio_task())


def in_event_loop() -> bool:
    """Return True if this thread runs an event loop, which a blocking wait would stall."""
    events = modules.get("asyncio.events")
    if events is not None and events._get_running_loop() is not None:
        return True
    return under_trio()
