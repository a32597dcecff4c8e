"""A cache with a maximum size, which creates missing values and evicts the oldest entry."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from redouble._internal.locks import ForkSafe

T = TypeVar("T")


class BoundedCache(ForkSafe, Generic[T]):
    """A mapping of at most ``max_size`` values. A lookup takes no lock."""

    def __init__(self, max_size: int) -> None:
        super().__init__()
        self._max_size = max_size
        self._values: dict[Hashable, T] = {}
        self.get = self._values.get  # the value, or None

    def get_or_create(self, key: Hashable, create: Callable[[], T]) -> T:
        """Return the value of a key, or store a new one; of two created concurrently the first is kept."""
        created = create()
        with self._lock:
            value = self._values.pop(key, created)
            while len(self._values) >= self._max_size:
                del self._values[next(iter(self._values))]
            self._values[key] = value
            return value

    def values(self) -> tuple[T, ...]:
        """Return all values."""
        with self._lock:
            return tuple(self._values.values())

    def __len__(self) -> int:
        return len(self._values)
