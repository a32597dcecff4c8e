"""Pacers that count the calls of a window, instead of spacing them: a sliding one and fixed ones.

Rule 1: a sliding window holds in every window of ``per`` seconds, wherever it begins. Each call is kept until
        it is ``per`` seconds old; a permit that was used becomes available again at exactly that moment.
Rule 2: calls at the same time are kept as one. If the limit is above `EXACT`, so are calls within a
        ten-thousandth of the period, with the time of the last: the memory has a bound, permits become
        available a little later, and never earlier.
Rule 3: fixed windows follow one another from the first call on. Each has all permits at once, and what it
        leaves is lost. Twice the limit may begin around the border of two windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import floor, inf
from typing import NamedTuple, Self

from redouble._layers.limits.rate.pacing import CLOCK_JUMP, CLOCK_TOLERANCE, ROUNDING, FollowingPacer

EXACT = 10_000  # permits in a window: with more, calls are not all kept apart


class Entry(NamedTuple):
    """Calls of a sliding window that expire together: when the first and the last began, and their cost."""

    first: float
    last: float
    cost: float


class WindowPacer(FollowingPacer):
    """A pacer that admits ``limit`` in a window of ``per`` seconds."""

    def __init__(self, limit: float, per: float) -> None:
        super().__init__(per / limit, limit)
        self._per = per
        self._used = 0.0

    def reconfigure(self, limit: float, per: float, now: float) -> None:
        """Change the limit and the period; the calls of the window still count."""
        self._adjust(now)
        self.interval, self.most, self._per = per / limit, limit, per

    def _estimated(self, moment: float, others: Sequence[float], cost: float) -> float:
        # The last calls fill windows; what is left of the others comes before these.
        load, windows = cost, 0
        for other in reversed(others):
            if load + other > self.most * (1 + ROUNDING):
                load, windows = 0.0, windows + 1
            load += other
        return self._after_windows(self._earliest_allowed(moment, load), windows)

    def _after_windows(self, moment: float, windows: int) -> float:
        """Return when permits that are taken at a moment become available again, after some windows."""
        raise NotImplementedError


class SlidingWindowPacer(WindowPacer):
    """A pacer that admits ``limit`` in every window of ``per`` seconds."""

    def __init__(self, limit: float, per: float) -> None:
        super().__init__(limit, per)
        self._entries: deque[Entry] = deque()

    def _after_windows(self, moment: float, windows: int) -> float:
        return moment + windows * self._per

    def _earliest(self, moment: float, cost: float) -> float:
        excess = self._used + cost - self.most * (1 + ROUNDING)
        for entry in self._entries:
            if excess <= 0:
                break
            excess -= entry.cost
            moment = max(moment, entry.last + self._per)
        return moment

    def _use(self, now: float, cost: float) -> None:
        self._expire(now)
        entries, resolution = self._entries, self._per / EXACT if self.most > EXACT else 0.0
        if entries and now - entries[-1].first <= resolution:
            first, last, before = entries[-1]
            entries[-1] = Entry(first, max(last, now), before + cost)
        else:
            entries.append(Entry(now, now, cost))
        self._used += cost

    def _room(self, now: float) -> int:
        self._expire(now)
        return floor(self.most * (1 + ROUNDING) - self._used)

    def _expire(self, now: float) -> None:
        entries, until = self._entries, now - self._per + CLOCK_TOLERANCE
        while entries and entries[0].last <= until:
            self._used -= entries.popleft().cost
        if not entries:
            self._used = 0.0  # without rounding errors

    def _forget_other_clock(self, now: float) -> None:
        if self._entries and now < self._entries[-1].last - CLOCK_JUMP:
            self._entries.clear()
            self._used = 0.0

    def _copy(self) -> Self:
        copied = super()._copy()
        copied._entries = self._entries.copy()
        return copied


class FixedWindowPacer(WindowPacer):
    """A pacer that admits ``limit`` in each of the windows of ``per`` seconds that follow one another."""

    def __init__(self, limit: float, per: float) -> None:
        super().__init__(limit, per)
        self._began = inf  # the current window; before the first call there is none

    def _after_windows(self, moment: float, windows: int) -> float:
        if not windows:
            return moment
        return self._began + ((moment - self._began + CLOCK_TOLERANCE) // self._per + windows) * self._per

    def _earliest(self, moment: float, cost: float) -> float:
        if self._in_window(moment) and self._used + cost > self.most * (1 + ROUNDING):
            return self._began + self._per
        return moment

    def _use(self, now: float, cost: float) -> None:
        if not self._in_window(now):
            passed = now - self._began + CLOCK_TOLERANCE
            self._began = now if self._began == inf else self._began + passed // self._per * self._per
            self._used = 0.0
        self._used += cost

    def _room(self, now: float) -> int:
        used = self._used if self._in_window(now) else 0.0
        return floor(self.most * (1 + ROUNDING) - used)

    def _in_window(self, moment: float) -> bool:
        return moment < self._began + self._per - CLOCK_TOLERANCE and self._began != inf

    def _forget_other_clock(self, now: float) -> None:
        if now < self._began - CLOCK_JUMP:
            self._began = inf
