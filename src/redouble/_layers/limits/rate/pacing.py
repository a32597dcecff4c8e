"""The GCRA arithmetic of a rate limit, and of the quotas and pauses that a server asks for.

A pacer is passed the time and never waits; `WaitQueue` decides which call waits, and in what order.

Rule 1: ``arrival_time`` is the theoretical arrival time: when the next call would arrive if all calls were
        evenly spaced. A call may pass up to ``slack`` seconds earlier, which makes the burst. Each call moves
        it on by one interval, from the present if it is in the past: permits that were not used are lost. So
        in any t seconds at most t / interval + burst calls pass.
Rule 2: while the fast path is open, ``fast_arrival_time`` is that moment, and the wrapper of a call takes its
        permit with three attribute accesses: between reading and writing there is no call and no loop, so
        that no other thread and no signal handler can run in between. While the fast path is closed,
        ``fast_arrival_time`` is infinity, and ``arrival_time`` is valid. Without a GIL it is always closed.
        `due()` and `available()` work in both states, all other methods while it is closed.
Rule 3: the server's hints about its own limits are kept apart, as ``not_before``: no call passes before that
        moment either. So hints can slow calls down, and never speed them up.
"""

from __future__ import annotations

from math import ceil, floor, inf
from typing import Protocol

from redouble._internal.locks import gil

CLOCK_TOLERANCE = 2e-9  # seconds by which a virtual clock may stop short of the moment it was moved to
CLOCK_JUMP = 1.0  # second: a time that goes back by more was read from another clock


class Pacer(Protocol):
    """The times at which permits become available. Used under the lock of a `WaitQueue`; never waits."""

    def close_fast_path(self) -> None:
        """Make every call ask the pacer."""

    def open_fast_path(self) -> None:
        """Let calls whose permit is available pass without asking the pacer."""

    def due(self, now: float, ahead: int = 0, /) -> float:
        """Return the seconds until a call may pass, after ``ahead`` others; 0.0 if it may pass now."""
        ...

    def take(self, now: float, /) -> None:
        """Take a permit."""


class GcraPacer:
    """A pacer that spaces calls by an interval, and follows the server's hints."""

    def __init__(self, interval: float, burst: int) -> None:
        self.interval, self.slack = interval, interval * (burst - 1)
        self.arrival_time = -inf  # hints never change these
        self.fast_arrival_time = -inf if gil.enabled else inf
        self.not_before, self._hinted_at = -inf, inf
        # From `not_before` to `_spread_until`, calls are `_spread_interval` seconds apart.
        self._spread_interval, self._spread_until = 0.0, -inf

    def close_fast_path(self) -> None:
        """Make every call ask the pacer."""
        if self.fast_arrival_time != inf:
            self.arrival_time = self.fast_arrival_time  # with no call in between, by rule 2
            self.fast_arrival_time = inf

    def open_fast_path(self) -> None:
        """Let calls whose permit is available pass without asking the pacer, unless a hint is in force."""
        if self.fast_arrival_time == inf and self.not_before == -inf and gil.enabled:
            self.fast_arrival_time = self.arrival_time

    def due(self, now: float, ahead: int = 0) -> float:
        """Return the seconds until a call may pass, after ``ahead`` others."""
        self._expire_hints(now)
        arrival, not_before = self.arrival_time, max(self.not_before, now)
        if self._spread_interval:
            first = max(arrival - self.slack, not_before)
            # The number of calls that pass before the end of the spread.
            fit = max(0, ceil((self._spread_until - first) / self._spread_interval - 1e-9))
            if ahead < fit:
                return _rounded(first + ahead * self._spread_interval - now)
            if fit:
                last, ahead = first + (fit - 1) * self._spread_interval, ahead - fit
                arrival = last + self.slack + self.interval
            not_before = max(not_before, self._spread_until)
        own = max(arrival, not_before) - self.slack + ahead * self.interval
        return _rounded(max(not_before, own) - now)

    def available(self, now: float) -> int:
        """Return how many calls could pass now."""
        if self.due(now):
            return 0
        unused = now + self.slack - max(self.arrival_time, now) + CLOCK_TOLERANCE
        return 1 if self._spread_interval else 1 + floor(unused / self.interval)

    def take(self, now: float) -> None:
        """Take a permit."""
        self._expire_hints(now)
        least = now
        if self._spread_interval:  # no burst
            least += self.slack
            self.not_before = min(max(self.not_before, now) + self._spread_interval, self._spread_until)
        self.arrival_time = max(self.arrival_time, least) + self.interval

    def pause(self, seconds: float, now: float) -> None:
        """Hold back all calls for this many seconds."""
        self._expire_hints(now)
        self._hinted_at, self.not_before = now, max(self.not_before, now + seconds)

    def spread(self, calls: int, seconds: float, now: float) -> None:
        """Spread ``calls`` calls evenly over ``seconds`` seconds; then restore the usual interval."""
        self._expire_hints(now)
        self._spread_interval, self._spread_until = 0.0, -inf
        if seconds > calls * self.interval:
            self._hinted_at, self._spread_interval, self._spread_until = now, seconds / calls, now + seconds
            self.not_before = max(self.not_before, now)

    def reconfigure(self, interval: float, burst: int, now: float) -> None:
        """Change the interval and the burst; the used part of the burst stays used."""
        self._expire_hints(now)
        used = min(max((self.arrival_time - now) / self.interval, 0.0), burst)
        self.interval, self.slack = interval, interval * (burst - 1)
        self.arrival_time = now + used * interval

    def _expire_hints(self, now: float) -> None:
        """Forget hints that have expired, and times that were read from another clock."""
        if self.fast_arrival_time != inf:
            self.arrival_time = self.fast_arrival_time
        if self.arrival_time - now > self.slack + self.interval + CLOCK_JUMP:  # never by one clock
            self.arrival_time = -inf
        if now < self._hinted_at - CLOCK_JUMP:
            self.not_before, self._hinted_at, self._spread_interval, self._spread_until = -inf, inf, 0.0, -inf
        if self._spread_until <= now + CLOCK_TOLERANCE:
            self._spread_interval, self._spread_until = 0.0, -inf
            if self.not_before <= now + CLOCK_TOLERANCE:
                self.not_before, self._hinted_at = -inf, inf


def _rounded(wait: float) -> float:
    return 0.0 if wait <= CLOCK_TOLERANCE else wait
