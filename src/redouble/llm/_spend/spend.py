"""`Spend`: limits on tokens, cost and requests that many calls share. `Reservation`: one call's part of them.

A call reserves the most it may take before it starts, all of it or nothing. Afterwards `Reservation.commit`
records what it really took and releases the remainder. `SpendLedger` holds the amounts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, Self

from redouble._internal.locks import SharedByIdentity
from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, instance, integer, number
from redouble._internal.validation import seconds as checked
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.registry import register
from redouble.llm._errors import SpendRefused
from redouble.llm._spend.ledger import (
    ALREADY_SETTLED,
    NOTHING,
    Amount,
    Amounts,
    LedgerChange,
    LedgerView,
    LimitState,
    SpendLedger,
    Taken,
)
from redouble.llm._spend.usage import Money, exactly

__all__ = ["Reservation", "Spend", "check_amounts", "check_money"]


MAX_MONEY = 10**15  # in any currency: more is a mistake
AMOUNT = "0 or more: release() returns what was reserved"


@public("redouble.llm")
class Reservation(SharedByIdentity):
    """The amounts reserved for one call until they are committed or released: made by `Spend.reserve`.

    If its ``with`` block ends, or it is garbage-collected, without a `commit`, all of it is released.
    """

    def __init__(
        self, ledger: SpendLedger, log_change: Callable[[LedgerChange], None], taken_if_abandoned: Taken
    ) -> None:
        self._ledger, self._log_change = ledger, log_change
        self._hold = ledger.open_hold(self, taken_if_abandoned)

    def commit(self, *, tokens: int | None = None, cost: Money | None = None) -> None:
        """Record what was really taken, or for None all that was reserved, and release the remainder.

        Taking more than was reserved is no error, because it has been paid for. An amount that exceeds the
        limit is overdrawn: nothing can be reserved until it is made up for. The request always counts.
        """
        if not self._commit(tokens, cost):
            raise RuntimeError(ALREADY_SETTLED)

    def _commit(self, tokens: int | None, cost: Money | None) -> bool:
        """Commit the amounts; return False if the reservation was settled before."""
        taken = check_amounts("commit", 0 if tokens is None else tokens, 0 if cost is None else cost, 0)
        change = self._ledger.settle(
            self._hold,
            {
                "tokens": None if tokens is None else taken["tokens"],
                "cost": None if cost is None else taken["cost"],
                "requests": None,
            },
        )
        self._log_change(change)
        return change.after is not None

    def more(self, *, tokens: int = 0, cost: Money = 0) -> bool:
        """Reserve more for a call that is in flight, all of it; or return False and change nothing."""
        return self._reserve_more(check_amounts("more", tokens, cost, 0)) is None

    def _reserve_more(self, amounts: Amounts) -> str | None:
        """Reserve more and return None, or return the name of a limit that has too little left."""
        change = self._ledger.reserve(self._hold, amounts, NOTHING)
        self._log_change(change)
        if change.after is not None:
            return None
        return next(resource for resource, state in change.before.items() if amounts[resource] > state.left)

    def release(self) -> None:
        """Release all of it: nothing was taken. No-op after a commit or another release."""
        self._ledger.settle(self._hold, NOTHING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def check_amounts(by: str, tokens: object, cost: object, requests: object) -> Amounts:
    """Validate the amounts given to the method ``by``, such as ``reserve``."""
    return {
        "tokens": integer(tokens, f"{by} tokens", 0, f"a whole number, {AMOUNT}"),
        "cost": check_money(cost, f"{by} cost", AMOUNT),
        "requests": integer(requests, f"{by} requests", 0, f"a whole number, {AMOUNT}"),
    }


def check_money(value: object, option: str, wanted: str) -> Fraction:
    """Validate an amount of money and convert it exactly as it is written."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise TypeError(f"{option}={value!r}: write a number, {wanted}")
    if (isinstance(value, Decimal) and value.is_nan()) or not 0 <= value <= MAX_MONEY:
        raise ValueError(f"{option}={value!r}: write a number, {wanted}")
    return exactly(value)


MIN_WINDOW = 0.001  # seconds
# What must be left for a call that reserves 0 of a limit: such a call takes something too, so it is rejected
# once nothing is left.
LEAST: Final[Amounts] = {"tokens": 1, "cost": Fraction(1, 10**30), "requests": 0}

LIMIT = "more than 0, or None for no limit"


@public("redouble.llm")
class Spend(SharedByIdentity):
    """Limits on the ``tokens``, the money (``cost``) and the ``requests`` of all calls together.

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
        limits: dict[str, Amount] = {}
        if tokens is not None:
            limits["tokens"] = integer(tokens, "Spend tokens", 1, f"a whole number, {LIMIT}")
        if cost is not None:
            limits["cost"] = check_money(cost, "Spend cost", LIMIT)
            if not limits["cost"]:
                raise ValueError(f"Spend cost={cost!r}: write a number, {LIMIT}")
        if requests is not None:
            limits["requests"] = integer(requests, "Spend requests", 1, f"a whole number, {LIMIT}")
        if not limits:
            raise ValueError("Spend() limits nothing: write tokens=, cost= or requests=, or more than one")
        self.per = None if per is None else checked(per, "Spend per")
        if self.per is not None and self.per < MIN_WINDOW:
            raise ValueError(f"Spend per={per!r}: write more seconds, such as 60, or None for no window")
        share = "a share above 0, up to 1, such as 0.8, or None for no warning"
        self.warn_at = None if warn_at is None else number(warn_at, "Spend warn_at", 1e-9, 1, share)
        instance(name, "Spend name", str | None, "a text, or None")
        self.name = name
        register(self, "limits")
        self.tokens, self.cost, self.requests = tokens, cost, requests
        warn_share = None if self.warn_at is None else exactly(self.warn_at)
        states = {
            resource: LimitState(limit, warn_share and warn_share * limit)
            for resource, limit in limits.items()
        }
        self._ledger = SpendLedger(states, self.per)

    def reserve(self, *, tokens: int = 0, cost: Money = 0, requests: int = 1) -> Reservation:
        """Reserve the most that a call takes, or raise `SpendRefused` and reserve nothing.

        A call that reserves 0 is admitted as long as anything is left. ``retry_after`` of the error is the
        number of seconds until the call would fit if no other call is admitted before; it is None if waiting
        alone does not help: there is no window, the amount exceeds the limit, or too much is reserved.
        """
        return self._reserve(check_amounts("reserve", tokens, cost, requests), NOTHING)

    def _reserve(self, amounts: Amounts, taken_if_abandoned: Taken) -> Reservation:
        reservation, reserved = Reservation(self._ledger, self._log_change, taken_if_abandoned), False
        try:
            change = self._ledger.reserve(reservation._hold, amounts, LEAST)
            if change.after is None:
                raise emit_rejected(self._refusal(change.before, amounts), "spend", self.name)
            self._log_change(change)
            reserved = True
        finally:
            if not reserved:  # also if interrupted: the traceback would keep the reservation alive
                reservation.release()
        return reservation

    def snapshot(self) -> Mapping[str, float]:
        """Return the amounts of each limit that is set: ``tokens`` is the number of tokens spent now.

        Beside it are ``tokens_reserved``, ``tokens_left``, ``tokens_limit`` and ``overdrawn_tokens``: the
        amount taken beyond the limit. Whatever leaves the window makes up for that first.
        """
        snapshot: dict[str, float] = {}
        for resource, state in self._ledger.view().items():
            snapshot[resource] = _as_number(state.spent)
            snapshot[f"{resource}_reserved"] = _as_number(state.reserved)
            snapshot[f"{resource}_left"] = _as_number(state.left)
            snapshot[f"{resource}_limit"] = _as_number(state.limit)
            snapshot[f"overdrawn_{resource}"] = _as_number(state.overdrawn)
        return snapshot

    def _refusal(self, view: LedgerView, amounts: Amounts) -> SpendRefused:
        """Return the error for the limit with the longest wait."""
        shortages = list[tuple[bool, bool, float, str]]()
        for resource, state in view.items():
            amount = amounts[resource] or LEAST[resource]
            if amount > state.left:
                index = None if self.per is None else state.fits_from(amount)
                wait = 0.0 if index is None else self._ledger.seconds_until(index)
                shortages.append((amount > state.limit, index is None, wait, resource))
        never, unknown, wait, resource = max(shortages)
        state, amount = view[resource], amounts[resource]
        wanted = f"{_text(amount)} {'was' if amount == 1 else 'were'} asked for" if amount else "none is left"
        overdrawn = f", {_text(state.overdrawn)} overdrawn" if state.overdrawn else ""
        why = f"{_text(state.spent)} are spent{overdrawn} and {_text(state.reserved)} reserved, and {wanted}"
        why = f"{wanted}, which is more than it ever allows" if never else why
        return SpendRefused(
            f"{self._limit_name(resource, state)}: {why}",
            what=resource,
            retry_after=None if unknown else wait,
        )

    def _log_change(self, change: LedgerChange) -> None:
        """Log limits that passed `warn_at` or were overdrawn.

        Called without the lock, because a log handler may do anything.
        """
        for resource, state in (change.after or {}).items():
            if state.warned_in != change.before[resource].warned_in:
                used, limit = _text(state.spent + state.reserved), _text(state.limit)
                log("%s: %s of %s are spent or reserved", self._limit_name(resource, state), used, limit)
            if state.overdraft_logged_in != change.before[resource].overdraft_logged_in:
                shown = self._limit_name(resource, state)
                log("%s: %s more were used than it allows", shown, _text(state.overdrawn))

    def _limit_name(self, resource: str, state: LimitState) -> str:
        per = "" if self.per is None else f" per {format_seconds(self.per)}"
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Spend({resource}={_text(state.limit)}{per}{named})"

    def __repr__(self) -> str:
        options = {"tokens": self.tokens, "cost": self.cost, "requests": self.requests, "per": self.per}
        shown = [f"{option}={value}" for option, value in options.items() if value is not None]
        shown += [f"warn_at={self.warn_at}"] + ([] if self.name is None else [f"name={self.name!r}"])
        return f"Spend({', '.join(shown)})"


def _as_number(amount: Amount) -> float:
    return amount if isinstance(amount, int) else float(amount)


def _text(amount: Amount) -> str:
    return f"{amount}" if isinstance(amount, int) else f"{float(amount):.12g}"
