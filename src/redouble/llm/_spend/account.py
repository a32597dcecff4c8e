"""Account: the spend of one call, reserved before it, recorded while it streams, committed at its end."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias, cast

from redouble._internal.logger import log
from redouble._internal.validation import integer
from redouble.llm._errors import SpendExceeded
from redouble.llm._spend.ledger import ALL
from redouble.llm._spend.spend import Reservation, Spend, check_amounts
from redouble.llm._spend.usage import Price, Usage

__all__ = [
    "Account",
    "Reserve",
    "TokenAmount",
    "amount_to_reserve",
    "check_token_amount",
    "reported_usage",
    "total_tokens",
]


TokenAmount: TypeAlias = int | Usage
Reserve: TypeAlias = TokenAmount | Callable[..., TokenAmount]

WANTED = "the most tokens that a call takes, such as 4000, or Usage(input=3000, output=1000)"


def check_token_amount(value: object, option: str) -> TokenAmount:
    """Validate an amount of tokens."""
    if isinstance(value, Usage):
        integer(value.input, f"{option} input", 0, WANTED)
        integer(value.output, f"{option} output", 0, WANTED)
        return value
    return integer(value, option, 0, WANTED)


class Account:
    """The reservation of one logical call, and what its attempts have taken of it."""

    def __init__(
        self, spend: Spend, price: Price | None, reserved: TokenAmount, usage: Callable[[Any], object]
    ) -> None:
        self._price, self._usage = price, usage
        self._per_attempt = total_tokens(reserved), self._cost_of(reserved)  # at most
        self._tokens, self._cost = self._per_attempt  # reserved so far
        self._answers: list[Usage | None] = []
        # If it is garbage-collected without a commit, all of it counts as taken: the real amount is unknown.
        self._reservation: Reservation = spend._reserve(check_amounts("reserve", *self._per_attempt, 1), ALL)

    def _ensure_reserved(self, tokens: int, cost: Fraction) -> str | None:
        """Reserve up to these totals and return None, or return the name of a limit that lacks it."""
        tokens, cost = max(0, tokens - self._tokens), max(Fraction(0), cost - self._cost)
        if not tokens and not cost:
            return None
        resource = self._reservation._reserve_more(check_amounts("more", tokens, cost, 0))
        if resource is None:
            self._tokens += tokens
            self._cost += cost
        return resource

    # -------------------------------------------------------------------- whole answers

    def start_attempt(self) -> None:
        """Reserve for another attempt if an earlier one was answered and its answer refused."""
        if not self._answers:
            return
        (tokens, cost), (more_tokens, more_cost) = self._spent_by_answers(), self._per_attempt
        resource = self._ensure_reserved(tokens + more_tokens, cost + more_cost)
        if resource is not None:
            message = f"no other attempt: an answer was not accepted, and too little is left of {resource}"
            raise SpendExceeded(message, what=resource)

    def record_answer(self, result: object) -> None:
        """Record the usage of an answer: it has been paid for, whether or not it is accepted."""
        self._answers.append(reported_usage(self._usage, result))

    def close(self) -> None:
        """Commit what the answers took; without any answer, the request alone."""
        self._reservation._commit(*self._spent_by_answers())

    def _spent_by_answers(self) -> tuple[int, Fraction]:
        """Return the tokens and cost of all answers; one without a usage counts as the most it could take."""
        spent = [
            self._per_attempt if usage is None else (usage.total, self._cost_of(usage))
            for usage in self._answers
        ]
        return sum(tokens for tokens, _ in spent), sum((cost for _, cost in spent), Fraction(0))

    # -------------------------------------------------------------------------- streams

    def record_progress(self, usage: Usage | None, pieces: int) -> None:
        """Record what a stream has taken so far; raise `SpendExceeded` if no more can be reserved."""
        reported = usage or Usage()
        taken = Usage(reported.input, max(reported.output, pieces))
        resource = self._ensure_reserved(taken.total, self._cost_of(taken))
        if resource is not None:
            message = f"the stream was stopped: it has used more {resource} than are left"
            raise SpendExceeded(message, what=resource)

    def settle(self, usage: Usage | None, *, complete: bool, pieces: int = 0) -> None:
        """Commit what a stream took. If that is not known, it counts as all that was reserved.

        No-op if the reservation is settled: the garbage collector may collect it together with the stream.
        """
        if usage is None or (not complete and not usage.input):
            self._reservation._commit(None, None)
            return
        taken = Usage(usage.input, max(usage.output, pieces if not complete else 0))
        self._reservation._commit(taken.total, self._cost_of(taken))

    def fail(self) -> None:
        """Commit the request alone: the stream never delivered anything."""
        self._reservation._commit(0, 0)

    def _cost_of(self, taken: TokenAmount) -> Fraction:
        if self._price is None:
            return Fraction(0)
        if isinstance(taken, Usage):
            return self._price.of(taken)
        return max(self._price.of(Usage(taken, 0)), self._price.of(Usage(0, taken)))


def total_tokens(value: TokenAmount) -> int:
    """Return the number of tokens of an amount."""
    return value.total if isinstance(value, Usage) else value


def reported_usage(usage: Callable[[Any], object], result: object) -> Usage | None:
    """Return the result of ``usage`` for an answer; None, with a log entry, if it fails.

    An error is not raised, because the answer has been paid for.
    """
    try:
        value = usage(result)
        if value is None:
            return None
        if not isinstance(value, Usage):
            raise TypeError(f"usage answered {value!r}: write Usage(input=..., output=...), or None")
        return cast("Usage", check_token_amount(value, "usage"))
    except Exception:
        log("the tokens of an answer could not be read: the whole reservation counts as used", error=True)
        return None


def amount_to_reserve(reserve: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TokenAmount:
    """Return the amount that a call with these arguments has to reserve."""
    if callable(reserve):
        value = reserve(*args, **kwargs)
        return check_token_amount(value, "reserve")
    return 0 if reserve is None else cast("TokenAmount", reserve)  # validated by the model
