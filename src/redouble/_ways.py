"""The ways out of what was entered: where many tasks and threads share it, each finds its own."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ["Ways"]

T = TypeVar("T")

Way: TypeAlias = tuple[object, Any]  # whose, and how to leave


class Ways(Generic[T]):
    """What has been entered and not yet left."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[Way] = []

    def enter(self, way_out: T) -> None:
        """Note how to leave."""
        way = (self, way_out)
        _here.set((way, *_here.get()))
        self._open.append(way)

    def leave(self) -> T:
        """Return how to leave: as this task or thread entered last.

        If it was entered elsewhere (frameworks enter and leave what yields in different contexts), any one
        will do: nothing may stay open.
        """
        here = _here.get()
        way = next((way for way in (*here, *reversed(self._open)) if way in self._open), None)
        if way is None:
            raise RuntimeError("something was left that had not been entered")
        _here.set(tuple(other for other in here if other is not way))
        self._open.remove(way)
        found: T = way[1]
        return found


# Innermost first. Entering in one task or thread is invisible to all others.
_here: ContextVar[tuple[Way, ...]] = ContextVar("redouble_ways_out", default=())
