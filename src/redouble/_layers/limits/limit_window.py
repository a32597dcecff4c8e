"""A concurrency limit that changes once per window, according to the samples of that window.

Rule 1: one change for each window, whatever happens in it; a window lasts until there are enough samples.
Rule 2: the latency without a queue is relearned from time to time; otherwise a service that became slower
        would count as overloaded for ever. For that, the limit is halved for one window, unless few calls
        are in flight anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from redouble._failures.verdict import On, Until
from redouble._layers.limits.limit_algorithms import LimitAlgorithm, Sample
from redouble._layers.limits.ranked_slots import Order
from redouble._layers.limits.rate.pacing import CLOCK_JUMP
from redouble._layers.limits.shares import PriorityOption
from redouble._runtime.clock import Chance

MIN_SAMPLES = 10  # calls: fewer are not significant
MAX_SAMPLES = 128  # calls of a window whose latency is recorded
FIRST_RELEARN = 5  # windows until the first relearning: the first ones may have been measured under load
JITTER = 0.15  # of the time until relearning, because otherwise all clients would relearn at once


By = Literal["gradient", "vegas", "aimd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveConcurrencySettings:
    """The validated options of an `AdaptiveConcurrency`."""

    initial: int
    least: int
    most: int
    by: By
    window: float
    on: On
    until: Until | None
    queue: int
    wait: float | None
    order: Order
    shares: Mapping[str, float] | None
    priority: PriorityOption
    slow: float
    relearn: float
    name: str | None
    random: Chance

    @property
    def ranked(self) -> bool:
        """True if calls take slots, for which they may wait, or which have classes."""
        return self.queue > 0 or self.shares is not None


class WindowedLimit:
    """A limit from ``least`` to ``most``, and the samples of the current window."""

    def __init__(self, settings: AdaptiveConcurrencySettings, algorithm: LimitAlgorithm, now: float) -> None:
        self._settings, self._algorithm = settings, algorithm
        self._limit = float(settings.initial)
        self._limit_to_restore: float = 0.0  # the limit before it was halved for relearning
        self._open_window(now)
        self._relearn_at = now + min(settings.relearn, FIRST_RELEARN * settings.window)

    def _open_window(self, now: float) -> None:
        self.since, self.end = now, now + self._settings.window
        self._max_in_flight, self._dropped, self._calls = 0, False, 0
        self._rtts: list[float] = []

    def reconfigure(self, settings: AdaptiveConcurrencySettings) -> None:
        """Apply other settings; the limit stays, within the new bounds."""
        self._settings = settings
        self._limit = self._bounded(self._limit)

    @property
    def limit(self) -> int:
        """The number of calls that may be in flight."""
        return int(self._limit)

    def record(self, seconds: float | None, in_flight: int, now: float, *, dropped: bool = False) -> int:
        """Record a call by its latency, or as dropped.

        Return the number of calls in the window if it ends with this one, so that the limit may have changed;
        else 0.
        """
        if now < self.since - CLOCK_JUMP:  # the time was read from another clock: start a new window
            self._open_window(now)
            self._schedule_relearning(now)
        self.collect(seconds, in_flight, now)
        self._dropped = self._dropped or dropped
        enough = len(self._rtts) >= MIN_SAMPLES or self._dropped
        if now < self.end or not enough:
            return 0
        calls = self._calls
        self._close_window(now)
        return calls

    def collect(self, seconds: float | None, in_flight: int, now: float) -> None:
        """Record a call before the window is over; no lock is needed, since the limit does not change."""
        self._calls += 1
        if in_flight > self._max_in_flight:
            self._max_in_flight = in_flight
        if seconds is None or len(self._rtts) >= MAX_SAMPLES:
            return
        # While relearning, calls that began before the limit was halved do not count.
        if not self._limit_to_restore or now - seconds >= self.since:
            self._rtts.append(seconds)

    def _close_window(self, now: float) -> None:
        rtt = median_low(self._rtts) if self._rtts else 0.0
        sample = Sample(rtt, self._max_in_flight, dropped=self._dropped)
        limit_to_restore, self._limit_to_restore = self._limit_to_restore, 0.0
        new = self._algorithm.next(self._limit, sample)
        if limit_to_restore and not sample.dropped:
            new = limit_to_restore
        self._limit = self._bounded(new)
        if now >= self._relearn_at and not sample.dropped:
            self._algorithm.forget()
            self._schedule_relearning(now)
            if self._max_in_flight * 2 >= self._limit:
                self._limit_to_restore, self._limit = self._limit, self._bounded(self._limit / 2)
        self._open_window(now)

    def _bounded(self, limit: float) -> float:
        return max(float(self._settings.least), min(float(self._settings.most), limit))

    def _schedule_relearning(self, now: float) -> None:
        jitter = JITTER * (2 * self._settings.random.random() - 1)
        self._relearn_at = now + self._settings.relearn * (1 + jitter)
