"""One thing at a time, even if the same thread comes twice.

A lock that its own thread may take again keeps other threads out and cannot deadlock; but the collector, or
a signal, may come in the middle of a change and want another one. It is done after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Desk"]

T = TypeVar("T")


class Deed(Generic[T]):
    """Something to do, and what came of it."""

    __slots__ = ("args", "call", "result")

    def __init__(self, call: Callable[..., T], args: tuple[Any, ...]) -> None:
        self.call, self.args = call, args
        self.result: T | None = None


class Desk:
    """Where deeds are done in turn: used under a lock. ``busy``: in the middle of one."""

    def __init__(self, after: Callable[[], None]) -> None:
        self._after = after  # each round
        self._deeds: deque[Deed[Any]] = deque()
        self.busy = False

    def do(self, call: Callable[..., T], *args: Any) -> T | None:
        """Do it and return what it returns; or, in the middle of another one, leave it to who is at that."""
        mine = Deed(call, args)
        self._deeds.append(mine)
        while self._deeds and not self.busy:
            self.busy = True
            try:
                while self._deeds:
                    deed = self._deeds.popleft()
                    deed.result = deed.call(*deed.args)
            finally:
                try:
                    self._after()
                finally:
                    self.busy = False
        return mine.result
