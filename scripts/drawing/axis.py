"""Axes: the position of a value on the canvas."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import NamedTuple


class Axis(NamedTuple):
    """An axis from ``low`` to ``high`` with labelled ticks; logarithmic if ``log``."""

    label: str
    low: float
    high: float
    ticks: Mapping[float, str]
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value along the axis, from 0 to 1."""
        if self.log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def plain(label: str, high: int, step: int, unit: str = "") -> Axis:
    """Return an axis from 0, with a number at every step."""
    return Axis(label, 0, high, {value: f"{value}{unit}" for value in range(0, high + 1, step)})
