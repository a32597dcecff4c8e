"""Three algorithms that derive a concurrency limit from latency: Gradient, Vegas and AIMD.

They are pure functions of samples: how long calls took, how many were in flight, and whether one was dropped.
The shortest latency is that of a service with an empty queue; a longer one means that calls queue there.

Rule 1: a limit that is not used is not raised: it does not grow while fewer than half of it are in flight.
Rule 2: a dropped call lowers the limit at once, however few calls were in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, inf, log10, sqrt
from typing import Protocol

__all__ = ["Aimd", "Gradient", "LimitAlgorithm", "Sample", "Vegas"]


NOISE = 0.001  # second: shorter times are noise of the scheduler and of coarse clocks


class Sample:
    """A sample of a few calls: their latency, the most in flight, and whether one was dropped."""

    __slots__ = ("dropped", "in_flight", "rtt")

    def __init__(self, rtt: float, in_flight: int, *, dropped: bool = False) -> None:
        self.rtt, self.in_flight, self.dropped = rtt, in_flight, dropped


class LimitAlgorithm(Protocol):
    """An algorithm that maps the current limit and a sample to the next limit."""

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        ...

    def forget(self) -> None:
        """Forget the latency without a queue, which may have changed."""
        ...


class Gradient:
    """An algorithm that follows the ratio of the shortest latency to the latest, as Envoy does.

    It allows for a short queue.
    """

    def __init__(self, buffer: float = 0.25) -> None:
        self._buffer = buffer
        self.shortest = inf

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        if sample.dropped:
            return limit * 0.9
        rtt = max(sample.rtt, NOISE)
        self.shortest = min(self.shortest, rtt)
        if sample.in_flight * 2 < limit:
            return limit
        gradient = min(2.0, max(0.5, self.shortest * (1 + self._buffer) / rtt))
        return floor(limit * gradient + sqrt(limit * gradient))

    def forget(self) -> None:
        """Forget the shortest latency."""
        self.shortest = inf


class Vegas:
    """An algorithm that keeps the estimated number of queued calls between two bounds, as Netflix does."""

    def __init__(
        self,
        alpha: float | None = None,
        beta: float | None = None,
        smoothing: float = 1.0,
        decrease: Callable[[float], float] | None = None,
    ) -> None:
        self._alpha, self._beta, self._smoothing = alpha, beta, smoothing
        self._decrease = decrease
        self.shortest = inf

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        step = max(1, int(log10(limit)))
        alpha = 3 * step if self._alpha is None else self._alpha
        beta = 6 * step if self._beta is None else self._beta
        rtt = max(sample.rtt, NOISE)
        if rtt < self.shortest and not sample.dropped:
            self.shortest = rtt
            return limit
        waiting = 0 if sample.dropped else ceil(limit * (1 - self.shortest / rtt))
        if sample.dropped or (waiting > beta and sample.in_flight * 2 >= limit):
            new = limit - step if self._decrease is None else self._decrease(limit)
        elif sample.in_flight * 2 < limit or waiting >= alpha:
            return limit
        else:
            new = limit + (beta if waiting <= step else step)
        return (1 - self._smoothing) * limit + self._smoothing * new

    def forget(self) -> None:
        """Forget the shortest latency."""
        self.shortest = inf


class Aimd:
    """Additive increase, multiplicative decrease, as in TCP: plus one, or minus a tenth after a failure."""

    def __init__(self, slow: float = 5.0, backoff: float = 0.9) -> None:
        self._slow, self._backoff = slow, backoff

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        if sample.dropped or sample.rtt > self._slow:
            return int(limit * self._backoff)
        return limit + 1 if sample.in_flight * 2 >= limit else limit

    def forget(self) -> None:
        """Do nothing: no latency is remembered."""
