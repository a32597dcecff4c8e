"""Numbers as blocks. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LEVELS = " ▁▂▃▄▅▆▇█"
FULL = len(LEVELS) - 1


def counts(moments: Iterable[float], step: float, columns: int) -> list[int]:
    """Count what happened in each step of time; what came before or after all of them is not counted."""
    counted = [0] * columns
    for moment in moments:
        column = int(moment / step)
        if 0 <= column < columns:
            counted[column] += 1
    return counted


def bars(values: Sequence[float], full: float) -> str:
    """Draw values as one row of blocks, ``full`` and more as the highest. What is not nothing is seen."""
    return "".join(LEVELS[_level(value, full)] for value in values)


def storeys(values: Sequence[float], each: float) -> tuple[str, str]:
    """Draw values as two rows of blocks, one above the other, of which each stands for so much."""
    return bars([value - each for value in values], each), bars(values, each)


def _level(value: float, full: float) -> int:
    if value <= 0:
        return 0
    return max(1, min(FULL, round(FULL * value / full)))
