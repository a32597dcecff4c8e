"""Layers that stand for other layers, such as those that a configuration has under a name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from redouble._layer import Layer, Pipeline

if TYPE_CHECKING:
    from redouble._worst import Traits, WorstCase

__all__ = ["StandIn"]


class StandIn(Layer):
    """A layer that stands for those that ``_stands_for`` returns: its hooks answer as they would."""

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    def _stands_for(self) -> tuple[Layer, ...]:
        """Return the layers it stands for, outermost first; none if they are not known yet."""
        return ()

    def describe(self) -> str:
        return Pipeline(*self._stands_for()).describe()

    def traits(self) -> Traits:
        return Pipeline(*self._stands_for()).traits()

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return Pipeline(*self._stands_for()).worst_case(inner)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterable[str]:
        return Pipeline(*self._stands_for()).lint(outer, inner, worst)
