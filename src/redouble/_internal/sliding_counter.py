"""How many of something there were lately, in constant memory and time: one number per slice of time.

A count is told what slice it is, and forgets by that; it has no clock. Its owner has the lock.
"""

from __future__ import annotations

__all__ = ["SLICES", "SlidingCounter"]


SLICES = 128  # of a window: how exactly it slides


class SlidingCounter:
    """A count over the last so many slices, the running one included."""

    __slots__ = ("counts", "latest", "place", "total")

    def __init__(self, slices: int = SLICES) -> None:
        self.counts = [0] * slices
        self.latest = self.place = 0  # the running slice, and where its number stands
        self.total = 0

    def move(self, to: int) -> None:
        """Forget what is too old by now. Time that went back by more than that is another clock's."""
        counts = self.counts
        size, passed = len(counts), to - self.latest
        if not -size < passed < size:
            counts[:] = [0] * size
            self.total = 0
        elif passed <= 0:
            return  # a thread that looked at the clock before another one did
        else:
            for index in range(self.latest + 1, to + 1):
                place = index % size
                self.total -= counts[place]
                counts[place] = 0
        self.latest, self.place = to, to % size

    def seen(self, at: int) -> int:
        """Tell the count as of a slice, without moving there."""
        counts, passed = self.counts, at - self.latest
        if passed >= len(counts):
            return 0
        return self.total - sum(counts[index % len(counts)] for index in range(self.latest + 1, at + 1))

    def redate(self, old: float, new: float, *, late: bool = False, last: float | None = None) -> None:
        """Go on with slices of another length: ``old`` and ``new`` are in the same unit.

        When exactly something was counted is not known: it is taken to be the beginning of its slice, or if
        ``late`` the end; and nothing was later than ``last``, if that is given, in old slices.
        """
        counts, latest = self.counts, self.latest
        size = len(counts)
        known = [(index, counts[index % size]) for index in range(latest - size + 1, latest + 1)]
        newest = latest + late if last is None else last
        self.latest = int(newest * old // new)
        self.place = self.latest % size
        counts[:] = [0] * size
        self.total = 0
        for index, number in known:
            if number:
                self.add(number, int(min(index + late, newest) * old // new))

    def add(self, number: int, index: int) -> None:
        """Count some more, in a slice that may be over but is not too old; never below none."""
        counts = self.counts
        if self.latest - len(counts) < index <= self.latest:
            place = index % len(counts)
            number = max(number, -counts[place])
            counts[place] += number
            self.total += number
