"""Which async library runs the current task, and what we ask of it: asyncio (`_asyncio`) or Trio (`_trio`).

Found out at every call, and without importing either: one policy may serve both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from sys import modules
from types import TracebackType
from typing import Any, Protocol

__all__ = ["Backend", "CancelScope", "backend", "cancelling", "cut_after", "in_event_loop", "under_trio"]


class CancelScope(Protocol):
    """A ``with`` that may be cut: what Trio calls a cancel scope."""

    @property
    def cancel_called(self) -> bool:
        """Whether time was up."""
        ...

    @property
    def cancelled_caught(self) -> bool:
        """Whether what was inside ended by that."""
        ...

    def __enter__(self) -> object:
        """Begin."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
        /,
    ) -> bool:
        """End, swallowing our own cancellation."""
        ...


class Backend(Protocol):
    """What `_asyncio` and `_trio` have in common."""

    def now(self) -> float:
        """Return the event loop's time."""
        ...

    def sleep(self, seconds: float, /) -> Awaitable[None]:
        """Wait, giving way at least once."""
        ...

    def cancelling(self, error: BaseException | None = None, /) -> bool:
        """Say whether the running task is being cancelled, apart from what came of this error."""
        ...

    def cut_after(self, seconds: float, /) -> CancelScope:
        """Cancel what is in the ``with`` after so many seconds, and catch the cancellation."""
        ...

    def lift(self, limit: Any, /) -> bool:
        """Let a limit cut nothing from now on, though it is not left yet; say whether that was in time."""
        ...

    def waker(self) -> tuple[Callable[[], bool], Callable[[], Awaitable[object]]]:
        """Return how to ring a bell, once and from any thread, and how to wait for it.

        Ringing says whether anybody can hear it.
        """
        ...

    async def checkpoint(self) -> None:
        """Raise the cancellation that the running task has coming, if it has."""
        ...

    def home(self) -> object:
        """Return what runs tasks here: the same object for the same event loop, None outside of any."""
        ...

    def is_home(self, place: object, /) -> bool:
        """Say whether that is here."""
        ...

    def finish(self, work: Coroutine[Any, Any, None], /) -> None:
        """Do what has to be awaited, though nobody awaits it."""
        ...


_loaded: Backend | None = None


def backend() -> Backend:
    """Find the async library that runs the current task."""
    global _loaded  # noqa: PLW0603  asking for a module again and again takes its time
    if modules.get("trio") is not None:
        from redouble._runtime import trio_backend as _trio  # noqa: PLC0415  only once Trio is there

        if _trio.running():
            return _trio
    if _loaded is None:
        from redouble._runtime import asyncio_backend as _asyncio  # noqa: PLC0415  only once async code runs

        _loaded = _asyncio
    return _loaded


def cut_after(seconds: float) -> CancelScope:
    """Cancel what is in the ``with`` after so many seconds, and catch the cancellation."""
    return (backend() if _loaded is None or "trio" in modules else _loaded).cut_after(seconds)


def cancelling(error: BaseException | None = None) -> bool:
    """Say whether the running task is being cancelled, whatever its operation made of that."""
    return backend().cancelling(error)


def under_trio() -> bool:
    """Say whether a task of Trio's runs, where async code goes by Trio's clock and blocking code does not."""
    trio: Any = modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


def in_event_loop() -> bool:
    """Say whether this thread is inside a running event loop, which a blocking wait would stall."""
    events = modules.get("asyncio.events")
    if events is not None and events._get_running_loop() is not None:
        return True
    return under_trio()
