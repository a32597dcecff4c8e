"""`Spend`: limits on tokens, cost and requests that many calls share. `Reservation`: one call's part of them.

A call reserves the most it may take before it starts, all of it or nothing. Afterwards `Reservation.commit`
records what it really took and releases the remainder.

Rule 1: amounts change only in the functions marked as atomic, here and in `LimitLedger`. These have no call,
        no loop and no new container. So neither a signal handler nor the garbage collector can run inside
        them: an operation that interrupts another one finds all amounts before a change, or after it.
        No other protection against re-entrant calls is needed. The lock excludes other threads.
Rule 2: the clock is read under the lock. A time read before would be too old, and an amount would leave the
        window too early.
Rule 3: a reservation may be garbage-collected without settling. The callback of its weak reference is a
        function written in C (`deque.append`), which nothing can interrupt and which needs no lock: it queues
        the hold, and the next operation settles it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from fractions import Fraction
from math import inf
from typing import Self
from weakref import ref

from redouble._internal.locks import ForkSafe, SharedByIdentity
from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.sliding_counter import SLICES
from redouble._internal.validation import Duration, format_seconds, instance, number, positive_seconds
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.registry import register
from redouble.llm._errors import SpendRefused
from redouble.llm._spend.ledger import LimitLedger, Shortage
from redouble.llm._spend.usage import Money, check_amount

LEAST = 1  # that must be left for a call that reserves no tokens or no cost: it takes something too
ALREADY_SETTLED = (
    "this reservation is settled: commit() or release() was called before, or its `with` block is over. "
    "Each call needs one of its own: spend.reserve(...)"
)


class Hold(ref[object]):
    """A weak reference to a reservation, with its amounts.

    ``if_abandoned``: the amount of each limit that counts as taken if the reservation is
    garbage-collected without settling; None: all that was reserved.
    """

    __slots__ = ("cost", "if_abandoned", "requests", "tokens")

    tokens: int
    cost: int
    requests: int
    if_abandoned: int | None


@public("redouble.llm")
class Reservation(SharedByIdentity):
    """The amounts reserved for one call until they are committed or released: made by `Spend.reserve`.

    If its ``with`` block ends, or it is garbage-collected, without a `commit`, all of it is released.
    """

    def __init__(self, spend: Spend, tokens: int, cost: int, requests: int) -> None:
        """Reserve all of the amounts, or raise `SpendRefused`."""
        self._spend, self._hold = spend, Hold(self, spend._abandoned.append)
        self._hold.tokens = self._hold.cost = self._hold.requests = self._hold.if_abandoned = 0
        spend._holds[self._hold] = None
        complete = False
        try:
            shortage = spend._add(self._hold, tokens, cost, requests, LEAST)
            complete = shortage is None
        finally:
            if not complete:  # also if interrupted: the traceback would keep the reservation alive
                self.release()
        if shortage is not None:
            raise emit_rejected(spend._refusal(shortage), "spend", spend.name)

    def commit(self, *, tokens: int | None = None, cost: Money | None = None) -> None:
        """Record what was really taken, or for None all that was reserved, and release the remainder.

        Taking more than was reserved is no error, because it has been paid for. An amount that exceeds the
        limit is overdrawn: nothing can be reserved until it is made up for. The request always counts.
        """
        taken = None if tokens is None else check_amount("commit", "tokens", tokens)
        paid = None if cost is None else check_amount("commit", "cost", cost)
        if not self._spend._settle(self._hold, taken, paid):
            raise RuntimeError(ALREADY_SETTLED)

    def more(self, *, tokens: int = 0, cost: Money = 0) -> bool:
        """Reserve more for a call that is in flight, all of it; or return False and change nothing."""
        amounts = check_amount("more", "tokens", tokens), check_amount("more", "cost", cost)
        return self._spend._add(self._hold, *amounts) is None

    def release(self) -> None:
        """Release all of it: nothing was taken. No-op after a commit or another release."""
        self._spend._settle(self._hold, 0, 0, 0)

    @try_from_start  # the amounts are reserved before
    def __enter__(self) -> Self:
        try:
            return self
        except BaseException:
            self.release()
            raise

    @try_from_start
    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        except BaseException:
            self.release()
            raise


LIMIT = "more than 0, or None for no limit"


@public("redouble.llm")
class Spend(ForkSafe):
    """Limits on the ``tokens``, the money (``cost``) and the ``requests`` of all calls together.

    All three are counted, limited or not: ``Spend()`` only counts.

    >>> spend = Spend(tokens=1000, per=60)
    >>> with spend.reserve(tokens=300) as reservation:
    ...     reservation.commit(tokens=120)
    >>> spend.snapshot()["tokens_left"]
    880

    At every moment the amounts spent and reserved stay within each limit, and so does the amount spent in any
    ``per`` seconds, across all threads and event loops. `reserve` never waits: a call that does not fit is
    rejected. Sharing is by identity: pass the same object to every model that is to share the limits.

    per: the window of the limits in seconds; None: the lifetime of the object.
    warn_at: log a warning when this share of a limit is spent or reserved, once per window; None: never.
    name: its name in errors, logs and `redouble.stats`.
    """

    def __init__(
        self,
        *,
        tokens: int | None = None,
        cost: Money | None = None,
        requests: int | None = None,
        per: Duration | None = None,
        warn_at: float | None = 0.8,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.tokens, self.cost, self.requests = tokens, cost, requests
        limits = {
            resource: None if limit is None else check_amount("Spend", resource, limit, 1, LIMIT)
            for resource, limit in (("tokens", tokens), ("cost", cost), ("requests", requests))
        }
        window = "60, or None for no window"
        self.per = None if per is None else positive_seconds(per, "Spend per", window)
        share = "a share above 0, up to 1, such as 0.8, or None for no warning"
        self.warn_at = None if warn_at is None else number(warn_at, "Spend warn_at", 1e-9, 1, share)
        instance(name, "Spend name", str | None, "a text, or None")
        self.name = name
        suffix = "" if self.per is None else f" per {format_seconds(self.per)}"
        suffix += "" if name is None else f", name={name!r}"
        self._ledgers = [LimitLedger(*limit, suffix, self.warn_at) for limit in limits.items()]
        self._limited = [ledger for ledger in self._ledgers if ledger.limit < inf]
        self._holds = dict[Hold, None]()  # those not settled; a dict, because `del` of a key is no call
        self._abandoned = deque[Hold]()  # holds whose reservation was collected
        # Slices per second, as an exact fraction: an amount must not leave the window too early.
        self._rate = (SLICES / Fraction(self.per or 1)).as_integer_ratio()
        # The current slice, its distance from the clock's, and the times between which it is the current one.
        self._slice = self._offset = 0
        self._since, self._until = (-inf, inf) if self.per is None else (0.0, 0.0)
        register(self, "limits")

    def reserve(self, *, tokens: int = 0, cost: Money = 0, requests: int = 1) -> Reservation:
        """Reserve the most that a call takes, or raise `SpendRefused` and reserve nothing.

        A call that reserves 0 is admitted as long as anything is left. ``retry_after`` of the error is the
        number of seconds until the call would fit if no other call is admitted before; it is None if waiting
        alone does not help: there is no window, the amount exceeds the limit, or too much is reserved.
        """
        whole, units = check_amount("reserve", "tokens", tokens), check_amount("reserve", "cost", cost)
        return Reservation(self, whole, units, check_amount("reserve", "requests", requests))

    def snapshot(self) -> Mapping[str, float]:
        """Return the amounts: ``tokens`` is the number of tokens spent now, and so are the other two.

        ``tokens_reserved`` is reserved by calls in flight. If tokens are limited, there are ``tokens_left``,
        ``tokens_limit`` and ``overdrawn_tokens`` too: the amount taken beyond the limit. Whatever leaves the
        window makes up for that first.
        """
        with self._lock:
            self._update()
            return {name: amount for ledger in self._ledgers for name, amount in ledger.snapshot().items()}

    def _refusal(self, shortage: Shortage) -> SpendRefused:
        """Return the error; a hundredth of a slice is added to the wait, so that the slice has begun."""
        slices, seconds = self._rate
        begins = (shortage.fits_from - self._offset + 0.01) * seconds / slices
        never = shortage.never_fits or self.per is None
        wait = None if never else max(0.0, begins - SYSTEM.now())
        return SpendRefused(shortage.message, what=shortage.resource, retry_after=wait)

    # ------------------------------------------------------------------------------------- amounts

    def _add(self, hold: Hold, tokens: int, cost: int, requests: int = 0, least: int = 0) -> Shortage | None:
        """Add all of the amounts to a hold; or add none, and return the shortage of the limit to wait for.

        Where an amount of tokens or cost is 0, ``least`` must be left.
        """
        shortage = None
        with self._lock:
            self._update()
            if not self._add_to_hold(hold, tokens, cost, requests, least):
                each = zip(self._ledgers, (tokens, cost, requests), (least, least, 0), strict=True)
                shortage = max(
                    one.shortage(asked, asked or low) for one, asked, low in each if one in self._limited
                )
        self._log_warnings()
        return shortage

    def _add_to_hold(self, hold: Hold, tokens: int, cost: int, requests: int, least: int) -> bool:
        """Add all of the amounts, or return False. Atomic."""
        of_tokens, of_cost, of_requests = self._ledgers
        want_tokens, want_cost = tokens or least, cost or least
        if hold not in self._holds:
            raise RuntimeError(ALREADY_SETTLED)
        if (
            (want_tokens and of_tokens.taken + of_tokens.reserved + want_tokens > of_tokens.limit)
            or (want_cost and of_cost.taken + of_cost.reserved + want_cost > of_cost.limit)
            or (requests and of_requests.taken + of_requests.reserved + requests > of_requests.limit)
        ):
            return False
        of_tokens.reserved += tokens
        hold.tokens += tokens
        of_cost.reserved += cost
        hold.cost += cost
        of_requests.reserved += requests
        hold.requests += requests
        return True

    def _settle(self, hold: Hold, tokens: int | None, cost: int | None, requests: int | None = None) -> bool:
        """End a hold and record what was taken, for None all that was reserved; False if it was ended."""
        with self._lock:
            self._advance()
            settled = self._end_hold(hold, tokens, cost, requests)
        self._log_warnings()
        return settled

    def _end_hold(self, hold: Hold, tokens: int | None, cost: int | None, requests: int | None) -> bool:
        """End a hold, or return False if it was ended before. Atomic."""
        of_tokens, of_cost, of_requests = self._ledgers
        if hold not in self._holds:
            return False
        del self._holds[hold]
        of_tokens.reserved -= hold.tokens
        of_tokens.taken += hold.tokens if tokens is None else tokens
        of_cost.reserved -= hold.cost
        of_cost.taken += hold.cost if cost is None else cost
        of_requests.reserved -= hold.requests
        of_requests.taken += hold.requests if requests is None else requests
        return True

    def _update(self) -> None:
        """Advance to the current time, and settle the holds whose reservations were garbage-collected."""
        self._advance()
        abandoned = self._abandoned
        while abandoned:
            hold = abandoned[0]
            taken = hold.if_abandoned
            self._end_hold(hold, taken, taken, taken)
            if abandoned and abandoned[0] is hold:  # else a signal handler has settled it
                del abandoned[0]

    def _advance(self) -> None:
        """Advance all limits to the current slice."""
        latest, now = self._slice, SYSTEM.now()
        if not self._since <= now < self._until:
            (numerator, denominator), (slices, seconds) = now.as_integer_ratio(), self._rate
            index = numerator * slices // (denominator * seconds)
            if index + self._offset < latest:  # the clock went backwards: the time that passed counts as none
                self._offset = latest - index
            self._slice = index + self._offset
            for ledger in self._ledgers:
                ledger.advance(index + self._offset)
            self._since, self._until = now, (index + 1) * seconds / slices

    def _log_warnings(self) -> None:
        """Log limits that passed `warn_at` or are overdrawn.

        Called without the lock, because a log handler may do anything.
        """
        for ledger in self._limited:
            if ledger.taken + ledger.reserved >= ledger.log_from:
                with self._lock:
                    messages = [*ledger.messages()]
                for message in messages:
                    log(*message)

    def _after_fork(self) -> None:
        """Release what the parent's calls have reserved: a child does not own it."""
        super()._after_fork()
        for hold in self._holds:
            hold.tokens = hold.cost = hold.requests = 0
        for ledger in self._ledgers:
            ledger.reserved = 0

    def __repr__(self) -> str:
        options = {"tokens": self.tokens, "cost": self.cost, "requests": self.requests, "per": self.per}
        shown = [f"{option}={value}" for option, value in options.items() if value is not None]
        shown += [f"warn_at={self.warn_at}"] + ([] if self.name is None else [f"name={self.name!r}"])
        return f"Spend({', '.join(shown)})"
