"""The latency histogram and the quota of extra calls of a hedge. Pure: the caller passes the time.

Rule 1: there is no threshold before there were enough calls; then it is an upper bound, too late rather than
        too early.
Rule 2: extra calls never exceed the share of all calls plus one, counted from the first call.
"""

from __future__ import annotations

from math import ceil, floor, frexp, inf, ldexp

PER_DOUBLING = 16  # steps from a latency to twice that: an estimate is less than 1/16 too high
LOWEST_POWER, HIGHEST_POWER = -20, 12  # of two: from a microsecond to an hour
STEPS = (HIGHEST_POWER - LOWEST_POWER + 1) * PER_DOUBLING
MIN_CALLS = 20  # before there is a threshold
SHORTEST_DELAY = 0.001  # second: hedging faster calls gains nothing
WINDOW = 30.0  # seconds: the histogram covers one to two windows
MIN_UPDATE_INTERVAL, MAX_UPDATE_INTERVAL = 16, 1024  # timed calls between updates
SAMPLING_THRESHOLD, SAMPLING_INTERVAL = 2000, 8  # from this many calls, time one in 8
MAX_SAVED_CALLS = 1000  # calls whose share of extra calls may be saved up


class LatencyHistogram:
    """A histogram of recent latencies, and the threshold that all but a ``share`` of the calls stay under."""

    def __init__(self, share: float, now: float) -> None:
        self._share = share
        self._minimum = max(MIN_CALLS, ceil(1 / share)) if share else inf
        self._current, self._previous = [0] * STEPS, [0] * STEPS
        self._current_total = self._previous_total = 0
        self._until_update = MIN_UPDATE_INTERVAL  # timed calls until the next update
        self._sample_every = 1  # calls for each timed one
        self._since = now
        self.skip = 0  # calls before the next timed one
        self.threshold: float | None = None  # seconds; None before there were enough calls

    def record(self, seconds: float, now: float) -> None:
        """Record the latency of a call."""
        part, power = frexp(seconds if seconds > 0 else 1e-9)
        step = (power - LOWEST_POWER) * PER_DOUBLING + int(part * 2 * PER_DOUBLING) - PER_DOUBLING
        self._current[0 if step < 0 else step if step < STEPS else STEPS - 1] += 1
        self._current_total += 1
        self.skip = self._sample_every
        self._until_update -= 1
        if self._until_update <= 0:
            self._update(now)

    def _update(self, now: float) -> None:
        total = self._current_total + self._previous_total
        if total >= self._minimum:
            self.threshold = max(SHORTEST_DELAY, self._upper_bound(floor(total * self._share)))
            if self._current_total >= self._minimum and not 0 <= now - self._since < WINDOW:
                self._previous, self._current, self._since = self._current, [0] * STEPS, now
                self._current_total, self._previous_total = 0, self._current_total
        self._until_update = max(MIN_UPDATE_INTERVAL, min(MAX_UPDATE_INTERVAL, total // MIN_UPDATE_INTERVAL))
        self._sample_every = 1 if total < SAMPLING_THRESHOLD else SAMPLING_INTERVAL

    def _upper_bound(self, over: int) -> float:
        """Return a latency that at most ``over`` of the counted calls exceeded."""
        place = STEPS - 1
        while place > 0 and (count := self._current[place] + self._previous[place]) <= over:
            over -= count
            place -= 1
        power, step = divmod(place, PER_DOUBLING)
        return ldexp((PER_DOUBLING + step + 1) / (2 * PER_DOUBLING), power + LOWEST_POWER)


class HedgeQuota:
    """The quota of extra calls: a share of all calls, and one more. ``calls``: how many calls there were."""

    def __init__(self, share: float | None) -> None:
        self._share = share
        self.calls = 0
        self._spent = 0.0  # extra calls, and the part of the quota that expired unused

    def spend(self) -> bool:
        """Return True and count an extra call if the quota allows it."""
        if self._share is None:
            return True
        earned = 1 + self.calls * self._share
        self._spent = max(self._spent, earned - 1 - MAX_SAVED_CALLS * self._share)
        if earned - self._spent < 1 - 1e-9:
            return False
        self._spent += 1
        return True

    def refund(self) -> None:
        """Return the quota of an extra call that never started."""
        self._spent -= 1
