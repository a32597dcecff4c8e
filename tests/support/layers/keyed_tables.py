"""Tables of `Keyed`, with a layer that records its key."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Any

from redouble import Layer
from redouble._layers.keyed_table import KeyedTable


class LayerWithKey(Layer):
    """A layer that keeps its key."""

    def __init__(self, key: Hashable) -> None:
        self.key = key


def wrapped_by(layer: Layer) -> Callable[..., Any]:
    """Return a function that returns its layer."""
    return lambda: layer


def table(most: int = 3, idle: float = inf, make: Callable[[Hashable], Layer] = LayerWithKey) -> KeyedTable:
    """Return a table of such layers."""
    return KeyedTable(hash, make, most, idle)


def keys(keyed_table: KeyedTable) -> list[Hashable]:
    """Return the keys of a table, the least recently used one first."""
    return list(keyed_table.entries)
