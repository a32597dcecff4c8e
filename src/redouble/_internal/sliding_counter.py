"""A sliding-window counter in constant memory and time: one number per slice of the window.

It has no clock and no lock: its owner passes the index of the current slice, and holds the lock.
"""

from __future__ import annotations

SLICES = 128  # of a window: its resolution


class SlidingCounter:
    """A count over the last ``slices`` slices, the current one included."""

    __slots__ = ("counts", "latest", "position", "total")

    def __init__(self, slices: int = SLICES) -> None:
        self.counts = [0] * slices
        self.latest = self.position = 0  # the current slice, and its position in `counts`
        self.total = 0

    def advance(self, to: int) -> None:
        """Advance to a slice and drop those that left the window.

        A step back by more than a window means that another clock is in use: all slices are dropped.
        """
        counts = self.counts
        size, passed = len(counts), to - self.latest
        if not -size < passed < size:
            counts[:] = [0] * size
            self.total = 0
        elif passed <= 0:
            return  # another thread has read the clock later and advanced first
        else:
            for index in range(self.latest + 1, to + 1):
                place = index % size
                self.total -= counts[place]
                counts[place] = 0
        self.latest, self.position = to, to % size

    def count_at(self, at: int) -> int:
        """Return the count as of a slice, without advancing to it."""
        counts, passed = self.counts, at - self.latest
        if passed >= len(counts):
            return 0
        return self.total - sum(counts[index % len(counts)] for index in range(self.latest + 1, at + 1))

    def rescale(self, old: float, new: float, *, late: bool = False, last: float | None = None) -> None:
        """Convert the counts to slices of another length; ``old`` and ``new`` are in the same unit.

        The exact time of a count is unknown: it is assumed to be the beginning of its slice, or its end if
        ``late`` is True, and at most ``last`` (in old slices) if that is given.
        """
        counts, latest = self.counts, self.latest
        size = len(counts)
        old_counts = [(index, counts[index % size]) for index in range(latest - size + 1, latest + 1)]
        newest = latest + late if last is None else last
        self.latest = int(newest * old // new)
        self.position = self.latest % size
        counts[:] = [0] * size
        self.total = 0
        for index, number in old_counts:
            if number:
                self.add(number, int(min(index + late, newest) * old // new))

    def add(self, number: int, index: int) -> None:
        """Add to a slice of the window, the current one or an earlier one; its count never falls below 0."""
        counts = self.counts
        if self.latest - len(counts) < index <= self.latest:
            place = index % len(counts)
            number = max(number, -counts[place])
            counts[place] += number
            self.total += number
