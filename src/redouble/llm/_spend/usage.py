"""Usage, the tokens of one call; Price, their cost; amounts, and the unit in which money is counted.

Money is an integer number of units: an amount with up to 40 decimal places is exact (a price with up to 34),
and so is a fraction with a denominator up to 100. Any other amount is rounded up to the next unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any, NamedTuple

from redouble._internal.public import public
from redouble._internal.validation import integer, number

Money = float | Decimal | Fraction
UNITS = 10**40 * lcm(*range(1, 101))  # of one dollar, or of one of any other currency
MILLION = 1_000_000
MAX_MONEY = 10**15  # in any currency: more is a mistake
AMOUNT = "0 or more: release() returns what was reserved"


@public("redouble.llm")
class Usage(NamedTuple):
    """The tokens of one call: those of the prompt (``input``) and those of the answer (``output``).

    ``cached``: the part of ``input`` that the provider has read from its cache.
    """

    input: int = 0
    output: int = 0
    cached: int = 0

    @property
    def total(self) -> int:
        """The tokens of prompt and answer."""
        return self.input + self.output

    def __repr__(self) -> str:
        cached = f", cached={self.cached}" if self.cached else ""
        return f"Usage(input={self.input}, output={self.output}{cached})"


@public("redouble.llm")
@dataclass(frozen=True)
class Price:
    """The price of a million tokens: ``input`` of prompts, ``output`` of answers.

    >>> Price(input=2.5, output=10).of(Usage(1000, 200))
    Fraction(9, 2000)

    cached: for the part of a prompt that the provider has read from its cache; None: as ``input``.
    """

    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        wanted = "what a million tokens cost, such as 2.5"
        for option in ("input", "output", *(() if self.cached is None else ("cached",))):
            number(getattr(self, option), f"Price {option}", 0, 1e9, wanted)

    def of(self, usage: Usage) -> Fraction:
        """Return the exact cost of a usage."""
        return Fraction(self._units_of(usage), UNITS)

    def _units_of(self, usage: Usage) -> int:
        """Return the cost of a usage in units."""
        input_, output, cached = self._rates
        return input_ * (usage.input - usage.cached) + cached * usage.cached + output * usage.output

    @cached_property
    def _rates(self) -> tuple[int, int, int]:
        """The units that a token of a prompt costs, one of an answer, and one of a cached prompt."""
        cached = self.input if self.cached is None else self.cached
        input_, output, cached = (
            multiply(rate, UNITS // MILLION) for rate in (self.input, self.output, cached)
        )
        return input_, output, cached


def multiply(amount: Money, factor: int) -> int:
    """Multiply an amount exactly as it is written (0.1 is a tenth) by an integer, and round up."""
    exact = Decimal(repr(amount)) if isinstance(amount, float) else amount
    numerator, denominator = exact.as_integer_ratio()
    return -(-numerator * factor // denominator)


def check_amount(by: str, resource: str, value: Any, least: int = 0, wanted: str = AMOUNT) -> int:
    """Validate an amount given to ``by``, such as ``reserve``; convert money to units."""
    if type(value) is int and least <= value <= MAX_MONEY:  # the usual case
        return value * UNITS if resource == "cost" else value
    if resource != "cost":
        return integer(value, f"{by} {resource}", least, f"a whole number, {wanted}")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise TypeError(f"{by} cost={value!r}: write a number, {wanted}")
    valid = not (isinstance(value, Decimal) and value.is_nan()) and 0 <= value <= MAX_MONEY
    units = multiply(value, UNITS) if valid else -1
    if units < least:
        raise ValueError(f"{by} cost={value!r}: write a number, {wanted}")
    return units
