"""The adaptive mode of the AWS SDKs: how fast to call, learned from being throttled. It is told the time.

Rule 1: off until the first throttling; until then nothing is limited, and only counted.
Rule 2: what is measured are answers per second, in halves of a second, smoothed.
Rule 3: throttling cuts the rate to a share of what was measured. From there it grows along a cubic curve:
        quickly at first, slowly near where it was throttled, then faster and faster, to find out what more
        there is.
Rule 4: the rate fills a bucket of tokens, and a call takes one.
"""

from __future__ import annotations

from math import cbrt, floor

from redouble._layers.limits.counting_gate import SampledCounter
from redouble._layers.limits.pacing import BACK, SMALLEST

__all__ = ["AdaptiveTokenBucket", "CubicCurve", "RateMeter"]


BETA = 0.7  # what is left of the rate after throttling
SCALE = 0.4  # how steep the curve is
SMOOTH = 0.8  # how much the latest half second counts
HALF = 0.5  # second: what is measured at a time
LEAST_CAPACITY = 1.0


class CubicCurve:
    """The curve: it comes back to ``top``, where it was throttled last, ``plateau`` seconds after that."""

    __slots__ = ("beta", "plateau", "scale", "since", "top")

    def __init__(self, top: float, since: float, beta: float = BETA, scale: float = SCALE) -> None:
        self.beta, self.scale = beta, scale
        self._begin(top, since)

    def grown(self, t: float) -> float:
        """Return the rate at a moment without throttling."""
        return self.scale * (t - self.since - self.plateau) ** 3 + self.top

    def cut(self, rate: float, t: float) -> float:
        """Return the rate after being throttled at this one."""
        self._begin(rate, t)
        return rate * self.beta

    def _begin(self, top: float, since: float) -> None:
        self.top, self.since = top, since
        self.plateau = cbrt(top * (1 - self.beta) / self.scale)


class RateMeter(SampledCounter):
    """How many answers there are per second. ``count``: those that are not part of it yet."""

    __slots__ = ("_from", "rate")

    def __init__(self, now: float) -> None:
        super().__init__()
        self.rate = 0.0
        self._from = floor(now / HALF) * HALF

    def look(self, now: float) -> None:
        """Take in what was counted, if a half second is over; the answer that shows it is part of it."""
        start = floor(now / HALF) * HALF
        passed = start - self._from
        if -BACK <= passed <= 0:
            return
        count = 0
        if passed > 0:  # else it is another clock
            count, self.count = self.count, 0
            self.rate = count / passed * SMOOTH + self.rate * (1 - SMOOTH)
        self._from = start
        self.begin(int(count * HALF / passed), start, start + HALF)


class AdaptiveTokenBucket:
    """The rate as it comes and goes, and the tokens it brings."""

    __slots__ = ("_cubic", "_least", "_tokens", "_when", "capacity", "measured", "on", "rate")

    def __init__(self, now: float, least: float = 0.5) -> None:
        self.measured = RateMeter(now)
        self.on = False
        self.rate, self.capacity = 0.0, LEAST_CAPACITY
        self._cubic = CubicCurve(0.0, now)
        self._least, self._tokens, self._when = least, 0.0, now

    def learn(self, throttled: bool, now: float) -> None:
        """Take in how a call ended."""
        self._have(now)  # by another clock, perhaps
        self.measured.count += 1
        self.measured.look(now)
        measured = self.measured.rate
        if throttled:
            new = self._cubic.cut(min(measured, self.rate) if self.on else measured, now)
            if not self.on:
                self.on, self._tokens, self._when = True, 0.0, now
        else:
            new = self._cubic.grown(now)
        self.set(min(new, 2 * measured), now)

    def set(self, rate: float, now: float) -> None:
        """Go on at another rate; what is in the bucket stays, as far as it fits."""
        tokens = self._have(now)
        self.rate = max(rate, self._least)
        self.capacity = max(self.rate, LEAST_CAPACITY)
        self._tokens, self._when = min(tokens, self.capacity), now

    def due(self, now: float, ahead: int = 0) -> float:
        """Tell in how many seconds there is a token, after so many others."""
        if not self.on:
            return 0.0
        wait = (1 + ahead - self._have(now)) / self.rate
        return 0.0 if wait <= SMALLEST else wait

    def take(self, now: float) -> None:
        """Take a token."""
        if self.on:
            self._tokens, self._when = self._have(now) - 1, now

    def hold(self) -> None:
        """Nobody passes unasked once it is on."""

    def release(self) -> None:
        """Nor afterwards."""

    def _have(self, now: float) -> float:
        if now < self._when - BACK:  # another clock: go on from here
            self._cubic.since += now - self._when
            self._when = now
        return min(self._tokens + (now - self._when) * self.rate, self.capacity)
