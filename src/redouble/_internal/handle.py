"""Handles: what was switched on is switched off by them, in whichever way suits the caller."""

from __future__ import annotations

from types import TracebackType
from typing import Self

__all__ = ["Handle"]


class Handle:
    """Something that lasts until it is removed: say what that does in ``remove``."""

    __slots__ = ()

    def remove(self) -> None:
        """End it; a second time does nothing."""

    def __call__(self) -> None:
        self.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.remove()
