"""What one call takes from a `Spend`: reserved before it, counted while it streams, committed at its end."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias, cast

from redouble._internal.logger import log
from redouble._internal.validation import whole
from redouble.llm._errors import SpendExceeded
from redouble.llm._spend.ledger import ALL
from redouble.llm._spend.spend import Reservation, Spend, asked_for
from redouble.llm._spend.usage import Price, Usage

__all__ = ["Account", "Amount", "Reserve", "amount", "reserved", "told", "total"]


Amount: TypeAlias = int | Usage
Reserve: TypeAlias = Amount | Callable[..., Amount]

WANTED = "the most tokens that a call takes, such as 4000, or Usage(input=3000, output=1000)"


def amount(said: object, option: str) -> Amount:
    """Check an amount of tokens."""
    if isinstance(said, Usage):
        whole(said.input, f"{option} input", 0, WANTED)
        whole(said.output, f"{option} output", 0, WANTED)
        return said
    return whole(said, option, 0, WANTED)


class Account:
    """The allowance of one logical call."""

    def __init__(
        self, spend: Spend, price: Price | None, reserved: Amount, usage: Callable[[Any], object]
    ) -> None:
        self._price, self._usage = price, usage
        self._most = total(reserved), self._worth(reserved)  # that an attempt takes
        self._tokens, self._cost = self._most  # that are set aside by now
        self._answers: list[Usage | None] = []
        # Who loses it, and says nothing, has taken all of it: what is not known counts as that.
        self._held: Reservation = spend._reserved(asked_for("reserve", *self._most, 1), ALL)

    def _lacking(self, tokens: int, cost: Fraction) -> str | None:
        """Have so much set aside in all; or answer of what there is too little."""
        tokens, cost = max(0, tokens - self._tokens), max(Fraction(0), cost - self._cost)
        if not tokens and not cost:
            return None
        what = self._held._lacking(asked_for("more", tokens, cost, 0))
        if what is None:
            self._tokens += tokens
            self._cost += cost
        return what

    # ------------------------------------------------------------------------ of a call

    def begins(self) -> None:
        """Set as much aside again if an attempt was answered, and its answer refused."""
        if not self._answers:
            return
        (tokens, cost), (more, dearer) = self._paid(), self._most
        what = self._lacking(tokens + more, cost + dearer)
        if what is not None:
            said = f"no other attempt: an answer was refused, and too little is left of {what}"
            raise SpendExceeded(said, what=what)

    def answered(self, result: object) -> None:
        """Take in that an attempt was answered: whatever becomes of the answer, it has been paid for."""
        self._answers.append(told(self._usage, result))

    def close(self) -> None:
        """Commit what the answers took. Without any there is the request alone: nothing came of it."""
        self._held._commit(*self._paid())

    def _paid(self) -> tuple[int, Fraction]:
        """Tell what the answers took; one that does not say it, all that it could."""
        took = [self._most if usage is None else (usage.total, self._worth(usage)) for usage in self._answers]
        return sum(tokens for tokens, _ in took), sum((cost for _, cost in took), Fraction(0))

    # ---------------------------------------------------------------------- of a stream

    def count(self, usage: Usage | None, pieces: int) -> None:
        """Take in what a stream has taken so far: one that has no more to take is stopped."""
        said = usage or Usage()
        taken = Usage(said.input, max(said.output, pieces))
        what = self._lacking(taken.total, self._worth(taken))
        if what is not None:
            raise SpendExceeded(f"the stream was stopped: it has taken more {what} than are left", what=what)

    def settle(self, usage: Usage | None, *, complete: bool, pieces: int = 0) -> None:
        """Commit what was taken. What is not known counts as all that was reserved.

        If a collector that has found everything at once has handed it back before, that is all.
        """
        if usage is None or (not complete and not usage.input):
            self._held._commit(None, None)
            return
        taken = Usage(usage.input, max(usage.output, pieces if not complete else 0))
        self._held._commit(taken.total, self._worth(taken))

    def fail(self) -> None:
        """Commit the request alone: nothing came of it."""
        self._held._commit(0, 0)

    def _worth(self, taken: Amount) -> Fraction:
        if self._price is None:
            return Fraction(0)
        if isinstance(taken, Usage):
            return self._price.of(taken)
        return max(self._price.of(Usage(taken, 0)), self._price.of(Usage(0, taken)))


def total(said: Amount) -> int:
    """Tell how many tokens an amount is."""
    return said.total if isinstance(said, Usage) else said


def told(usage: Callable[[Any], object], result: object) -> Usage | None:
    """Ask how much a call took. If that fails, it is not known: the answer is there, and paid for."""
    try:
        said = usage(result)
        if said is None:
            return None
        if not isinstance(said, Usage):
            raise TypeError(f"usage answered {said!r}: write Usage(input=..., output=...), or None")
        return cast("Usage", amount(said, "usage"))
    except Exception:
        log("what an answer took could not be found out: it counts as all that was reserved", trouble=True)
        return None


def reserved(reserve: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Amount:
    """Tell how much a call with these arguments is to reserve."""
    if callable(reserve):
        said = reserve(*args, **kwargs)
        return amount(said, "reserve")
    return 0 if reserve is None else cast("Amount", reserve)  # which was checked
