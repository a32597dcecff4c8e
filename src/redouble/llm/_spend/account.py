"""Account: the spend of one call, reserved before it, recorded while it streams, committed at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from redouble.llm._errors import SpendExceeded
from redouble.llm._spend.meter import TokenAmount
from redouble.llm._spend.spend import Reservation, Spend
from redouble.llm._spend.usage import Price, Usage

Reserve: TypeAlias = TokenAmount | Callable[..., TokenAmount]

NO_OTHER_ATTEMPT = "no other attempt: an answer was not accepted, and too little is left of {}"
STREAM_STOPPED = "the stream was stopped: it has used more {} than are left"


class Account(Reservation):
    """The reservation of one logical call, and what its attempts have taken of it. Costs are in units."""

    def __init__(self, spend: Spend, price: Price | None, reserved: TokenAmount) -> None:
        self._price = price
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

    def record_answer(self, usage: TokenAmount | None) -> None:
        """Record the usage of an answer: it has been paid for, whether or not it is accepted.

        An answer without a usage counts as the most it could take.
        """
        self._answers = self._with_answer(self._per_attempt if usage is None else self._amounts_of(usage))

    def _with_answer(self, taken: tuple[int, int]) -> tuple[int, int]:
        return self._answers[0] + taken[0], self._answers[1] + taken[1]

    def close(self) -> None:
        """Commit what the answers took; without any answer, as of a stream that never began, the request."""
        self._spend._settle(self._hold, *self._answers)

    def record_progress(self, usage: Usage | None, pieces: int) -> None:
        """Record what a stream has taken so far; raise `SpendExceeded` if no more can be reserved."""
        taken = usage or Usage()
        self._ensure_reserved(
            *self._amounts_of(taken._replace(output=max(taken.output, pieces))), STREAM_STOPPED
        )

    def settle(self, usage: Usage | None, pieces: int, *, complete: bool) -> None:
        """Commit what a stream took. If that is not known, it counts as all that was reserved."""
        if usage is None or (not complete and not usage.input):
            self._spend._settle(self._hold, None, None)
        else:
            taken = usage if complete else usage._replace(output=max(usage.output, pieces))
            self._spend._settle(self._hold, *self._amounts_of(taken))

    def _amounts_of(self, taken: TokenAmount) -> tuple[int, int]:
        """Return the tokens and the cost of an amount; a number of tokens is charged at the higher price."""
        if isinstance(taken, Usage):
            return taken.total, 0 if self._price is None else self._price._units_of(taken)
        return taken, 0 if self._price is None else taken * max(self._price._rates)
