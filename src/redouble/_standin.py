"""Layers that stand for others, which may not be there yet: they answer as what they stand for would.

Which those are, and how functions are wrapped by them, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from redouble._layer import Layer

if TYPE_CHECKING:
    from redouble._verdict import On
    from redouble._worst import Worst

__all__ = ["StandIn"]


class StandIn(Layer):
    """A layer that stands for others, outermost first: say which in ``_stands_for``."""

    @property
    def _held(self) -> bool:
        return True

    def _stands_for(self) -> tuple[Layer, ...]:
        """Return the layers it stands for; none, if it is not known yet."""
        return ()

    def _told(self) -> str:
        return " | ".join(f"{type(layer).__name__} ({layer._told()})" for layer in self._stands_for())

    def _worst(self, inner: Worst, /) -> Worst:
        for layer in reversed(self._stands_for()):
            inner = layer._worst(inner)
        return inner

    def _retries(self) -> bool:
        return any(layer._retries() for layer in self._stands_for())

    def _races(self) -> bool:
        return any(layer._races() for layer in self._stands_for())

    def _acts_on(self) -> On | None:
        layers = self._stands_for()
        return layers[0]._acts_on() if len(layers) == 1 else None

    def _cuts_each(self) -> bool:
        return any(layer._cuts_each() for layer in self._stands_for())

    def _within(self) -> float:
        return min((layer._within() for layer in self._stands_for()), default=inf)

    def _shared(self) -> tuple[object, ...]:
        return tuple(state for layer in self._stands_for() for state in layer._shared())

    def _objections(
        self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: Worst, /
    ) -> Iterator[str]:
        layers = self._stands_for()
        for place in reversed(range(len(layers))):
            layer = layers[place]
            yield from layer._objections((*outer, *layers[:place]), (*layers[place + 1 :], *inner), worst)
            worst = layer._worst(worst)
