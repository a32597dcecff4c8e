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
Rule 5: the order is computed for a few waiters, and estimated for those behind them: it takes too long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, repeat, takewhile
from math import ceil, fsum, inf
from operator import is_not
from typing import cast

from redouble._internal.validation import UNSET, Unset
from redouble._layers.limits.rate.pacing import (
    CLOCK_JUMP,
    CLOCK_TOLERANCE,
    LOOKAHEAD,
    ROUNDING,
    Ahead,
    FollowingPacer,
)
from redouble._layers.limits.rate.wait_queue import Waiter, WaitQueue
from redouble._layers.limits.shares import Shares
from redouble._runtime.clock import SYSTEM

MOST_REFUSED = 50  # calls of a class: more count as so many larger ones
CLAIM = 1.0  # second for which a refused call counts as waiting after its permits have come due


class RateClass:
    """A class of calls: its share, its arrival time, and its refused calls, which count until a time.

    waiting: its waiters in order of arrival; one that is not in the queue has left, and was interrupted.
    refused: the sum of the costs of the refused calls; ``refused_cost`` is that of the last one, and
        ``refused_since`` the time of the first.
    """

    def __init__(self, name: str | None) -> None:
        self.name, self.share = name, 0.0
        self.arrival_time = -inf
        self.waiting: OrderedDict[Waiter, None] = OrderedDict()
        self.refused, self.refused_cost = 0.0, 1.0
        self.refused_since, self.refused_until = inf, -inf


class RankedWaiter(Waiter):
    """A waiting call of a class; ``came``: when it asked first."""

    __slots__ = ("came", "rate_class")

    def __init__(self, cost: float, rate_class: RateClass) -> None:
        super().__init__(cost)
        self.rate_class, self.came = rate_class, inf


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
        self._classes: dict[str | None, RateClass] = {}  # None: of calls without a class
        self._ranking: tuple[RateClass, ...] = ()  # highest first, and then those that have no share any more
        self.configure(shares)

    def configure(self, shares: Shares) -> None:
        """Apply shares; the calls that wait stay, and what a class has used stays used."""
        old, self.shares = self._classes, shares
        classes: dict[str | None, RateClass] = {}
        for name in (*shares.shares, None):
            classes[name] = old.get(name) or RateClass(name)
        retired = [each for each in self._ranking if each not in classes.values() and each.waiting]
        self._ranking = (*classes.values(), *retired)
        for rate_class in (*old.values(), *self._ranking):
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
        rate_class = self._class_of(waiter)
        cast("RankedWaiter", waiter).came = rate_class.refused_since if self._claims(rate_class, now) else now
        wait = super()._take_or_due(waiter, now)
        if 0 < wait < inf and self.wait == 0:
            self._refuse(rate_class, waiter.cost, now, wait)
        return wait

    def _refuse(self, rate_class: RateClass, cost: float, now: float, wait: float) -> None:
        most, shares = self._pacer.most, [other.share for other in self._classes.values()]
        longest = most * self._pacer.interval
        before = 0.0
        if self._claims(rate_class, now):
            before = rate_class.refused
        else:
            rate_class.refused_since = now
        left = most * (1 - sum(shares) + rate_class.share)
        rate_class.refused, rate_class.refused_cost = max(cost, min(before + cost, left)), cost
        rate_class.refused_until = now + min(wait, longest) + CLAIM
        self._refused_until = max(self._refused_until, rate_class.refused_until)

    def _contended(self, now: float) -> bool:
        return bool(self._queue) or now < self._refused_until

    def _enqueue(self, waiter: Waiter, wake: Callable[[], object]) -> None:
        rate_class, skipped = self._class_of(waiter), waiter.checks and waiter not in self._queue
        if rate_class not in self._ranking:  # its share was removed when the call did not wait yet
            self._ranking = (*self._ranking, rate_class)
        waiting = rate_class.waiting
        waiting[waiter] = None  # first: each waiter in the queue is in its class too
        if skipped:
            waiting.move_to_end(waiter, last=False)
        super()._enqueue(waiter, wake)

    def _remove(self, waiter: Waiter) -> None:
        super()._remove(waiter)
        self._class_of(waiter).waiting.pop(waiter, None)

    def _admit(self, waiter: Waiter, now: float) -> None:
        super()._admit(waiter, now)
        rate_class = self._class_of(waiter)
        rate_class.arrival_time = self._charged(waiter, rate_class.arrival_time, now)
        rate_class.refused = max(0.0, rate_class.refused - waiter.cost)
        waiting = rate_class.waiting
        while waiting and next(iter(waiting)) not in self._queue:
            waiting.popitem(last=False)

    def ahead_of(self, waiter: Waiter, now: float) -> Ahead:
        costs = list[float]()
        if waiter in self._queue or len(self._class_of(waiter).waiting) <= LOOKAHEAD:
            for other in islice(self._in_order(now, waiter), LOOKAHEAD + 1):
                if other is waiter:
                    return Ahead.of(costs)
                costs.append(other.cost)
        return self._estimated_ahead(waiter)

    def _estimated_ahead(self, waiter: Waiter) -> Ahead:
        """Return about how many calls pass before a call: as if all classes were served evenly."""
        queue, own = self._queue, self._class_of(waiter)
        left = {each: fsum(other.cost for other in each.waiting if other in queue) for each in self._ranking}
        before = takewhile(partial(is_not, waiter), own.waiting)
        left[own] = fsum(other.cost for other in before if other in queue) + waiter.cost
        total, passed = fsum(left.values()), 0.0
        while left[own] > ROUNDING * total:
            left = {each: cost for each, cost in left.items() if cost > ROUNDING * total}
            speeds = {each: each.share for each in left}
            speeds[next(iter(left))] += max(0.0, 1 - fsum(speeds.values()))
            span = min(cost / speeds[each] for each, cost in left.items() if speeds[each])
            left = {each: cost - span * speeds[each] for each, cost in left.items()}
            passed += span
        usual = waiter.cost if self._numbers.keys() == {waiter.cost} else total / (len(queue) + 1)
        number = round((passed - waiter.cost) / usual)
        return Ahead({usual: number}, repeat(usual, number))

    def _first(self, now: float | None = None) -> Waiter | None:
        if not self._queue:
            return None
        return next(self._in_order(SYSTEM.now() if now is None else now), None)

    def _in_order(self, now: float, arriving: Waiter | None = None) -> Iterator[Waiter]:
        """Yield the waiters in the order in which they will pass, if no other call arrives."""
        behind = {each: self._of_class(each, now, arriving) for each in self._ranking}
        heads = {each: head for each, waiters in behind.items() if (head := next(waiters, None)) is not None}
        arrivals = {rate_class: self._arrival_time(rate_class, now) for rate_class in heads}
        pacer, moment = self._pacer, now
        while heads:
            while True:
                following = self._next_class(heads, arrivals, moment)
                wait = pacer.due(moment, heads[following].cost)
                if wait in (0.0, inf):
                    break
                moment += wait
            waiter = heads[following]
            yield waiter
            if not wait:
                pacer = self._pacer.copy() if pacer is self._pacer else pacer
                pacer.take(moment, waiter.cost)
                arrivals[following] = self._charged(waiter, arrivals[following], moment)
            head = next(behind[following], None)
            if head is None:
                del heads[following]
            else:
                heads[following] = head

    def _of_class(self, rate_class: RateClass, now: float, arriving: Waiter | None) -> Iterator[Waiter]:
        """Yield the waiters of a class in order, and a call that arrives.

        For another call that arrives, refused calls of the class stand for waiters.
        """
        queue, waiting = self._queue, rate_class.waiting
        yield from (waiter for waiter in waiting if waiter in queue)
        if arriving is None or arriving in queue:
            return
        if self._class_of(arriving) is rate_class:
            yield arriving
        elif not any(waiter in queue for waiter in waiting) and self._claims(rate_class, now):
            cost = max(rate_class.refused_cost, rate_class.refused / MOST_REFUSED)
            refused = RankedWaiter(cost, rate_class)
            refused.came = rate_class.refused_since
            yield from [refused] * ceil(rate_class.refused / cost - ROUNDING)

    def _claims(self, rate_class: RateClass, now: float) -> bool:
        """Return True if refused calls of the class count as waiting."""
        longest = self._pacer.most * self._pacer.interval + CLAIM + CLOCK_JUMP
        # If it is later, it was read from another clock.
        return rate_class.refused > ROUNDING and now < rate_class.refused_until <= now + longest

    def _next_class(
        self, heads: dict[RateClass, Waiter], arrivals: dict[RateClass, float], moment: float
    ) -> RateClass:
        """Return the class that gets the next permits, by rules 1 and 2."""
        following, earliest = None, moment + CLOCK_TOLERANCE
        for rate_class, head in heads.items():
            due = self._due(rate_class, arrivals[rate_class], head.cost)
            if due < earliest or (following is None and due == earliest):
                following, earliest = rate_class, due
        return following or next(iter(heads))

    def _due(self, rate_class: RateClass, arrival: float, cost: float) -> float:
        """Return the moment from which on the class has used less than its share."""
        if not rate_class.share:
            return inf
        burst = rate_class.share * self._pacer.most
        return arrival - (burst - min(cost, burst)) * self._pacer.current_interval / rate_class.share

    def _charged(self, waiter: Waiter, arrival: float, moment: float) -> float:
        """Return the arrival time of a class after a call; if the call borrows, it is the same.

        A class that waits keeps its claim to permits that came due, for as long as the limit takes to admit
        all that may begin at once, and one call of each class: else it would lose a part of its share
        whenever its turn falls between two permits.
        """
        rate_class, interval = self._class_of(waiter), self._pacer.current_interval
        if self._due(rate_class, arrival, waiter.cost) > moment + CLOCK_TOLERANCE:
            return arrival
        since = min(cast("RankedWaiter", waiter).came, moment)
        kept = moment - (self._pacer.most + len(self._ranking)) * interval
        return max(arrival, since, kept) + waiter.cost * interval / rate_class.share

    def _arrival_time(self, rate_class: RateClass, now: float) -> float:
        if not rate_class.share:
            return -inf
        pacer = self._pacer
        latest = now + pacer.most * pacer.current_interval / rate_class.share + CLOCK_JUMP
        if rate_class.arrival_time > latest:  # it was read from another clock, or the share was lower
            rate_class.arrival_time = -inf
        return rate_class.arrival_time

    def _after_fork(self) -> None:
        super()._after_fork()
        for rate_class in self._ranking:
            rate_class.waiting.clear()

    def _class_of(self, waiter: Waiter) -> RateClass:
        return cast("RankedWaiter", waiter).rate_class
