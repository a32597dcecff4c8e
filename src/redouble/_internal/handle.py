"""The base class of handles, which end something that the caller has started."""

from __future__ import annotations

from typing import Self

__all__ = ["Handle"]


class Handle:
    """A handle: a call, ``remove()`` and the end of a ``with`` do the same. Subclasses define ``remove``."""

    __slots__ = ()

    def remove(self) -> None:
        """End what the handle stands for; a second call does nothing."""

    def __call__(self) -> None:
        self.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
