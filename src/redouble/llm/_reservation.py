"""Reservation: what is set aside of an allowance for one call, until it is known what the call took."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Self

from redouble._internal.locks import Shared
from redouble._internal.public import public
from redouble._internal.validation import whole
from redouble.llm._allowances import NOTHING, SETTLED, Allowances, Amounts, Change, Taken
from redouble.llm._usage import Money, exactly

__all__ = ["Reservation", "asked_for", "money"]

MOST = 10**15  # of any money: more is a mistake
AMOUNT = "0 or more: release() hands back what was reserved"


@public("redouble.llm")
class Reservation(Shared):
    """What is set aside for one call, until it says what it took: made by `Spend.reserve`.

    Leave its ``with`` block, or drop it, without a `commit`, and all of it goes back.
    """

    def __init__(self, allowances: Allowances, tell: Callable[[Change], None], lost: Taken) -> None:
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
