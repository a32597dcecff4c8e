"""What hedging goes by: how long calls take, and how many extra ones there may be. Pure, and told the time.

Rule 1: nothing is known before there were enough calls; then it is an upper estimate, rather late than early.
Rule 2: at most a share of the calls and one more are extra, counted from the first one on, whatever happens.
"""

from __future__ import annotations

from math import ceil, floor, frexp, inf, ldexp

__all__ = ["HedgeQuota", "LatencyHistogram"]


FINE = 16  # steps to the double: an estimate is less than 1/16 too high
LOWEST, HIGHEST = -20, 12  # powers of two: from a microsecond to an hour
STEPS = (HIGHEST - LOWEST + 1) * FINE
FEWEST = 20  # calls
SHORTEST = 0.001  # second: nobody gains by hedging what takes less
WINDOW = 30.0  # seconds: the data of one to two of these count
OFTEN, SELDOM = 16, 1024  # calls from one look at the data to the next
PLENTY, SOME = 2000, 8  # with so much data, one call of so many is timed
AHEAD = 1000  # calls whose share may be saved up


class LatencyHistogram:
    """How long calls took lately, and the time that all but a ``share`` of them take at most."""

    __slots__ = (
        "_before",
        "_counted",
        "_enough",
        "_every",
        "_left",
        "_now",
        "_old",
        "_share",
        "_since",
        "longest",
        "skip",
    )

    def __init__(self, share: float, now: float) -> None:
        self._share = share
        self._enough = max(FEWEST, ceil(1 / share)) if share else inf
        self._now, self._before = [0] * STEPS, [0] * STEPS
        self._counted = self._old = 0  # how many there are in each
        self._left, self._every = OFTEN, 1  # calls until the next look, and to the next that is timed
        self._since = now
        self.skip = 0  # calls that need not be timed, before the next that is
        self.longest: float | None = None  # what all but the share stay under; None if that is not known

    def record(self, seconds: float, now: float) -> None:
        """Take in how long a call took, or at least took."""
        part, power = frexp(seconds if seconds > 0 else 1e-9)
        step = (power - LOWEST) * FINE + int(part * 2 * FINE) - FINE
        self._now[0 if step < 0 else step if step < STEPS else STEPS - 1] += 1
        self._counted += 1
        self.skip = self._every
        self._left -= 1
        if self._left <= 0:
            self._look(now)

    def _look(self, now: float) -> None:
        total = self._counted + self._old
        if total >= self._enough:
            self.longest = max(SHORTEST, self._edge(floor(total * self._share)))
            if self._counted >= self._enough and not 0 <= now - self._since < WINDOW:
                self._before, self._now, self._since = self._now, [0] * STEPS, now
                self._counted, self._old = 0, self._counted
        self._left = max(OFTEN, min(SELDOM, total // OFTEN))
        self._every = 1 if total < PLENTY else SOME

    def _edge(self, over: int) -> float:
        """Return what no more than ``over`` of those counted took longer than."""
        place = STEPS - 1
        while place > 0 and (there := self._now[place] + self._before[place]) <= over:
            over -= there
            place -= 1
        power, step = divmod(place, FINE)
        return ldexp((FINE + step + 1) / (2 * FINE), power + LOWEST)


class HedgeQuota:
    """How many extra calls there may be: a share of all calls, and one. ``calls``: all that there were."""

    __slots__ = ("_given", "_share", "calls")

    def __init__(self, share: float | None) -> None:
        self._share = share
        self.calls = 0
        self._given = 0.0  # out, or lost because nobody used it in time

    def spend(self) -> bool:
        """Allow an extra call, or not."""
        if self._share is None:
            return True
        earned = 1 + self.calls * self._share
        self._given = max(self._given, earned - 1 - AHEAD * self._share)
        if earned - self._given < 1 - 1e-9:
            return False
        self._given += 1
        return True

    def refund(self) -> None:
        """Take one back that never started."""
        self._given -= 1
