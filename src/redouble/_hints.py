"""How to treat a delay asked for by the other side: what one says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Literal

from redouble._internal.public import public
from redouble._internal.validation import Duration, number, seconds

__all__ = ["Hints"]


@public("redouble")
@dataclass(frozen=True)
class Hints:
    """How to treat a delay asked for by the other side.

    mode: ``at_least`` waits for the backoff or the hint, whichever is longer; ``instead`` for the
    hint alone; ``ignore`` for the backoff alone.
    longest: give up at once when asked to wait longer than this.
    over: let a hint add at most this to the backoff.
    spread: add up to this share of the hint by chance, so that not everybody returns at once.
    """

    mode: Literal["at_least", "instead", "ignore"] = "at_least"
    longest: Duration | None = None
    over: Duration | None = None
    spread: float = 0.1

    # The same as numbers, for the engine.
    _ceiling: float = field(init=False, repr=False, compare=False)
    _most_over: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in ("at_least", "instead", "ignore"):
            raise ValueError(f"Hints mode={self.mode!r}: write 'at_least', 'instead' or 'ignore'")
        for option, limit in (("longest", "_ceiling"), ("over", "_most_over")):
            value = getattr(self, option)
            checked = None if value is None else seconds(value, f"Hints {option}")
            object.__setattr__(self, option, checked)
            object.__setattr__(self, limit, inf if checked is None else checked)
        number(self.spread, "Hints spread", 0, 1, "a number between 0 and 1, such as 0.1")
