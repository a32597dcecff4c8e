"""The arithmetic of a rate limit: GCRA, and the quotas and pauses that a server asks for.

A pacer is passed the time and never waits; `WaitQueue` decides which call waits, and in what order. The
windows of a rate limit are pacers too: see `window_pacers`.

Rule 1: ``arrival_time`` is the theoretical arrival time: when the next call would arrive if all calls were
        evenly spaced. A call may pass up to ``slack`` seconds earlier, which makes the burst. Each call moves
        it on by one interval, from the present if it is in the past: permits that were not used are lost. So
        in any t seconds at most t / interval + burst calls pass. A call that costs n moves it on by n
        intervals and may pass n - 1 intervals later than one that costs 1, so the same holds for the costs.
Rule 2: while the fast path is open, ``fast_arrival_time`` is that moment, and the wrapper of a call takes its
        permit with three attribute accesses: between reading and writing there is no call and no loop, so
        that no other thread and no signal handler can run in between. While the fast path is closed,
        ``fast_arrival_time`` is infinity, and ``arrival_time`` is valid. Without a GIL it is always closed.
        `due()` and `available()` work in both states, all other methods while it is closed.
Rule 3: the server's hints about its own limits are kept apart, as ``not_before``: no call passes before that
        moment either. So hints can slow calls down, and never speed them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import floor, inf
from typing import NamedTuple, Protocol, Self

from redouble._internal.locks import gil

CLOCK_TOLERANCE = 2e-9  # seconds by which a virtual clock may stop short of the moment it was moved to
CLOCK_JUMP = 1.0  # second: a time that goes back by more was read from another clock
ROUNDING = 1e-9  # the share of a limit, or of an interval, that is a rounding error
LOOKAHEAD = 32  # calls ahead whose times are computed one by one; behind more of them it is estimated


class Ahead(NamedTuple):
    """The calls that pass before another one.

    numbers: how many there are of each cost. costs: the cost of each, in order; it may be iterated once.
    """

    numbers: Mapping[float, int]
    costs: Iterable[float]

    @staticmethod
    def of(costs: Sequence[float]) -> Ahead:
        """Return calls with these costs."""
        return Ahead(Counter(costs), costs)

    @property
    def number(self) -> int:
        """How many calls there are."""
        return sum(self.numbers.values())

    def all_cost(self, cost: float) -> bool:
        """Return True if all calls have this cost."""
        return len(self.numbers) == 1 and cost in self.numbers

    def total(self, most: float = inf) -> float:
        """Return the sum of the costs, without those above ``most``: these calls will be rejected."""
        return sum(cost * number for cost, number in self.numbers.items() if cost <= most)


NONE_AHEAD = Ahead({}, ())


class Pacer(Protocol):
    """The times at which permits become available. Used under the lock of a `WaitQueue`; never waits."""

    def close_fast_path(self) -> None:
        """Make every call ask the pacer."""

    def open_fast_path(self) -> None:
        """Let calls whose permit is available pass without asking the pacer."""

    def due(self, now: float, cost: float = 1.0, ahead: Ahead = NONE_AHEAD, /) -> float:
        """Return the seconds until a call may pass, after those ahead of it.

        0.0 if it may pass now; infinity if its cost is more than there can ever be.
        """
        ...

    def take(self, now: float, cost: float = 1.0, /) -> None:
        """Take permits, as many as the cost."""


class FollowingPacer:
    """What is common to the pacers of a rate limit: the server's hints, and calls that wait for others.

    A subclass computes `_earliest` and `_earliest_behind`, records in `_use`, and knows nothing of hints.
    """

    # Those of a wrapper's fast path, for a pacer without one.
    fast_arrival_time, slack = inf, 0.0

    def __init__(self, interval: float, most: float) -> None:
        """Create a pacer for a rate of one per ``interval``; ``most``: the highest cost that may pass."""
        self.interval, self.most = interval, most
        self.not_before, self._hinted_at = -inf, inf
        # From `not_before` to `_spread_until`, calls are `_spread_interval` seconds apart.
        self._spread_interval, self._spread_until = 0.0, -inf

    def close_fast_path(self) -> None:
        """Make every call ask the pacer."""

    def open_fast_path(self) -> None:
        """Let calls whose permit is available pass without asking the pacer."""

    def due(self, now: float, cost: float = 1.0, ahead: Ahead = NONE_AHEAD) -> float:
        """Return the seconds until a call may pass, after those ahead of it; or infinity."""
        if cost > self.most:
            return inf
        self._adjust(now)
        begins: float | None
        if not ahead.numbers:
            begins = self._earliest_allowed(now, cost)
        elif self._spread_interval:
            begins = self._behind_spread(now, cost, ahead) if ahead.number > LOOKAHEAD else None
        else:
            begins = self._earliest_behind(max(now, self.not_before), cost, ahead)
        wait = (self._simulated(now, cost, ahead) if begins is None else begins) - now
        return 0.0 if wait <= CLOCK_TOLERANCE else wait

    @property
    def current_interval(self) -> float:
        """The seconds between two permits: those of a hint while one is in force."""
        return self._spread_interval or self.interval

    def _behind_spread(self, now: float, cost: float, ahead: Ahead) -> float:
        """Return about when a call may pass after many others, of which some use up a spread quota."""
        begins, number = self._earliest_allowed(now, cost), ahead.total(self.most)
        fit = (self._spread_until - begins) / self._spread_interval
        if number < fit:
            return begins + number * self._spread_interval
        return self._spread_until + (number - fit) * self.interval

    def _simulated(self, now: float, cost: float, ahead: Ahead) -> float:
        """Return when a call may pass after those ahead of it, by letting each of them pass a copy."""
        pacer, begins = self.copy(), now
        for other in ahead.costs:
            if other <= self.most:  # else it will be rejected
                begins = pacer._earliest_allowed(begins, other)
                pacer.take(begins, other)
        pacer._adjust(begins)
        return pacer._earliest_allowed(begins, cost)

    def available(self, now: float) -> int:
        """Return how many calls with a cost of 1 could pass now."""
        if self.due(now):
            return 0
        return 1 if self._spread_interval else self._room(now)

    def take(self, now: float, cost: float = 1.0) -> None:
        """Take permits, as many as the cost."""
        self._adjust(now)
        self._use(now, cost)
        if self._spread_interval:
            after = max(self.not_before, now) + cost * self._spread_interval
            self.not_before = min(after, self._spread_until)

    def rate(self, now: float) -> float:
        """Return the current rate, in calls a second: that of a hint while one is in force."""
        self._adjust(now)
        if self._spread_interval:
            return 1 / self._spread_interval
        return 0.0 if self.not_before > now + CLOCK_TOLERANCE else 1 / self.interval

    def pause(self, seconds: float, now: float) -> None:
        """Hold back all calls for this many seconds."""
        self._adjust(now)
        self._hinted_at, self.not_before = now, max(self.not_before, now + seconds)

    def spread(self, calls: int, seconds: float, now: float) -> None:
        """Spread ``calls`` calls evenly over ``seconds`` seconds; then restore the usual interval."""
        self._adjust(now)
        self._spread_interval, self._spread_until = 0.0, -inf
        if seconds > calls * self.interval:
            self._hinted_at, self._spread_interval, self._spread_until = now, seconds / calls, now + seconds
            self.not_before = max(self.not_before, now)

    def _earliest_allowed(self, moment: float, cost: float) -> float:
        """Return the first moment from this one on at which a call may pass, by rate and by hints."""
        begins = max(self._earliest(moment, cost), self.not_before)
        if self._spread_interval and begins < self._spread_until:
            # A call that costs more than what is left of the quota waits for its end.
            last = begins + max(0.0, cost - 1) * self._spread_interval
            if last >= self._spread_until - ROUNDING * self._spread_interval:
                begins = self._spread_until
        return begins

    def _adjust(self, now: float) -> None:
        """Forget hints that have expired, and times that were read from another clock."""
        self._forget_other_clock(now)
        if now < self._hinted_at - CLOCK_JUMP:
            self.not_before, self._hinted_at, self._spread_interval, self._spread_until = -inf, inf, 0.0, -inf
        if self._spread_until <= now + CLOCK_TOLERANCE:
            self._spread_interval, self._spread_until = 0.0, -inf
            if self.not_before <= now + CLOCK_TOLERANCE:
                self.not_before, self._hinted_at = -inf, inf

    def copy(self) -> Self:
        """Return a pacer with the same state, to look ahead."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def _earliest(self, moment: float, cost: float) -> float:
        """Return the first moment from this one on at which a call may pass, by the rate alone."""
        raise NotImplementedError

    def _earliest_behind(self, moment: float, cost: float, ahead: Ahead) -> float | None:
        """Return the same for a call behind others; None if each of them has to be looked at."""
        raise NotImplementedError

    def _use(self, now: float, cost: float) -> None:
        """Record a call that passes now."""
        raise NotImplementedError

    def _room(self, now: float) -> int:
        """Return how many calls with a cost of 1 could pass now, by the rate alone; at least one can."""
        raise NotImplementedError

    def _forget_other_clock(self, now: float) -> None:
        """Forget times that were read from another clock."""
        raise NotImplementedError


class GcraPacer(FollowingPacer):
    """A pacer that spaces calls by an interval, and follows the server's hints.

    fast: calls without a cost may take the fast path.
    """

    def __init__(self, interval: float, burst: int, *, fast: bool = True) -> None:
        super().__init__(interval, burst)
        self.slack = interval * (burst - 1)
        self.arrival_time = -inf  # hints never change these
        self._fast = fast and gil.enabled
        self.fast_arrival_time = -inf if self._fast else inf

    def close_fast_path(self) -> None:
        if self.fast_arrival_time != inf:
            self.arrival_time = self.fast_arrival_time  # with no call in between, by rule 2
            self.fast_arrival_time = inf

    def open_fast_path(self) -> None:
        """Let calls whose permit is available pass without asking the pacer, unless a hint is in force."""
        if self.fast_arrival_time == inf and self.not_before == -inf and self._fast:
            self.fast_arrival_time = self.arrival_time

    def reconfigure(self, interval: float, burst: int, now: float) -> None:
        """Change the interval and the burst; the used part of the burst stays used."""
        self._adjust(now)
        used = min(max((self.arrival_time - now) / self.interval, 0.0), burst)
        self.interval, self.slack, self.most = interval, interval * (burst - 1), burst
        self.arrival_time = now + used * interval

    def _earliest(self, moment: float, cost: float) -> float:
        return max(moment, self.arrival_time - self.slack + (cost - 1) * self.interval)

    def _earliest_behind(self, moment: float, cost: float, ahead: Ahead) -> float | None:
        arrival_time = max(self.arrival_time, moment) + ahead.total(self.most) * self.interval
        return max(moment, arrival_time - self.slack + (cost - 1) * self.interval)

    def _use(self, now: float, cost: float) -> None:
        if self._spread_interval:  # no burst
            self.arrival_time = now + self.slack + self.interval
        else:
            self.arrival_time = max(self.arrival_time, now) + cost * self.interval

    def _room(self, now: float) -> int:
        unused = now + self.slack - max(self.arrival_time, now) + CLOCK_TOLERANCE
        return 1 + floor(unused / self.interval)

    def copy(self) -> Self:
        copied = super().copy()
        copied.close_fast_path()
        return copied

    def _forget_other_clock(self, now: float) -> None:
        if self.fast_arrival_time != inf:
            self.arrival_time = self.fast_arrival_time
        if self.arrival_time - now > self.slack + self.interval + CLOCK_JUMP:  # never by one clock
            self.arrival_time = -inf
