"""A count of calls that go well, which looks at the clock only as often as it has to."""

from __future__ import annotations

from math import inf

__all__ = ["Tally"]

OFTEN = 16  # looks at the clock in a slice of time
FAR = 256  # calls from one look to the next, at most


class Tally:
    """What is counted while all goes well: up to ``check``, when it is time to look at the clock again."""

    __slots__ = ("check", "count", "edge", "since", "step")

    def __init__(self) -> None:
        self.count, self.check = 0, 1
        self.step = 1
        self.since = self.edge = -inf  # the running slice of time; at first there is none

    def begin(self, before: int, since: float, edge: float) -> None:
        """Begin another slice of time; so many were counted in the one before.

        Up to sixteen a slice the clock is looked at every time; beyond that, a few count in the one after.
        """
        self.step = max(1, min(FAR, before // OFTEN))
        self.check, self.since, self.edge = self.count + self.step, since, edge

    def take(self) -> tuple[int, int]:
        """Take out what was counted: up to the last look at the clock, and since."""
        count, sure = self.count, self.check - self.step
        self.count -= count
        return min(count, sure), max(0, count - sure)
