"""Bar charts of block characters, as strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LEVELS = " ▁▂▃▄▅▆▇█"
FULL = len(LEVELS) - 1


def counts(moments: Iterable[float], step: float, columns: int) -> list[int]:
    """Count the moments in each step of time; moments outside of all columns are not counted."""
    counted = [0] * columns
    for moment in moments:
        column = int(moment / step)
        if 0 <= column < columns:
            counted[column] += 1
    return counted


def bars(values: Sequence[float], full: float) -> str:
    """Draw values as one row of blocks: the highest for ``full`` and more, and none only for zero."""
    return "".join(LEVELS[_level(value, full)] for value in values)


def stacked_bars(values: Sequence[float], each: float) -> tuple[str, str]:
    """Draw values as two rows of blocks, the upper one above the lower; each row stands for ``each``."""
    return bars([value - each for value in values], each), bars(values, each)


def _level(value: float, full: float) -> int:
    if value <= 0:
        return 0
    return max(1, min(FULL, round(FULL * value / full)))
