"""Account: the spend of one call, reserved before it, recorded while it streams, committed at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from redouble._internal.logger import log
from redouble._internal.validation import instance, integer
from redouble.llm._errors import SpendExceeded
from redouble.llm._spend.spend import Reservation, Spend
from redouble.llm._spend.usage import Price, Usage

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
        self._per_attempt = self._amounts_of(reserved)  # at most
        self._answers = 0, 0  # the tokens and the cost of all answers
        super().__init__(spend, *self._per_attempt, 1)
        # If it is garbage-collected without a commit, all of it counts as taken: the real amount is unknown.
        self._hold.if_abandoned = None

    def _ensure_reserved(self, tokens: int, cost: int, message: str) -> None:
        """Reserve up to these totals, or raise `SpendExceeded`."""
        more = max(0, tokens - self._hold.tokens), max(0, cost - self._hold.cost)
        shortage = self._spend._add(self._hold, *more) if any(more) else None
        if shortage is not None:
            raise SpendExceeded(message.format(shortage.resource), what=shortage.resource)

    def start_attempt(self) -> None:
        """Reserve for another attempt if an earlier one was answered and its answer refused."""
        self._ensure_reserved(*self._with_answer(self._per_attempt), NO_OTHER_ATTEMPT)

    def record_answer(self, result: object) -> None:
        """Record the usage of an answer: it has been paid for, whether or not it is accepted.

        An answer without a usage counts as the most it could take. An error of the caller's function is
        logged and not raised, because the answer has been paid for.
        """
        taken = self._per_attempt
        try:
            usage = self._usage(result)
            instance(usage, "usage", Usage | None, "Usage(input=..., output=...), or None")
            if usage is not None:
                taken = self._amounts_of(check_token_amount(usage, "usage"))
        except Exception:
            log("the tokens of an answer could not be read: the whole reservation counts as used", error=True)
        self._answers = self._with_answer(taken)

    def _with_answer(self, taken: tuple[int, int]) -> tuple[int, int]:
        return self._answers[0] + taken[0], self._answers[1] + taken[1]

    def close(self) -> None:
        """Commit what the answers took; without any answer, as of a stream that never began, the request."""
        self._spend._settle(self._hold, *self._answers)

    def record_progress(self, usage: Usage | None, pieces: int) -> None:
        """Record what a stream has taken so far; raise `SpendExceeded` if no more can be reserved."""
        input_, output = usage or (0, 0)
        self._ensure_reserved(*self._amounts_of(Usage(input_, max(output, pieces))), STREAM_STOPPED)

    def settle(self, usage: Usage | None, pieces: int, *, complete: bool) -> None:
        """Commit what a stream took. If that is not known, it counts as all that was reserved."""
        if usage is None or (not complete and not usage.input):
            self._spend._settle(self._hold, None, None)
        else:
            taken = usage if complete else Usage(usage.input, max(usage.output, pieces))
            self._spend._settle(self._hold, *self._amounts_of(taken))

    def _amounts_of(self, taken: TokenAmount) -> tuple[int, int]:
        """Return the tokens and the cost of an amount; a number of tokens is charged at the higher price."""
        if isinstance(taken, Usage):
            return taken.total, taken.input * self._rates[0] + taken.output * self._rates[1]
        return taken, taken * max(self._rates)
