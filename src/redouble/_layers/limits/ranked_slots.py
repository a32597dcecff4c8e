"""Slots for calls of several classes: each class has a guaranteed share, and may borrow what is idle.

The rules of `Slots` hold, except for the order of admission. Here a free slot goes

1. to the classes that have fewer slots than their share, in turn, so that each of them is served;
2. else to the highest class that has a waiter.

Within a class the first waiter is admitted, or the newest one: see `Order`. A full queue refuses the waiter
that is last in that order, also if it has waited for some time; but none that its class's share is kept for.

A gate that does not wait has no waiters, so a refused call counts as one for `CLAIM` seconds more: a slot
that becomes free meanwhile is not given to a call that comes after it in that order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from math import ceil, inf
from typing import Literal, TypeAlias, cast

from redouble._internal.locks import gil
from redouble._layers.limits.shares import TOLERANCE, Shares
from redouble._runtime.clock import SYSTEM
from redouble._runtime.slots import Lease, Slots, Wake

Order: TypeAlias = Literal["fifo", "lifo", "adaptive"]
# As `Pipeline.explain` describes them.
ORDERS = {"fifo": "", "lifo": ", the newest first", "adaptive": ", the newest first while the queue is long"}

# Second for which a refused call counts as waiting: longer than most calls, so that its retry finds a slot.
CLAIM = 1.0


class Group:
    """The calls of one class: their leases, waiters, and claims of refused calls.

    leases: of admitted calls; like the set of all leases it may contain some that are refused next.
    waiting: the waiters in order of arrival; one that is not in `Slots.queue` has left.
    claims: when each claim ends.
    turn: the virtual time of stride scheduling at which a class below its share is served next.
    """

    __slots__ = ("claims", "leases", "name", "share", "turn", "waiting")

    def __init__(self, name: str | None, share: float) -> None:
        self.name, self.share = name, share
        self.leases: set[Lease] = set()
        self.waiting: OrderedDict[Lease, None] = OrderedDict()
        self.claims: deque[float] = deque()
        self.turn = 0.0

    def missing(self, limit: int) -> int:
        """Return how many slots the class lacks to its share of the limit; a part of one counts as one."""
        return max(0, ceil(self.share * limit - TOLERANCE) - len(self.leases))


class RankedLease(Lease):
    """A lease with the group of its class."""

    group: Group


class RankedSlots(Slots):
    """A number of slots, and the queue of waiters of several classes."""

    def __init__(
        self, limit: int, shares: Shares | None, order: Order, max_waiting: float, *, claiming: bool
    ) -> None:
        super().__init__(limit)
        self.common = Group(None, 0.0)
        self.groups: dict[str | None, Group] = {}  # by the class of a call; None: of a call without one
        self.ranking: tuple[Group, ...] = ()  # highest first
        self.claimants: dict[Group, None] = {}  # the groups that have claims
        self._admitting: Lease | None = None
        self._turn = 0.0
        self.configure(limit, shares, order, max_waiting, claiming=claiming)

    def configure(
        self, limit: int, shares: Shares | None, order: Order, max_waiting: float, *, claiming: bool
    ) -> None:
        """Apply options: admitted calls keep their slots, and waiters their position.

        order: which waiter of a class is admitted first.
        max_waiting: how many calls wait at most; infinity for any number.
        claiming: True if calls do not wait, so that refused ones have claims.
        """
        self._run_exclusively(self._configure, shares, order, max_waiting, claiming)
        self.resize(limit)

    def _configure(self, shares: Shares | None, order: Order, max_waiting: float, claiming: bool) -> None:
        self._order, self._max_waiting, self._claiming = order, max_waiting, claiming
        self.claimants.clear()
        by_name: Mapping[str, float] = {} if shares is None else shares.shares
        old = {group.name: group for group in reversed(self.ranking)}
        new = [old.get(name) or Group(name, 0.0) for name in by_name]
        # Calls of a class that has no share any more rank last, until they have ended: see `_enqueue` too.
        retired = [group for group in self.ranking if group not in new and group is not self.common]
        for group in (*self.ranking, *new):
            group.share = by_name[cast("str", group.name)] if group in new else 0.0
            group.claims.clear()
        self.ranking = (*new, *(group for group in retired if group.leases or group.waiting), self.common)
        default = None if shares is None else shares.default
        groups: dict[str | None, Group] = {group.name: group for group in new}
        groups[None] = groups[default] if default is not None else self.common
        self.groups.update(groups)
        for name in self.groups.keys() - groups.keys():
            self.groups.pop(name)

    def lease(self, name: str | None) -> RankedLease:
        """Return a lease for a call of this class."""
        lease = RankedLease()
        lease.group = self.groups.get(name, self.common)
        return lease

    # --------------------------------------------------------------------- as those of `Slots`

    def try_acquire(self, lease: Lease) -> bool:
        self.add(lease)
        return not self.queue and not self.claimants and len(self.leases) <= self.limit

    def add(self, lease: Lease) -> None:
        if gil.enabled:
            self._add(lease)
        else:
            self._run_now(self._add, lease)

    def discard(self, lease: Lease) -> None:
        if gil.enabled:
            self._discard(lease)
        else:
            self._run_now(self._discard, lease)

    def _add(self, lease: Lease) -> None:
        cast("RankedLease", lease).group.leases.add(lease)
        self.leases.add(lease)

    def _discard(self, lease: Lease) -> None:
        try:
            self.leases.discard(lease)
        finally:
            cast("RankedLease", lease).group.leases.discard(lease)

    def stop_waiting(self, lease: Lease) -> bool:
        self._run_exclusively(self._leave, lease)
        return lease in self.leases

    def _leave(self, lease: Lease) -> None:
        try:
            self.queue.pop(lease, None)
        finally:
            cast("RankedLease", lease).group.waiting.pop(lease, None)

    def _enqueue(self, lease: Lease, wake: Wake, max_waiting: float) -> bool:
        group = cast("RankedLease", lease).group
        if self.claimants:
            self._end_claims(SYSTEM.now())
        if (
            group not in self.ranking
        ):  # its share was removed when the call had its lease, and did not wait yet
            self.ranking = (*self.ranking[:-1], group, self.common)
        group.waiting[lease] = None  # first: each waiter in the queue is in its group too
        self.queue[lease] = wake
        self._admit()
        accepted = lease in self.leases or len(self.queue) <= max_waiting
        if not accepted:
            accepted = max_waiting > 0 and self._displace_for(cast("RankedLease", lease))
            if not accepted:
                self._leave(lease)
                if self._claiming and group is not self.common:
                    self._claim(group)
        return accepted

    def _admit_while_free(self) -> None:
        while self.queue:
            lease = self._next_waiter()
            if lease is None:
                return
            self._admitting = lease  # before it is added: if this is interrupted, the repetition continues
            self._add(lease)
            if lease.released:
                self._discard(lease)
            else:
                self.to_wake[lease] = self.queue[lease]
            self._serve(lease.group)
            self._leave(lease)

    # ----------------------------------------------------------------------------- the order

    def _next_waiter(self) -> RankedLease | None:
        """Return the waiter that the next free slot is for; None if there is none."""
        if self._admitting in self.queue:
            return cast("RankedLease", self._admitting)
        free = self.limit - len(self.leases)
        group = self._next_group() if free > 0 else None
        if group is None or (self.claimants and self._claimed_before(group) >= free):
            return None
        waiting = reversed(group.waiting) if self._newest_first() else iter(group.waiting)
        return cast("RankedLease", next(waiting))

    def _next_group(self) -> Group | None:
        below: Group | None = None
        highest: Group | None = None
        for group in self.ranking:
            if not self._has_waiters(group):
                continue
            highest = highest or group
            if group.missing(self.limit) and (below is None or self._turn_of(group) < self._turn_of(below)):
                below = group
        return below or highest

    def _has_waiters(self, group: Group) -> bool:
        """Return True if calls of a class wait; forget those whose leaving was interrupted."""
        waiting = group.waiting
        while waiting and next(iter(waiting)) not in self.queue:
            waiting.popitem(last=False)
        while waiting and next(reversed(waiting)) not in self.queue:
            waiting.popitem()
        return bool(waiting)

    def _newest_first(self) -> bool:
        if self._order == "adaptive":
            most = self._max_waiting
            return len(self.queue) > (self.limit if most == inf else most / 2)
        return self._order == "lifo"

    def _turn_of(self, group: Group) -> float:
        return max(group.turn, self._turn)

    def _serve(self, group: Group) -> None:
        """Record that a call of a class was admitted."""
        if group.share:
            self._turn = self._turn_of(group)
            group.turn = self._turn + 1 / group.share
        if group.claims:
            group.claims.popleft()
            if not group.claims:
                self.claimants.pop(group, None)

    def _displace_for(self, newcomer: RankedLease) -> bool:
        """Remove the last of all waiters from a full queue; return True unless it is the newcomer."""
        newest_first = self._newest_first()
        for group in reversed(self.ranking):
            if self._has_waiters(group) and len(group.waiting) > group.missing(self.limit):
                waiting = iter(group.waiting) if newest_first else reversed(group.waiting)
                last = cast("RankedLease", next(waiting))
                if last is newcomer:
                    return False
                last.displaced = True
                self.to_wake[last] = self.queue[last]
                self._leave(last)
                return True
        return False

    # -------------------------------------------------------------------------------- claims

    def _claim(self, group: Group) -> None:
        """Let a refused call count as waiting."""
        group.claims.append(SYSTEM.now() + CLAIM)
        self.claimants[group] = None
        if len(group.claims) > self.limit:
            group.claims.popleft()

    def _end_claims(self, now: float) -> None:
        """Remove the claims whose time is over, and those of a clock that has been set back."""
        for group in (*self.claimants,):
            claims = group.claims
            while claims and not now < claims[0] <= now + CLAIM:
                claims.popleft()
            if not claims:
                self.claimants.pop(group, None)

    def _claimed_before(self, group: Group) -> int:
        """Return how many slots are claimed by calls that come before those of a class."""
        if group.missing(self.limit):
            return 0
        claimed, ranks_higher = 0, True
        for other in self.ranking:
            ranks_higher = ranks_higher and other is not group
            if other is not group:
                claims = len(other.claims)
                claimed += claims if ranks_higher else min(claims, other.missing(self.limit))
        return claimed

    # ------------------------------------------------------------------------------ snapshots

    def counts_by_class(self) -> Mapping[str, int]:
        """Return the numbers of admitted and of waiting calls of each class with a share."""
        counts: Mapping[str, int] = self._run_now(self._counts_by_class)
        return counts

    def _counts_by_class(self) -> Mapping[str, int]:
        named = [group for group in self.groups.values() if group.name is not None]
        in_use = {f"in_use.{group.name}": len(group.leases) for group in named}
        return in_use | {f"queued.{group.name}": len(group.waiting) for group in named}

    def _after_fork(self) -> None:
        super()._after_fork()
        self._admitting = None
        self.claimants.clear()
        for group in self.ranking:
            group.leases.clear()
            group.waiting.clear()
            group.claims.clear()
