"""How many calls at once are right, read off how long they take: three ways to tell.

Pure: a sample is how long calls took, how many were under way, and whether one was dropped. A service with
nothing in its queue answers in its own time; when it takes longer, calls are waiting for each other.

Rule 1: a limit that was not used says nothing. While fewer than half of it are under way, it does not grow.
Rule 2: what was dropped counts at once, and however few were under way.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, inf, log10, sqrt
from typing import Protocol

__all__ = ["Aimd", "Gradient", "LimitAlgorithm", "Sample", "Vegas"]


NOISE = 0.001  # second: what takes less cannot be told from the scheduler's, and a coarse clock's, whims


class Sample:
    """What was seen of a few calls: how long they took, the most under way, whether one was dropped."""

    __slots__ = ("dropped", "rtt", "under_way")

    def __init__(self, rtt: float, under_way: int, *, dropped: bool = False) -> None:
        self.rtt, self.under_way, self.dropped = rtt, under_way, dropped


class LimitAlgorithm(Protocol):
    """A way to tell: it is asked with the limit so far, and answers with the next."""

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        ...

    def forget(self) -> None:
        """Forget how long calls take when there is no queue: it may have changed."""
        ...


class Gradient:
    """Follow the ratio of the shortest time to the latest, as Envoy does, leaving room for a short queue."""

    def __init__(self, buffer: float = 0.25) -> None:
        self._buffer = buffer
        self.shortest = inf

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        if sample.dropped:
            return limit * 0.9
        rtt = max(sample.rtt, NOISE)
        self.shortest = min(self.shortest, rtt)
        if sample.under_way * 2 < limit:
            return limit
        gradient = min(2.0, max(0.5, self.shortest * (1 + self._buffer) / rtt))
        return floor(limit * gradient + sqrt(limit * gradient))

    def forget(self) -> None:
        """Learn the shortest time anew."""
        self.shortest = inf


class Vegas:
    """Estimate how many calls wait for each other, and keep that between two bounds, as Netflix does."""

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
        if sample.dropped or (waiting > beta and sample.under_way * 2 >= limit):
            new = limit - step if self._decrease is None else self._decrease(limit)
        elif sample.under_way * 2 < limit or waiting >= alpha:
            return limit
        else:
            new = limit + (beta if waiting <= step else step)
        return (1 - self._smoothing) * limit + self._smoothing * new

    def forget(self) -> None:
        """Learn the shortest time anew."""
        self.shortest = inf


class Aimd:
    """One more as long as all is well, a tenth less when it is not: what TCP does."""

    def __init__(self, slow: float = 5.0, backoff: float = 0.9) -> None:
        self._slow, self._backoff = slow, backoff

    def next(self, limit: float, sample: Sample, /) -> float:
        """Return the next limit."""
        if sample.dropped or sample.rtt > self._slow:
            return int(limit * self._backoff)
        return limit + 1 if sample.under_way * 2 >= limit else limit

    def forget(self) -> None:
        """Do nothing: no time is remembered."""
