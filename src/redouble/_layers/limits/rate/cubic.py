"""The rate of the AWS SDKs' adaptive mode: a token bucket whose fill rate adapts to throttling.

Rule 1: until the first throttling error calls are only counted, not limited.
Rule 2: the measured rate is the number of results per second, in slices of half a second, smoothed.
Rule 3: throttling cuts the rate to a share of the measured one. From there it grows along a cubic curve:
        quickly at first, slowly near the rate at which it was throttled, then ever faster, to probe for a
        higher one.
Rule 4: the rate fills a token bucket, and each call takes one token.
"""

from __future__ import annotations

from math import cbrt, floor

from redouble._layers.limits.rate.pacing import CLOCK_JUMP, CLOCK_TOLERANCE, NONE_AHEAD, Ahead
from redouble._layers.limits.sampled_counter import SampledCounter

BETA = 0.7  # the share of the rate that is left after throttling
SCALE = 0.4  # how steep the curve is
SMOOTHING = 0.8  # the weight of the latest slice
SLICE = 0.5  # second: the length of a slice
LEAST_CAPACITY = 1.0


class CubicCurve:
    """The CUBIC curve: it returns to ``top``, the last throttled rate, ``plateau`` seconds after the cut."""

    def __init__(self, top: float, since: float, beta: float = BETA, scale: float = SCALE) -> None:
        self.beta, self.scale = beta, scale
        self.cut(top, since)

    def rate_at(self, t: float) -> float:
        """Return the rate at time ``t``, if there was no throttling since the last `cut()`."""
        return self.scale * (t - self.since - self.plateau) ** 3 + self.top

    def cut(self, rate: float, t: float) -> float:
        """Restart the curve at a rate that was throttled, and return the reduced rate."""
        self.top, self.since = rate, t
        self.plateau = cbrt(rate * (1 - self.beta) / self.scale)
        return rate * self.beta


class RateMeter(SampledCounter):
    """A meter of results per second. ``count``: the results that are not included in ``rate`` yet.

    limiting: True since the first throttling.
    """

    def __init__(self, now: float) -> None:
        super().__init__()
        self.rate = 0.0
        self._measured_to = floor(now / SLICE) * SLICE

    def advance(self, now: float) -> None:
        """Update the rate if a slice is over; the result that triggers the update is included."""
        start = floor(now / SLICE) * SLICE
        passed = start - self._measured_to
        if -CLOCK_JUMP <= passed <= 0:
            return
        count = 0
        if passed > 0:  # else the time was read from another clock
            count, self.count = self.count, 0
            self.rate = count / passed * SMOOTHING + self.rate * (1 - SMOOTHING)
        self._measured_to = start
        self.begin_slice(int(count * SLICE / passed), start, start + SLICE)


class AdaptiveTokenBucket:
    """A token bucket whose fill rate adapts to throttling."""

    def __init__(self, now: float, least: float = 0.5) -> None:
        self.meter = RateMeter(now)
        self.rate, self.capacity = 0.0, LEAST_CAPACITY
        self._curve = CubicCurve(0.0, now)
        self._least, self._tokens, self._updated_at = least, 0.0, now

    def record(self, throttled: bool, now: float) -> None:
        """Record how a call ended, and adapt the rate."""
        self._tokens_at(now)  # called because it detects a change of clock
        self.meter.count += 1
        self.meter.advance(now)
        measured = self.meter.rate
        if throttled:
            new = self._curve.cut(min(measured, self.rate) if self.meter.limiting else measured, now)
            if not self.meter.limiting:
                self.meter.limiting, self._tokens, self._updated_at = True, 0.0, now
        else:
            new = self._curve.rate_at(now)
        self.set_rate(min(new, 2 * measured), now)

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate; the tokens in the bucket stay, up to the new capacity."""
        tokens = self._tokens_at(now)
        self.rate = max(rate, self._least)
        self.capacity = max(self.rate, LEAST_CAPACITY)
        self._tokens, self._updated_at = min(tokens, self.capacity), now

    def reconfigure(self, least: float, now: float) -> None:
        """Change the lowest rate; the current one is raised to it."""
        self._least = least
        self.set_rate(self.rate, now)

    def due(self, now: float, cost: float = 1.0, ahead: Ahead = NONE_AHEAD) -> float:
        """Return the seconds until there are tokens for a call, after those ahead of it."""
        if not self.meter.limiting:
            return 0.0
        wait = (cost + ahead.total() - self._tokens_at(now)) / self.rate
        return 0.0 if wait <= CLOCK_TOLERANCE else wait

    def take(self, now: float, cost: float = 1.0) -> None:
        """Take tokens, as many as the cost."""
        if self.meter.limiting:
            self._tokens, self._updated_at = self._tokens_at(now) - cost, now

    def close_fast_path(self) -> None:
        """Do nothing: there is no fast path to close; see ``limiting``."""

    def open_fast_path(self) -> None:
        """Do nothing: there is no fast path to open."""

    def _tokens_at(self, now: float) -> float:
        if now < self._updated_at - CLOCK_JUMP:  # another clock: continue from its time
            self._curve.since += now - self._updated_at
            self._updated_at = now
        return min(self._tokens + (now - self._updated_at) * self.rate, self.capacity)
