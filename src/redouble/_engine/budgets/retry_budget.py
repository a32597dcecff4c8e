"""RetryBudget: retries as a share of the successful calls, so that they cannot become most of the load.

An outage makes every call fail, and then every call retries: a service that could have recovered is
kept down by the retries alone. A budget grants a few retries at any time, and more only as calls succeed. It
can limit the retries in flight too (`RetriesInFlight`): slow failures keep many of them open at once.

`HostBudgets` has one budget for each host: the outage of one must not use up the retries of the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import floor, isfinite
from typing import Any, Literal, TypeGuard, cast

from redouble._engine.budgets.budget_protocol import (
    Budget,
    BudgetTraits,
    Grant,
    SharedBudget,
    SpendOnly,
    amount,
)
from redouble._engine.budgets.retries_in_flight import RetriesInFlight
from redouble._failures.verdict import Kind
from redouble._internal.bounded_cache import BoundedCache
from redouble._internal.public import public
from redouble._internal.reentrancy import ReentrancySafe
from redouble._internal.sliding_counter import SLICES, SlidingCounter
from redouble._internal.validation import Duration, choice, positive_seconds
from redouble._runtime.clock import SYSTEM

MINIMUM = 3  # retries in flight
LONG_AGO = -(2**62)  # the index of a slice before all others
UNLIMITED = 2**62  # grants in a window: without a ratio the window limits nothing
MAX_PENDING = 256  # credits are counted in batches: when a retry is asked for, or when this many are pending


class DatedGrant(Grant):
    """A grant with the slice it was given in: the refund of an old grant must not allow a retry now."""

    slice_index: int
    window: float  # the window of that slice

    def __repr__(self) -> str:
        return repr(Grant(*self))


@dataclass(frozen=True)
class RetryBudgetSettings:
    """The options of a `RetryBudget`."""

    ratio: float | None
    per_second: float
    window: float
    credit: Literal["success", "request"]
    max_in_flight: float | None
    minimum: int
    name: str | None


@public("redouble")
class RetryBudget(SharedBudget, ReentrancySafe):
    """A retry budget that grants a share of the recent successful calls, and a few retries in any case.

    At any time, at most ``ceil(credits * ratio) + floor(per_second * window)`` retries were granted in the
    last ``window`` seconds. With ``max_in_flight``, at most ``max(minimum, max_in_flight * calls in flight)``
    retries are in flight when one more is granted.
    Pass one object to every policy that talks to the same service: sharing is by identity.

    ratio: the retries that each credit adds, such as 0.2: one for five. None for no limit in a window: only
        ``max_in_flight`` limits the retries.
    per_second: the retries that are granted in any case, for services with little traffic.
    window: the seconds for which credits and grants count.
    credit: what adds a credit: each ``"success"``; or each ``"request"``, as in Finagle and httpware. A
        budget that is credited by requests grants retries while everything fails, which prolongs an overload.
    max_in_flight: how many retries may be in flight, as a share of the calls in flight, such as 0.2. A retry
        is in flight from its grant, before the delay, to its end. None for no such limit.
    minimum: how many retries may be in flight in any case.
    name: its name in metrics.
    """

    def __init__(
        self,
        ratio: float | None = 0.2,
        per_second: float = 10,
        window: Duration = 10,
        credit: Literal["success", "request"] = "success",
        *,
        max_in_flight: float | None = None,
        minimum: int = MINIMUM,
        name: str | None = None,
    ) -> None:
        choice(credit, "RetryBudget credit", "success", "request")
        if ratio is None and max_in_flight is None:
            raise TypeError(
                "RetryBudget ratio=None: write a finite number, 0 or more, such as 0.2; None limits nothing, "
                "unless max_in_flight is set"
            )
        in_flight = RetriesInFlight(0 if max_in_flight is None else max_in_flight, minimum)
        if minimum != MINIMUM and max_in_flight is None:
            raise ValueError(
                f"RetryBudget minimum={minimum!r} is for retries in flight: write max_in_flight= too"
            )
        self.settings = RetryBudgetSettings(
            ratio=None if ratio is None else amount(ratio, "RetryBudget ratio", 1e9, "0.2"),
            per_second=amount(per_second, "RetryBudget per_second", 1e9, "10"),
            window=positive_seconds(window, "RetryBudget window", "10"),
            credit=credit,
            max_in_flight=None if max_in_flight is None else in_flight.share,
            minimum=in_flight.minimum,
            name=name,
        )
        self._credited_by: Literal["success", "request"] = credit  # read by every call that succeeds
        starts = credit == "request" or type(self).start is not RetryBudget.start
        self._in_flight = None if max_in_flight is None else in_flight
        self.traits = BudgetTraits(counts_starts=starts, may_wait=False, in_flight=self._in_flight)
        # Exact decimals, not binary floats: 0.07 of 100 is 7, and not 8.
        self._exact_ratio = Fraction(repr(self.ratio or 0)).as_integer_ratio()
        granted_anyway = floor(Fraction(repr(self.per_second)) * Fraction(repr(self.window)))
        self._minimum = UNLIMITED if ratio is None else granted_anyway
        # Credits expire a little before the window has passed, grants a little after.
        self._credits, self._grants = SlidingCounter(SLICES), SlidingCounter(SLICES + 1)
        self._grants.latest = LONG_AGO  # on a clock below zero, 0 would make the first grant look late
        self._pending_credits: list[float] = []  # the time of each credit that is not yet counted
        self._now: float | None = None  # the time of the last use
        self._index = LONG_AGO  # the current slice
        self._slice_from = self._slice_until = 0.0  # times well inside it; near its edges `_slice` decides
        self._limit = self._minimum
        super().__init__("RetryBudget", name)

    @property
    def ratio(self) -> float | None:
        """The retries that each credit adds; None if no window limits them."""
        return self.settings.ratio

    @property
    def per_second(self) -> float:
        """The retries per second that are granted in any case."""
        return self.settings.per_second

    @property
    def window(self) -> float:
        """The seconds for which credits and grants count."""
        return self.settings.window

    @property
    def max_in_flight(self) -> float | None:
        """The retries that may be in flight, as a share of the calls in flight; None for no limit."""
        return self.settings.max_in_flight

    @property
    def minimum(self) -> int:
        """The retries that may be in flight in any case."""
        return self.settings.minimum

    def start(self, now: float | None = None, /) -> None:
        """Record that a call begins."""
        if self._credited_by == "request":
            self._record_credit(now)

    def _take_back_start(self) -> None:
        """Take back the start of a call that was refused as a misuse, unless it is counted already."""
        if self._credited_by == "request" and type(self).start is RetryBudget.start:
            with suppress(IndexError):
                self._pending_credits.pop()  # or that of a call at the same moment, which is worth the same

    def spend(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> Grant | None:  # noqa: ARG002
        """Grant one retry, or return None. The time is that of the system clock unless given.

        This asks the window alone. What is in flight is counted by policies, which ask about that before.
        """
        now = SYSTEM.now() if now is None else now
        if self._owned_by_this_thread():
            return None  # re-entrant: a signal handler or the garbage collector runs inside `_advance`
        if self._pending_credits or not self._slice_from < now < self._slice_until:
            self._run_exclusively(self._advance, now)
        with self._lock:  # no call in this block, so nothing is deferred
            grants = self._grants
            if grants.total >= self._limit:
                return None
            grants.total += 1
            grants.counts[grants.position] += 1
            return self._grant

    def credit(self, grant: Grant | None = None, now: float | None = None, /) -> None:  # noqa: ARG002
        """Record that a call succeeded, with or without retries."""
        if self._credited_by == "success":
            self._record_credit(now)

    def refund(self, grant: Grant, now: float | None = None, /) -> None:
        """Take back a grant whose retry never started."""
        self._run_exclusively(self._refund, grant, SYSTEM.now() if now is None else now)

    def snapshot(self, now: float | None = None, /) -> Mapping[str, float]:
        """Return how many retries are ``available``, and why: as of its last use, or of ``now``.

        With ``max_in_flight`` it has the calls and the retries in flight too.
        """
        self._run_exclusively(self._advance, None)
        return self._run_now(self._snapshot, now)

    def _snapshot(self, now: float | None) -> Mapping[str, float]:
        now = self._now if now is None else now
        index = self._index if now is None else self._slice(now)
        earning, granted = self._credits.count_at(index), self._grants.count_at(index)
        most = self._limit_for(earning)
        available = max(0, most - granted)
        seen = {"available": available, "limit": most, "granted": granted, "credits": earning}
        if self._in_flight is None:
            return seen
        counts = self._in_flight.snapshot()
        free = max(0, counts["max_retries_in_flight"] - counts["retries_in_flight"])
        if self.ratio is None:
            return {"available": free, **counts}
        return {**seen, "available": min(available, free), **counts}

    def balance(self, now: float, /) -> int:
        """Return how many whole retries the window has left; `spend` also grants the one that was begun."""
        self._run_exclusively(self._advance, now)
        return self._run_now(self._balance)

    def _balance(self) -> int:
        earned, per = self._exact_ratio
        return max(0, self._minimum + self._credits.total * earned // per - self._grants.total)

    def can_reconfigure(self, other: RetryBudget, /) -> bool:
        """Return True unless functions that are decorated already would have to change.

        They do if ``credit`` differs, or if one of the budgets has ``max_in_flight`` and the other has not.
        """
        same = (self.max_in_flight is None) == (other.max_in_flight is None)
        return same and self._credited_by == other._credited_by

    def reconfigure(self, other: RetryBudget, /) -> None:
        """Copy the settings of another budget; credits and grants stay.

        Another window has other slices: credits are dated to the beginning of their old slice, grants to its
        end. So the limit is never exceeded, but an earlier grant can no longer be refunded.
        """
        self._run_exclusively(self._take_over, other)

    def _take_over(self, other: RetryBudget) -> None:
        self._count_pending()
        old_window, window = self.window, other.window
        self.settings = replace(other.settings, name=self.name)
        self._credited_by = other._credited_by
        self.traits = other.traits._replace(in_flight=self._in_flight)
        if self._in_flight is not None and other._in_flight is not None:
            self._in_flight.adopt(other._in_flight)
        self._exact_ratio, self._minimum = other._exact_ratio, other._minimum
        if old_window != window:
            now = SYSTEM.now() * SLICES / old_window
            # If not, the slice has passed, or the budget is used with another clock.
            inside = self._index <= now < self._index + 1
            self._credits.rescale(old_window, window)
            self._grants.rescale(old_window, window, late=True, last=now if inside else None)
            self._index = LONG_AGO  # so that `_enter_slice` enters a new slice
        self._advance(None)

    def _record_credit(self, now: float | None) -> None:
        # Every successful call runs this, so it only appends; `_count_pending` counts.
        now = SYSTEM.now() if now is None else now
        pending = self._pending_credits
        pending.append(now)
        if len(pending) >= MAX_PENDING:
            self._run_exclusively(self._advance, now)

    def _advance(self, now: float | None) -> None:
        """Count pending credits and drop what has expired at ``now``, or else at the last use."""
        self._count_pending()
        self._now = now = self._now if now is None else now
        if now is not None:
            self._enter_slice(self._slice(now))
        self._limit = self._limit_for(self._credits.total)

    def _enter_slice(self, index: int) -> None:
        """Move the counters to this slice, and make its grant, if it is a new one."""
        self._credits.advance(index)
        self._grants.advance(index)
        if self._index != self._grants.latest:
            self._index = index = self._grants.latest
            self._grant = DatedGrant(1.0)
            self._grant.slice_index, self._grant.window = index, self.window
            width = self.window / SLICES
            self._slice_from, self._slice_until = (index + 0.01) * width, (index + 0.99) * width

    def _count_pending(self) -> None:
        """Count the pending credits, each at its own time."""
        pending = self._pending_credits
        batch = pending[:]
        del pending[: len(batch)]  # and no more: other threads append meanwhile
        if not isfinite(sum(batch)):  # a broken clock returned NaN or infinity
            batch = [now for now in batch if isfinite(now)]
        if not batch:
            return
        earned, first, last = self._credits, min(batch), max(batch)
        if self._now is None or not self._now - self.window < last <= self._now:
            self._now = last  # time has passed, or another clock is used
        if self._slice_from < first and last < self._slice_until and earned.latest == self._index:
            earned.counts[earned.position] += len(batch)
            earned.total += len(batch)
        else:
            earned.advance(self._slice(last))
            for now in batch:
                earned.add(1, self._slice(now))

    def _refund(self, grant: Grant, now: float) -> None:
        self._count_pending()
        if getattr(grant, "window", self.window) == self.window:
            self._grants.add(-1, getattr(grant, "slice_index", self._index))
        self._advance(now)

    def _limit_for(self, earning: int) -> int:
        numerator, denominator = self._exact_ratio
        return -(-earning * numerator // denominator) + self._minimum

    def _slice(self, now: float) -> int:
        return int(now * SLICES // self.window)

    def __repr__(self) -> str:
        options = {"ratio": self.ratio, "per_second": self.per_second, "window": self.window}
        limits: dict[str, object] = {}
        if self.max_in_flight is not None:
            limits = {"max_in_flight": self.max_in_flight, "minimum": self.minimum}
        return self._described("RetryBudget", **options, credit=self._credited_by, **limits)


MAX_HOSTS = 1000  # hosts with a budget of their own: a crawler calls more hosts, each of them rarely


@public("redouble.http")
class HostBudgets(RetryBudget):
    """A retry budget for each host, all with the same options as `RetryBudget`: for a policy of HTTP clients.

    >>> import redouble.http
    >>> policy = redouble.Retry(budget=redouble.http.HostBudgets(ratio=0.1, per_second=2))

    Clients that have one such object share its budgets. In a policy that is used elsewhere, it is one budget.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._by_host = BoundedCache[RetryBudget](MAX_HOSTS)

    def of(self, host: Hashable) -> RetryBudget:
        """Return the budget of a host: the same object each time, unless it was evicted."""
        options = self.settings
        make = partial(
            RetryBudget,
            options.ratio,
            options.per_second,
            options.window,
            self._credited_by,
            max_in_flight=options.max_in_flight,
            minimum=options.minimum,
        )
        return self._by_host.get_or_create(host, make)

    def without_credit(self) -> Budget:
        return SpendOnlyByHost(self)

    def reconfigure(self, other: RetryBudget, /) -> None:
        """Copy the settings of another budget, here and in the budgets of all hosts."""
        super().reconfigure(other)
        for budget in self._by_host.values():
            budget.reconfigure(other)


class SpendOnlyByHost(SpendOnly):
    """The view of budgets by host that spends and never credits."""

    def of(self, host: Hashable) -> Budget:
        """Return the view of the budget of a host."""
        budgets: HostBudgets = cast("Any", self.budget)
        return budgets.of(host).without_credit()


def is_by_host(budget: object) -> TypeGuard[HostBudgets | SpendOnlyByHost]:
    """Return True if a client has a budget for each host."""
    return isinstance(budget, HostBudgets | SpendOnlyByHost)
