"""The latency histogram, from which a hedge learns its delay. Pure: the caller passes the time.

Rule 1: there is no threshold before there were enough calls; then it is an upper bound, too high rather than
        too low.
Rule 2: a call that was cut off counts as one that took as long as it ran: it would have taken at least that
        long. It says nothing if it was cut off before it was among the slow calls.
"""

from __future__ import annotations

from math import ceil, floor, frexp, inf, ldexp

PER_DOUBLING = 16  # steps from a latency to twice that
FINEST = 1 + 1 / PER_DOUBLING  # an estimate is at most this factor too high
LOWEST_POWER, HIGHEST_POWER = -20, 12  # of two: from a microsecond to an hour
STEPS = (HIGHEST_POWER - LOWEST_POWER + 1) * PER_DOUBLING
MIN_CALLS = 20  # before there is a threshold, unless a minimum is given
SHORTEST = 0.001  # second: to act on faster calls gains nothing
WINDOW = 30.0  # seconds: the histogram covers one to two windows
MIN_UPDATE_INTERVAL, MAX_UPDATE_INTERVAL = 16, 1024  # timed calls between updates
SAMPLING_THRESHOLD, SAMPLING_INTERVAL = 2000, 8  # from this many calls, time one in 8


class LatencyHistogram:
    """A histogram of recent latencies, and the threshold that all but a ``share`` of the calls stay under.

    minimum: from how many calls on there is a threshold; None: so many that the share is a whole call.
    shortest, longest: the bounds of the threshold, in seconds.
    factor: the threshold is that many times the latency that all but the share of the calls stay under.
    """

    def __init__(
        self,
        share: float,
        now: float,
        *,
        minimum: int | None = None,
        shortest: float = SHORTEST,
        longest: float = inf,
        factor: float = 1.0,
    ) -> None:
        self._share, self._factor = share, factor
        self._shortest, self._longest = shortest, longest
        self._minimum = minimum or (max(MIN_CALLS, ceil(1 / share)) if share else inf)
        self._current, self._previous = [0] * STEPS, [0] * STEPS
        self._current_total = self._previous_total = 0
        self._until_update = self._minimum  # timed calls until the next update
        self._sample_every = 1  # calls for each timed one
        self._since = now
        self._slow = 0.0  # seconds: all but the share of the calls are faster; 0 before there were enough
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

    def record_cut(self, seconds: float, now: float) -> None:
        """Record a call that was cut off after this time, by a time limit or a cancellation."""
        if seconds * FINEST >= self._slow:
            self.record(seconds, now)

    def reconfigure(self, other: LatencyHistogram) -> None:
        """Adopt the share, the minimum and the bounds of another one, and keep the latencies."""
        self._share, self._factor, self._minimum = other._share, other._factor, other._minimum
        self._shortest, self._longest = other._shortest, other._longest
        self._until_update = min(self._until_update, self._minimum)
        if self._slow:
            self.threshold = self._bounded()

    def _bounded(self) -> float:
        return max(self._shortest, min(self._longest, self._slow * self._factor))

    def _update(self, now: float) -> None:
        total = self._current_total + self._previous_total
        if total >= self._minimum:
            self._slow = self._upper_bound(floor(total * self._share))
            self.threshold = self._bounded()
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
