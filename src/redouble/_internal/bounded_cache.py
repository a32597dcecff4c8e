"""A few things by key, made when first asked for; the oldest makes room for another."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from redouble._internal.locks import ForkSafe

__all__ = ["BoundedCache"]


T = TypeVar("T")


class BoundedCache(ForkSafe, Generic[T]):
    """At most so many things by key. Looking one up takes no lock."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._things: dict[Hashable, T] = {}
        self.get = self._things.get  # what is there, or None

    def get_or_create(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is there, or else make it; of two that are made at a time one is kept."""
        made = make()
        with self._lock:
            found = self._things.pop(key, made)
            while len(self._things) >= self._most:
                del self._things[next(iter(self._things))]
            self._things[key] = found
            return found

    def __len__(self) -> int:
        return len(self._things)
