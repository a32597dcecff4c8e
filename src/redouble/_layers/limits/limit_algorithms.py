"""Three algorithms that derive a concurrency limit from latency: Gradient, Vegas and AIMD.

They are pure functions of samples: how long calls took, how many were in flight, and whether one was dropped.
The shortest latency is that of a service with an empty queue; a longer one means that calls queue there.

Rule 1: a limit that is not used is not raised: it does not grow while fewer than half of it are in flight.
Rule 2: a dropped call lowers the limit at once, however few calls were in flight.
"""

from __future__ import annotations

from math import ceil, floor, inf, log10, sqrt
from typing import NamedTuple, Protocol

BUFFER = 0.25  # of the shortest latency: the queue that a gradient allows for
DECREASE = 0.9  # the share of the limit that is left after a dropped call
NOISE = 0.001  # second: shorter times are noise of the scheduler and of coarse clocks


class Sample(NamedTuple):
    """A sample of a few calls: their latency, the most in flight, and whether one was dropped."""

    rtt: float
    in_flight: int
    dropped: bool = False


class LimitAlgorithm(Protocol):
    """An algorithm that maps the current limit and a sample to the next limit.

    shortest: the latency without a queue, for algorithms that compare others with it.
    """

    shortest: float = inf

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        ...

    def forget(self) -> None:
        """Forget the shortest latency, which may have changed."""
        self.shortest = inf


class Gradient(LimitAlgorithm):
    """An algorithm that follows the ratio of the shortest latency to the latest, as Envoy does.

    It allows for a short queue.
    """

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        if sample.dropped:
            return limit * DECREASE
        rtt = max(sample.rtt, NOISE)
        self.shortest = min(self.shortest, rtt)
        if sample.in_flight * 2 < limit:
            return limit
        gradient = min(2.0, max(0.5, self.shortest * (1 + BUFFER) / rtt))
        return floor(limit * gradient + sqrt(limit * gradient))


class Vegas(LimitAlgorithm):
    """An algorithm that keeps the estimated number of queued calls between two bounds, as Netflix does."""

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        step = max(1, int(log10(limit)))
        few, many = 3 * step, 6 * step  # queued calls: raise the limit below, lower it above
        if sample.dropped:
            return limit - step
        rtt = max(sample.rtt, NOISE)
        if rtt < self.shortest:
            self.shortest = rtt
            return limit
        waiting = ceil(limit * (1 - self.shortest / rtt))
        if sample.in_flight * 2 < limit or few <= waiting <= many:
            return limit
        if waiting > many:
            return limit - step
        return limit + (many if waiting <= step else step)


class Aimd(LimitAlgorithm):
    """Additive increase, multiplicative decrease, as in TCP: plus one, or minus a tenth after a failure."""

    def __init__(self, slow: float) -> None:
        self._slow = slow

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        if sample.dropped or sample.rtt > self._slow:
            return int(limit * DECREASE)
        return limit + 1 if sample.in_flight * 2 >= limit else limit
