"""The pending exits of a context manager that tasks and threads share: each of them finds its own exit."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

PendingExit: TypeAlias = "tuple[ContextExits[Any], Any]"  # the owner, and the exit that was passed to `enter`


class ContextExits(Generic[T]):
    """The exits of one context manager: one for each ``with`` block that is currently open."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[PendingExit] = []

    def enter(self, on_exit: T) -> None:
        """Record the exit of a block that begins."""
        pending = (self, on_exit)
        # Blocks that were left in another context are dropped here, or this context would keep them for ever.
        _pending.set((pending, *(other for other in _pending.get() if other in other[0]._open)))
        self._open.append(pending)

    def leave(self) -> T:
        """Return the exit of the block that this task or thread entered last, and forget it.

        If the block was entered in another context (some frameworks run the two halves of a generator
        fixture in different contexts), any open exit is returned: none may stay open.
        """
        entered_here = _pending.get()
        for pending in (*entered_here, *reversed(self._open)):
            try:
                self._open.remove(pending)
            except ValueError:  # it is another context manager's, or another thread has removed it
                continue
            _pending.set(tuple(other for other in entered_here if other is not pending))
            on_exit: T = pending[1]
            return on_exit
        raise RuntimeError("a `with` block was left more often than it was entered")


# Innermost first. A block entered in one task or thread is invisible to all others.
_pending: ContextVar[tuple[PendingExit, ...]] = ContextVar("redouble_context_exits", default=())
