"""Usage, the tokens of one call, and Price, their cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from redouble._internal.public import public
from redouble._internal.validation import number

__all__ = ["Money", "Price", "Usage", "exactly"]


Money = float | Decimal | Fraction
MILLION = 1_000_000


@public("redouble.llm")
class Usage(NamedTuple):
    """The tokens of one call: those of the prompt (``input``) and those of the answer (``output``)."""

    input: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """The tokens of prompt and answer."""
        return self.input + self.output


@public("redouble.llm")
@dataclass(frozen=True)
class Price:
    """The price of a million tokens: ``input`` of prompts, ``output`` of answers.

    >>> Price(input=2.5, output=10).of(Usage(1000, 200))
    Fraction(9, 2000)
    """

    input: float
    output: float

    def __post_init__(self) -> None:
        for option in ("input", "output"):
            wanted = "what a million tokens cost, such as 2.5"
            number(getattr(self, option), f"Price {option}", 0, 1e9, wanted)

    def of(self, usage: Usage) -> Fraction:
        """Return the exact cost of a usage."""
        return (exactly(self.input) * usage.input + exactly(self.output) * usage.output) / MILLION


def exactly(amount: Money) -> Fraction:
    """Convert an amount exactly as it is written: 0.1 becomes a tenth, and ten of them are one."""
    return Fraction(repr(amount)) if isinstance(amount, float) else Fraction(amount)
