"""Account: the spend of one call, reserved before it, recorded while it streams, committed at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from redouble._internal.logger import log
from redouble._internal.validation import integer
from redouble.llm._errors import SpendExceeded
from redouble.llm._spend.spend import Reservation, Spend
from redouble.llm._spend.usage import Price, Usage

__all__ = ["Account", "Reserve", "TokenAmount", "check_token_amount", "total_tokens"]


TokenAmount: TypeAlias = int | Usage
Reserve: TypeAlias = TokenAmount | Callable[..., TokenAmount]

WANTED = "the most tokens that a call takes, such as 4000, or Usage(input=3000, output=1000)"
NO_OTHER_ATTEMPT = "no other attempt: an answer was not accepted, and too little is left of {}"
STREAM_STOPPED = "the stream was stopped: it has used more {} than are left"


def check_token_amount(value: object, option: str) -> TokenAmount:
    """Validate an amount of tokens."""
    if isinstance(value, Usage):
        integer(value.input, f"{option} input", 0, WANTED)
        integer(value.output, f"{option} output", 0, WANTED)
        return value
    return integer(value, option, 0, WANTED)


class Account(Reservation):
    """The reservation of one logical call, and what its attempts have taken of it. Costs are in units."""

    def __init__(
        self, spend: Spend, price: Price | None, reserved: TokenAmount, usage: Callable[[Any], object]
    ) -> None:
        self._usage, self._rates = usage, (0, 0) if price is None else price._rates
        self._per_attempt = total_tokens(reserved), self._cost_of(reserved)  # at most
        self._tokens, self._cost = self._per_attempt  # reserved so far
        self._answers = 0, 0  # the tokens and the cost of all answers
        super().__init__(spend, *self._per_attempt, 1)
        # If it is garbage-collected without a commit, all of it counts as taken: the real amount is unknown.
        self._hold.if_abandoned = None

    def _ensure_reserved(self, tokens: int, cost: int, message: str) -> None:
        """Reserve up to these totals, or raise `SpendExceeded`."""
        tokens, cost = max(tokens, self._tokens), max(cost, self._cost)
        if (tokens, cost) != (self._tokens, self._cost):
            more = tokens - self._tokens, cost - self._cost
            shortage = self._spend._add(self._hold, *more)
            if shortage is not None:
                raise SpendExceeded(message.format(shortage.resource), what=shortage.resource)
            self._tokens, self._cost = tokens, cost

    def _commit(self, tokens: int | None, cost: int | None) -> None:
        """Commit what was taken; no-op if the garbage collector has found the reservation before."""
        self._spend._settle(self._hold, tokens, cost)

    # -------------------------------------------------------------------- whole answers

    def start_attempt(self) -> None:
        """Reserve for another attempt if an earlier one was answered and its answer refused."""
        self._ensure_reserved(*self._with_answer(self._per_attempt), NO_OTHER_ATTEMPT)

    def record_answer(self, result: object) -> None:
        """Record the usage of an answer: it has been paid for, whether or not it is accepted.

        An answer without a usage counts as the most it could take.
        """
        usage = reported_usage(self._usage, result)
        taken = self._per_attempt if usage is None else (usage.total, self._cost_of(usage))
        self._answers = self._with_answer(taken)

    def _with_answer(self, taken: tuple[int, int]) -> tuple[int, int]:
        return self._answers[0] + taken[0], self._answers[1] + taken[1]

    def close(self) -> None:
        """Commit what the answers took; without any answer, the request alone."""
        self._commit(*self._answers)

    # -------------------------------------------------------------------------- streams

    def record_progress(self, usage: Usage | None, pieces: int) -> None:
        """Record what a stream has taken so far; raise `SpendExceeded` if no more can be reserved."""
        input_, output = usage or (0, 0)
        taken = Usage(input_, max(output, pieces))
        self._ensure_reserved(taken.total, self._cost_of(taken), STREAM_STOPPED)

    def settle(self, usage: Usage | None, *, complete: bool, pieces: int = 0) -> None:
        """Commit what a stream took. If that is not known, it counts as all that was reserved."""
        if usage is None or (not complete and not usage.input):
            self._commit(None, None)
            return
        taken = usage if complete else Usage(usage.input, max(usage.output, pieces))
        self._commit(taken.total, self._cost_of(taken))

    def fail(self) -> None:
        """Commit the request alone: the stream never delivered anything."""
        self._commit(0, 0)

    def _cost_of(self, taken: TokenAmount) -> int:
        """Return the cost of an amount; a number of tokens is charged at the higher price."""
        if isinstance(taken, Usage):
            return taken.input * self._rates[0] + taken.output * self._rates[1]
        return taken * max(self._rates)


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
