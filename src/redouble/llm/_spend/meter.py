"""Meter: the tokens and the cost of the answers to one call, for its events and its report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from redouble._internal.logger import log
from redouble._internal.validation import integer
from redouble.llm._protocols.fields import usage_of
from redouble.llm._spend.usage import UNITS, Price, Usage

TokenAmount: TypeAlias = int | Usage

WANTED = "the most tokens that a call takes, such as 4000, or Usage(input=3000, output=1000)"


def check_token_amount(value: object, option: str, wanted: str = WANTED) -> TokenAmount:
    """Validate an amount of tokens."""
    if not isinstance(value, Usage):
        return integer(value, option, 0, wanted)
    for field in Usage._fields:
        integer(getattr(value, field), f"{option} {field}", 0, wanted)
    if value.cached > value.input:
        raise ValueError(f"{option} cached={value.cached}: write a part of input={value.input}")
    return value


class Meter:
    """What one call has used: ``used`` holds the amounts by name, and grows while the call runs.

    The names are ``input_tokens``, ``cached_tokens`` (a part of these), ``output_tokens``, and ``cost`` if
    there is a price. It is empty until an answer has reported its usage.
    """

    def __init__(self, read: Callable[[Any], object] = usage_of, price: Price | None = None) -> None:
        self._read, self._price = read, price
        self._total = Usage()
        self.used: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"Meter({self.used})"

    def read(self, answer: object) -> Usage | None:
        """Return and count what an answer reports, or None.

        An error of the caller's function is logged and not raised, because the answer has been paid for.
        """
        try:
            taken = self._read(answer)
            if taken is None:
                return None
            if not isinstance(taken, Usage):
                raise TypeError(f"usage={taken!r}: write Usage(input=..., output=...), or None")
            check_token_amount(taken, "usage")
        except Exception:
            log("the tokens of an answer could not be read: a reservation counts as used in full", error=True)
            return None
        total = self._total
        self.count(Usage(total.input + taken.input, total.output + taken.output, total.cached + taken.cached))
        return taken

    def count(self, total: Usage) -> None:
        """Count the usage of the whole call so far."""
        self._total = total
        self.used["input_tokens"], self.used["cached_tokens"] = total.input, total.cached
        self.used["output_tokens"] = total.output
        if self._price is not None:
            self.used["cost"] = self._price._units_of(total) / UNITS
