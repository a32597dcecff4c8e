"""A limit that is set anew from time to time, by what was seen of the calls meanwhile. It is told the time.

Rule 1: one change for each window, whatever happens in it; a window lasts until there is enough to go by.
Rule 2: what calls take when nothing waits is learned anew now and then, or a service that became slower would
        be taken for overloaded for ever. To see it, half of the calls are held off for one window, unless
        there are few anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median_low

from redouble._layers.limits.limit_algorithms import LimitAlgorithm, Sample
from redouble._layers.limits.pacing import BACK

__all__ = ["WindowedLimit"]


FEW = 10  # calls: fewer say nothing
MOST = 128  # calls of a window that are looked at
SOON = 5  # windows: when to learn anew for the first time, having begun anywhere
JITTER = 0.15  # of the time to learning anew, or all clients would do so at once


class WindowedLimit:
    """The limit, from ``least`` to ``most``."""

    __slots__ = (
        "_dropped",
        "_forget_at",
        "_least",
        "_limit",
        "_most",
        "_random",
        "_relearn",
        "_restore",
        "_rtts",
        "_seen",
        "_under_way",
        "_way",
        "_window",
        "edge",
        "since",
    )

    def __init__(
        self,
        way: LimitAlgorithm,
        initial: int,
        least: int,
        most: int,
        window: float,
        relearn: float,
        now: float,
        random: Callable[[], float],
    ) -> None:
        self._way, self._least, self._most = way, least, most
        self._window, self._relearn, self._random = window, relearn, random
        self._limit = float(initial)
        self._restore: float = 0.0  # the limit before it was halved to learn something
        self._dropped, self._under_way, self._seen = False, 0, 0
        self._begin(now)
        self._forget_at = now + min(relearn, SOON * window)

    @property
    def limit(self) -> int:
        """How many may be under way."""
        return max(self._least, min(self._most, int(self._limit)))

    def saw(self, seconds: float | None, under_way: int, now: float, *, dropped: bool = False) -> int:
        """Take in a call that took so long, or was dropped.

        If a window ends with it, so that there may be another limit, say how many calls it had.
        """
        if now < self.since - BACK:  # another clock
            self._begin(now)
            self._schedule(now)
        self.add(seconds, under_way, now)
        self._dropped = self._dropped or dropped
        enough = len(self._rtts) >= FEW or self._dropped
        if now < self.edge or not enough:
            return 0
        seen = self._seen
        self._end(now)
        return seen

    def add(self, seconds: float | None, under_way: int, now: float) -> None:
        """Take in a call before the window is over; that needs no lock, for nothing is decided."""
        self._seen += 1
        if under_way > self._under_way:
            self._under_way = under_way
        if seconds is None or len(self._rtts) >= MOST:
            return
        if not self._restore or now - seconds >= self.since:  # else it began before calls were held off
            self._rtts.append(seconds)

    def _end(self, now: float) -> None:
        rtt = median_low(self._rtts) if self._rtts else 0.0
        sample = Sample(rtt, self._under_way, dropped=self._dropped)
        learning, self._restore = self._restore, 0.0
        new = self._way.next(self._limit, sample)
        if learning and not sample.dropped:
            new = learning
        self._limit = max(float(self._least), min(float(self._most), new))
        if now >= self._forget_at and not sample.dropped:
            self._way.forget()
            self._schedule(now)
            if self._under_way * 2 >= self._limit:
                self._restore, self._limit = self._limit, max(float(self._least), self._limit / 2)
        self._begin(now)

    def _begin(self, now: float) -> None:
        self.since, self.edge = now, now + self._window
        self._under_way, self._dropped, self._seen = 0, False, 0
        self._rtts: list[float] = []

    def _schedule(self, now: float) -> None:
        self._forget_at = now + self._relearn * (1 + JITTER * (2 * self._random() - 1))
