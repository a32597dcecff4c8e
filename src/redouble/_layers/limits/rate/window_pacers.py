"""Pacers that count the calls of a window, instead of spacing them: a sliding one and fixed ones.

Rule 1: a sliding window holds in every window of ``per`` seconds, wherever it begins. Each call is kept until
        it is ``per`` seconds old; a permit that was used becomes available again at exactly that moment.
Rule 2: calls at the same time are kept as one. If the window has `EXACT` entries, so are calls within a
        ten-thousandth of the period, with the time of the last: the memory has a bound, permits become
        available a little later, and never earlier.
Rule 3: fixed windows follow one another from the first call on. Each has all permits at once, and what it
        leaves is lost. Twice the limit may begin around the border of two windows.
"""

from __future__ import annotations

from collections import deque
from math import floor, inf
from typing import NamedTuple, Self

from redouble._layers.limits.rate.pacing import CLOCK_JUMP, CLOCK_TOLERANCE, ROUNDING, Ahead, FollowingPacer

EXACT = 10_000  # entries in a window: with more, calls are not all kept apart


class Entry(NamedTuple):
    """Calls of a sliding window that expire together: when the first and the last began, and their cost."""

    first: float
    last: float
    cost: float


class SlidingWindowPacer(FollowingPacer):
    """A pacer that admits ``limit`` in every window of ``per`` seconds."""

    def __init__(self, limit: float, per: float) -> None:
        super().__init__(per / limit, limit)
        self._per = per
        self._used = 0.0
        self._entries: deque[Entry] = deque()

    def reconfigure(self, limit: float, per: float, now: float) -> None:
        """Change the limit and the period; the calls of the window still count."""
        self._adjust(now)
        self.interval, self.most, self._per = per / limit, limit, per

    def _earliest(self, moment: float, cost: float) -> float:
        excess = self._used + cost - self.most * (1 + ROUNDING)
        for entry in self._entries:
            if excess <= 0:
                break
            excess -= entry.cost
            moment = max(moment, entry.last + self._per)
        return moment

    def _earliest_behind(self, moment: float, cost: float, ahead: Ahead) -> float | None:
        if not ahead.all_cost(cost):
            return None
        # Each call begins a period after the one whose permits it takes.
        fit = self.most * (1 + ROUNDING) // cost
        periods, position = divmod(ahead.number, fit)
        return self._earliest(moment, (position + 1) * cost) + periods * self._per

    def _use(self, now: float, cost: float) -> None:
        self._expire(now)
        entries = self._entries
        resolution = self._per / EXACT if len(entries) >= EXACT else 0.0
        entry, used = Entry(now, now, cost), self._used + cost
        merged = bool(entries) and now - entries[-1].first <= resolution
        if merged:
            first, last, others = entries[-1]
            entry = Entry(first, max(last, now), others + cost)
        # No call from here on: a signal handler may raise after one, and `_used` is the sum of the entries.
        if merged:
            entries[-1] = entry
        else:
            entries += (entry,)
        self._used = used

    def _room(self, now: float) -> int:
        self._expire(now)
        return floor(self.most * (1 + ROUNDING) - self._used)

    def _expire(self, now: float) -> None:
        entries, until = self._entries, now - self._per + CLOCK_TOLERANCE
        while entries and entries[0].last <= until:
            used = self._used - entries[0].cost
            del entries[0]  # no call here either
            self._used = used
        if not entries:
            self._used = 0.0  # without rounding errors

    def _forget_other_clock(self, now: float) -> None:
        if self._entries and now < self._entries[-1].last - CLOCK_JUMP:
            self._entries, self._used = deque(), 0.0

    def copy(self) -> Self:
        copied = super().copy()
        copied._entries = self._entries.copy()
        return copied


class FixedWindowPacer(FollowingPacer):
    """A pacer that admits ``limit`` in each of the windows of ``per`` seconds that follow one another."""

    def __init__(self, limit: float, per: float) -> None:
        super().__init__(per / limit, limit)
        self._per = per
        self._used = 0.0
        self._began = inf  # the current window; before the first call there is none

    def reconfigure(self, limit: float, per: float, now: float) -> None:
        """Change the limit and the period; the calls of the window still count."""
        self._adjust(now)
        self.interval, self.most, self._per = per / limit, limit, per

    def _earliest(self, moment: float, cost: float) -> float:
        if self._in_window(moment) and self._used + cost > self.most * (1 + ROUNDING):
            return self._began + self._per
        return moment

    def _earliest_behind(self, moment: float, cost: float, ahead: Ahead) -> float | None:
        if not ahead.all_cost(cost):
            return None
        most, number = self.most * (1 + ROUNDING), ahead.number
        room = max(0.0, (most - self._used_at(moment)) // cost)
        if number < room:
            return moment
        windows = 1 + (number - room) // (most // cost)
        return self._begin_of_window(moment) + windows * self._per

    def _use(self, now: float, cost: float) -> None:
        if not self._in_window(now):
            self._began, self._used = self._begin_of_window(now), 0.0
        self._used += cost

    def _room(self, now: float) -> int:
        return floor(self.most * (1 + ROUNDING) - self._used_at(now))

    def _used_at(self, moment: float) -> float:
        """Return what is used of the window of a moment."""
        return self._used if self._in_window(moment) else 0.0

    def _begin_of_window(self, moment: float) -> float:
        """Return the begin of the window of a moment; the first call begins the first window."""
        if self._began == inf:
            return moment
        passed = max(0.0, moment - self._began + CLOCK_TOLERANCE)
        return self._began + passed // self._per * self._per

    def _in_window(self, moment: float) -> bool:
        return moment < self._began + self._per - CLOCK_TOLERANCE and self._began != inf

    def _forget_other_clock(self, now: float) -> None:
        if now < self._began - CLOCK_JUMP:
            self._began = inf
