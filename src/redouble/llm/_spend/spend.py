"""Spend: an allowance of tokens, money and requests that many calls of language models share.

What a call may take is set aside before it begins, all of it or nothing; afterwards what it really took is
counted, and the rest handed back. How that is done is the business of `_allowances`, the arithmetic that of
`_allowance`; where the amounts come from is not known here.

Reservation: what is set aside of an allowance for one call, until it is known what the call took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, Self

from redouble._internal.locks import SharedByIdentity
from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.validation import Duration, in_seconds, instance, number, whole
from redouble._internal.validation import seconds as checked
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.registry import register
from redouble.llm._errors import SpendRefused
from redouble.llm._spend.ledger import (
    NOTHING,
    SETTLED,
    Amount,
    Amounts,
    LedgerChange,
    LedgerView,
    LimitState,
    SpendLedger,
    Taken,
)
from redouble.llm._spend.usage import Money, exactly

__all__ = ["Reservation", "Spend", "asked_for", "money"]


MOST = 10**15  # of any money: more is a mistake
AMOUNT = "0 or more: release() hands back what was reserved"


@public("redouble.llm")
class Reservation(SharedByIdentity):
    """What is set aside for one call, until it says what it took: made by `Spend.reserve`.

    Leave its ``with`` block, or drop it, without a `commit`, and all of it goes back.
    """

    def __init__(self, allowances: SpendLedger, tell: Callable[[LedgerChange], None], lost: Taken) -> None:
        self._allowances, self._tell = allowances, tell
        self._hold = allowances.open(self, lost)

    def commit(self, *, tokens: int | None = None, cost: Money | None = None) -> None:
        """Count what was really taken, or for None all that was reserved, and hand back the rest.

        More than was reserved is no error, for it has been paid for. What does not fit into the limit is then
        overdrawn: nobody gets anything until it is made up for. The request counts in any case.
        """
        if not self._commit(tokens, cost):
            raise RuntimeError(SETTLED)

    def _commit(self, tokens: int | None, cost: Money | None) -> bool:
        """Do so; say whether it was still to be done."""
        taken = asked_for("commit", 0 if tokens is None else tokens, 0 if cost is None else cost, 0)
        change = self._allowances.settle(
            self._hold,
            {
                "tokens": None if tokens is None else taken["tokens"],
                "cost": None if cost is None else taken["cost"],
                "requests": None,
            },
        )
        self._tell(change)
        return change.after is not None

    def more(self, *, tokens: int = 0, cost: Money = 0) -> bool:
        """Set aside more for a call that is under way, all of it; or answer False and change nothing."""
        return self._lacking(asked_for("more", tokens, cost, 0)) is None

    def _lacking(self, asked: Amounts) -> str | None:
        """Set aside more, or answer of what there is too little."""
        change = self._allowances.hold(self._hold, asked, NOTHING)
        self._tell(change)
        if change.after is not None:
            return None
        return next(what for what, allowance in change.before.items() if asked[what] > allowance.left)

    def release(self) -> None:
        """Hand all of it back: nothing was taken. After a commit, or another release, it does nothing."""
        self._allowances.settle(self._hold, NOTHING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def asked_for(by: str, tokens: object, cost: object, requests: object) -> Amounts:
    """Accept amounts of a call, such as those of ``reserve``."""
    return {
        "tokens": whole(tokens, f"{by} tokens", 0, f"a whole number, {AMOUNT}"),
        "cost": money(cost, f"{by} cost", AMOUNT),
        "requests": whole(requests, f"{by} requests", 0, f"a whole number, {AMOUNT}"),
    }


def money(value: object, option: str, wanted: str) -> Fraction:
    """Accept an amount of money, and take it as it is written."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise TypeError(f"{option}={value!r}: write a number, {wanted}")
    if (isinstance(value, Decimal) and value.is_nan()) or not 0 <= value <= MOST:
        raise ValueError(f"{option}={value!r}: write a number, {wanted}")
    return exactly(value)


SHORTEST = 0.001  # second: a window
# A call that does not say how much it takes will take something: once nothing is left, it may not begin.
LEAST: Final[Amounts] = {"tokens": 1, "cost": Fraction(1, 10**30), "requests": 0}

LIMIT = "more than 0, or None for no limit"


@public("redouble.llm")
class Spend(SharedByIdentity):
    """Allow so many ``tokens``, so much money (``cost``) and so many ``requests``, to all calls together.

    >>> spend = Spend(tokens=1000, per=60)
    >>> with spend.reserve(tokens=300) as reservation:
    ...     reservation.commit(tokens=120)
    >>> spend.snapshot()["tokens_left"]
    880

    At every moment what is spent and what is reserved are within each limit, and so is what is spent in any
    ``per`` seconds, in all threads and event loops together. Nobody waits here: what does not fit is refused.
    Pass one object to everybody who is to share it: sharing is by identity.

    per: how many seconds the limits are for; None: for as long as the object lives.
    warn_at: log a warning when this share of a limit is spent or reserved, once in a window; None: never.
    name: what it is called in errors, logs and `redouble.stats`.
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
            limits["tokens"] = whole(tokens, "Spend tokens", 1, f"a whole number, {LIMIT}")
        if cost is not None:
            limits["cost"] = money(cost, "Spend cost", LIMIT)
            if not limits["cost"]:
                raise ValueError(f"Spend cost={cost!r}: write a number, {LIMIT}")
        if requests is not None:
            limits["requests"] = whole(requests, "Spend requests", 1, f"a whole number, {LIMIT}")
        if not limits:
            raise ValueError("Spend() limits nothing: write tokens=, cost= or requests=, or more than one")
        self.per = None if per is None else checked(per, "Spend per")
        if self.per is not None and self.per < SHORTEST:
            raise ValueError(f"Spend per={per!r}: write more seconds, such as 60, or None for no window")
        share = "a share above 0, up to 1, such as 0.8, or None for no warning"
        self.warn_at = None if warn_at is None else number(warn_at, "Spend warn_at", 1e-9, 1, share)
        instance(name, "Spend name", str | None, "a text, or None")
        self.name = name
        register(self, "limits")
        self.tokens, self.cost, self.requests = tokens, cost, requests
        soft = None if self.warn_at is None else exactly(self.warn_at)
        allowances = {what: LimitState(limit, soft and soft * limit) for what, limit in limits.items()}
        self._allowances = SpendLedger(allowances, self.per)

    def reserve(self, *, tokens: int = 0, cost: Money = 0, requests: int = 1) -> Reservation:
        """Set aside what a call takes at most, or raise `SpendRefused`: then nothing is set aside.

        A call that does not say how much may begin as long as anything is left. ``retry_after`` of the error
        tells when it would fit, if nobody else comes; it is None where time alone does not help: there is no
        window, it is more than the limit, or others have reserved too much.
        """
        return self._reserved(asked_for("reserve", tokens, cost, requests), NOTHING)

    def _reserved(self, asked: Amounts, lost: Taken) -> Reservation:
        reservation, made = Reservation(self._allowances, self._tell, lost), False
        try:
            change = self._allowances.hold(reservation._hold, asked, LEAST)
            if change.after is None:
                raise emit_rejected(self._refusal(change.before, asked), "spend", self.name)
            self._tell(change)
            made = True
        finally:
            if not made:  # interrupted, perhaps, and then the traceback would keep it
                reservation.release()
        return reservation

    def snapshot(self) -> Mapping[str, float]:
        """Tell of each limit that is set, such as ``tokens``, how much of it is spent now, and what else.

        That is ``tokens_reserved``, ``tokens_left`` and ``tokens_limit``; and ``overdrawn_tokens``: they were
        taken beyond the limit, and what leaves the window pays for them first.
        """
        told: dict[str, float] = {}
        for what, allowance in self._allowances.now().items():
            told[what] = _plain(allowance.spent)
            told[f"{what}_reserved"] = _plain(allowance.reserved)
            told[f"{what}_left"] = _plain(allowance.left)
            told[f"{what}_limit"] = _plain(allowance.limit)
            told[f"overdrawn_{what}"] = _plain(allowance.owed)
        return told

    def _refusal(self, stand: LedgerView, asked: Amounts) -> SpendRefused:
        """Find what has to be waited for the longest, and say so."""
        found = list[tuple[bool, bool, float, str]]()
        for what, allowance in stand.items():
            amount = asked[what] or LEAST[what]
            if amount > allowance.left:
                index = None if self.per is None else allowance.fits_from(amount)
                wait = 0.0 if index is None else self._allowances.until(index)
                found.append((amount > allowance.limit, index is None, wait, what))
        never, unknown, wait, what = max(found)
        allowance, amount = stand[what], asked[what]
        wanted = f"{_said(amount)} {'was' if amount == 1 else 'were'} asked for" if amount else "none is left"
        owed = f", {_said(allowance.owed)} overdrawn" if allowance.owed else ""
        why = (
            f"{_said(allowance.spent)} are spent{owed} and {_said(allowance.reserved)} reserved, and {wanted}"
        )
        why = f"{wanted}, which is more than it ever allows" if never else why
        return SpendRefused(
            f"{self._spelled(what, allowance)}: {why}", what=what, retry_after=None if unknown else wait
        )

    def _tell(self, change: LedgerChange) -> None:
        """Warn of what has become little, or less than nothing; not under the lock: a log may do anything."""
        for what, allowance in (change.after or {}).items():
            if allowance.warned != change.before[what].warned:
                used, limit = _said(allowance.spent + allowance.reserved), _said(allowance.limit)
                log("%s: %s of %s are spent or reserved", self._spelled(what, allowance), used, limit)
            if allowance.told != change.before[what].told:
                said = self._spelled(what, allowance)
                log("%s: %s more were taken than it allows", said, _said(allowance.owed))

    def _spelled(self, what: str, allowance: LimitState) -> str:
        per = "" if self.per is None else f" per {in_seconds(self.per)}"
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Spend({what}={_said(allowance.limit)}{per}{named})"

    def __repr__(self) -> str:
        options = {"tokens": self.tokens, "cost": self.cost, "requests": self.requests, "per": self.per}
        said = [f"{option}={value}" for option, value in options.items() if value is not None]
        said += [f"warn_at={self.warn_at}"] + ([] if self.name is None else [f"name={self.name!r}"])
        return f"Spend({', '.join(said)})"


def _plain(amount: Amount) -> float:
    return amount if isinstance(amount, int) else float(amount)


def _said(amount: Amount) -> str:
    return f"{amount}" if isinstance(amount, int) else f"{float(amount):.12g}"
