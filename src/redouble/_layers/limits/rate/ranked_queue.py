"""The queue of a rate limit with shares: calls of several classes, each with a guaranteed share of the rate.

Rule 1: a class that waits has a claim to the next permits while it has used less than its share: its own
        arrival time, as that of GCRA, is not in the future. Of several such classes the one whose permits
        came due first is next, so that none of them starves, and none that needs many permits at once.
Rule 2: if there is none, the highest class is next. It borrows, which its arrival time does not record. So
        under pressure the lowest class goes last; it still gets its own share.
Rule 3: within a class calls pass in order of arrival, whatever they cost.
Rule 4: a limit whose calls do not wait has no queue. There a refused call counts as waiting until a second
        after its permits come due: they are not given to a call that comes after it in that order. The
        refused calls of a class count for at most what the shares of the other classes leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from math import ceil, inf
from typing import cast

from redouble._internal.validation import UNSET, Unset
from redouble._layers.limits.rate.pacing import CLOCK_JUMP, CLOCK_TOLERANCE, ROUNDING, Ahead, FollowingPacer
from redouble._layers.limits.rate.wait_queue import Waiter, WaitQueue
from redouble._layers.limits.shares import Shares
from redouble._runtime.clock import SYSTEM

MOST_REFUSED = 50  # calls of a class: more count as so many larger ones
STANDING = 1.0  # second for which a refused call counts as waiting after its permits have come due


class RateClass:
    """A class of calls: its share, its arrival time, and its refused calls, which count until a time.

    refused: the sum of their costs; ``refused_cost`` is that of the last one.
    """

    def __init__(self, name: str | None) -> None:
        self.name, self.share = name, 0.0
        self.arrival_time = -inf
        self.refused, self.refused_cost, self.refused_until = 0.0, 1.0, -inf


class RankedWaiter(Waiter):
    """A waiting call of a class."""

    __slots__ = ("rate_class",)

    def __init__(self, cost: float, rate_class: RateClass) -> None:
        super().__init__(cost)
        self.rate_class = rate_class


class RankedWaitQueue(WaitQueue):
    """The calls that wait for a permit: by class, and first come first served within a class."""

    _pacer: FollowingPacer

    def __init__(
        self,
        pacer: FollowingPacer,
        wait: float | None,
        rejection: Callable[[str, float], Exception],
        admitted_late: Callable[[float], object] | None,
        shares: Shares,
    ) -> None:
        super().__init__(pacer, wait, rejection, admitted_late)
        self.shares = shares
        self._refused_until = -inf  # the time until which any refused call counts
        self._classes: dict[str | None, RateClass] = {}  # highest first; None: of calls without a class
        self.configure(shares)

    def configure(self, shares: Shares) -> None:
        """Apply shares; the calls that wait stay, and what a class has used stays used."""
        old, self.shares = self._classes, shares
        classes: dict[str | None, RateClass] = {}
        for name in (*shares.shares, None):
            classes[name] = old.get(name) or RateClass(name)
        for rate_class in (*old.values(), *classes.values()):  # calls of an old class may wait
            rate_class.share = shares.of(rate_class.name)
        self._classes = classes

    def new_waiter(self, cost: float = 1.0, name: str | Unset | None = UNSET) -> RankedWaiter:
        """Return a call of this class, or of that of the context."""
        if name is UNSET:
            name = self.shares.current()
        elif name is None:
            name = self.shares.default
        return RankedWaiter(cost, self._classes.get(name) or self._classes[None])

    def queued_by_class(self) -> dict[str, int]:
        """Return how many calls of each class wait."""
        names = [self._class_of(waiter).name for waiter in self._queue]
        return {name: names.count(name) for name in self._classes if name is not None}

    # ------------------------------------------------------------------------ under the lock

    def _take_or_due(self, waiter: Waiter, now: float | None) -> float:
        now = SYSTEM.now() if now is None else now
        wait = super()._take_or_due(waiter, now)
        if 0 < wait < inf and self.wait == 0:
            self._refuse(self._class_of(waiter), waiter.cost, now, wait)
        return wait

    def _refuse(self, rate_class: RateClass, cost: float, now: float, wait: float) -> None:
        most, shares = self._pacer.most, [other.share for other in self._classes.values()]
        longest = most * self._pacer.interval
        before = rate_class.refused if self._claims(rate_class, now) else 0.0
        left = most * (1 - sum(shares) + rate_class.share)
        rate_class.refused, rate_class.refused_cost = max(cost, min(before + cost, left)), cost
        rate_class.refused_until = now + min(wait, longest) + STANDING
        self._refused_until = max(self._refused_until, rate_class.refused_until)

    def _contended(self, now: float) -> bool:
        return bool(self._queue) or now < self._refused_until

    def _admit(self, waiter: Waiter, now: float) -> None:
        super()._admit(waiter, now)
        rate_class = self._class_of(waiter)
        rate_class.arrival_time = self._charged(rate_class, rate_class.arrival_time, waiter.cost, now)
        rate_class.refused = max(0.0, rate_class.refused - waiter.cost)

    def ahead_of(self, waiter: Waiter, now: float) -> Ahead:
        order = takewhile(lambda other: other is not waiter, self._in_order(now, waiter))
        return Ahead.of([other.cost for other in order])

    def _first(self, now: float | None = None) -> Waiter | None:
        if not self._queue:
            return None
        return next(self._in_order(SYSTEM.now() if now is None else now), None)

    def _in_order(self, now: float, arriving: Waiter | None = None) -> Iterator[Waiter]:
        """Yield the waiters in the order in which they will pass, if no other call arrives."""
        waiting = self._by_class(now, arriving)
        pacer, moment = self._pacer._copy(), now
        arrivals = {rate_class: self._arrival_time(rate_class, now) for rate_class in waiting}
        while waiting:
            while True:
                following = self._next_class(waiting, arrivals, moment)
                wait = pacer.due(moment, waiting[following][0].cost)
                if wait in (0.0, inf):
                    break
                moment += wait
            waiter = waiting[following].popleft()
            if not wait:
                pacer.take(moment, waiter.cost)
                arrivals[following] = self._charged(following, arrivals[following], waiter.cost, moment)
            if not waiting[following]:
                del waiting[following]
            yield waiter

    def _by_class(self, now: float, arriving: Waiter | None) -> dict[RateClass, deque[Waiter]]:
        """Return the waiters of each class, highest first."""
        waiting: dict[RateClass, deque[Waiter]] = {
            rate_class: deque() for rate_class in self._classes.values()
        }
        for waiter in self._queue:
            waiting.setdefault(self._class_of(waiter), deque()).append(waiter)
        if arriving is not None and arriving not in self._queue:
            own = waiting.setdefault(self._class_of(arriving), deque())
            own.append(arriving)
            for rate_class, waiters in waiting.items():
                if not waiters and self._claims(rate_class, now):
                    cost = max(rate_class.refused_cost, rate_class.refused / MOST_REFUSED)
                    refused = RankedWaiter(cost, rate_class)
                    waiters.extend([refused] * ceil(rate_class.refused / cost - ROUNDING))
        return {rate_class: waiters for rate_class, waiters in waiting.items() if waiters}

    def _claims(self, rate_class: RateClass, now: float) -> bool:
        """Return True if refused calls of the class count as waiting."""
        longest = self._pacer.most * self._pacer.interval + STANDING + CLOCK_JUMP
        # If it is later, it was read from another clock.
        return rate_class.refused > ROUNDING and now < rate_class.refused_until <= now + longest

    def _next_class(
        self, waiting: dict[RateClass, deque[Waiter]], arrivals: dict[RateClass, float], moment: float
    ) -> RateClass:
        """Return the class that gets the next permits, by rules 1 and 2."""
        due = {
            rate_class: self._due(rate_class, arrivals[rate_class], waiters[0].cost)
            for rate_class, waiters in waiting.items()
        }
        entitled = [rate_class for rate_class, since in due.items() if since <= moment + CLOCK_TOLERANCE]
        return min(entitled, key=due.__getitem__) if entitled else next(iter(waiting))

    def _due(self, rate_class: RateClass, arrival: float, cost: float) -> float:
        """Return the moment from which on the class has used less than its share."""
        if not rate_class.share:
            return inf
        burst = rate_class.share * self._pacer.most
        return arrival - (burst - min(cost, burst)) * self._pacer.interval / rate_class.share

    def _charged(self, rate_class: RateClass, arrival: float, cost: float, moment: float) -> float:
        """Return the arrival time of a class after a call; if the call borrows, it is the same."""
        if self._due(rate_class, arrival, cost) > moment + CLOCK_TOLERANCE:
            return arrival
        return max(arrival, moment) + cost * self._pacer.interval / rate_class.share

    def _arrival_time(self, rate_class: RateClass, now: float) -> float:
        if not rate_class.share:
            return -inf
        latest = now + self._pacer.most * self._pacer.interval / rate_class.share + CLOCK_JUMP
        if rate_class.arrival_time > latest:  # it was read from another clock, or the share was lower
            rate_class.arrival_time = -inf
        return rate_class.arrival_time

    def _class_of(self, waiter: Waiter) -> RateClass:
        return cast("RankedWaiter", waiter).rate_class
