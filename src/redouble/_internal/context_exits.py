"""The ways out of what was entered: where many tasks and threads share it, each finds its own."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ["ContextExits"]


T = TypeVar("T")

Way: TypeAlias = "tuple[ContextExits[Any], Any]"  # whose, and how to leave


class ContextExits(Generic[T]):
    """What has been entered and not yet left."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[Way] = []

    def enter(self, way_out: T) -> None:
        """Note how to leave."""
        way = (self, way_out)
        # Those that were left from elsewhere are forgotten here, or they would be kept for ever.
        _here.set((way, *(known for known in _here.get() if known in known[0]._open)))
        self._open.append(way)

    def leave(self) -> T:
        """Return how to leave: as this task or thread entered last.

        If it was entered elsewhere (frameworks enter and leave what yields in different contexts), any one
        will do: nothing may stay open.
        """
        here = _here.get()
        for way in (*here, *reversed(self._open)):
            try:
                self._open.remove(way)
            except ValueError:  # it is somebody else's, or somebody was quicker
                continue
            _here.set(tuple(other for other in here if other is not way))
            found: T = way[1]
            return found
        raise RuntimeError("something was left that had not been entered")


# Innermost first. Entering in one task or thread is invisible to all others.
_here: ContextVar[tuple[Way, ...]] = ContextVar("redouble_ways_out", default=())
