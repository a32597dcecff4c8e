"""Numbers and durations in documents: written plainly, never taken for one another."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import inf, isfinite
from typing import cast

from redouble.config._values import UNLIMITED, Value
from redouble.config._wrong import Place, shown
from redouble.errors import ConfigError

__all__ = ["Duration", "Number", "Whole", "number_of", "plain"]

EXACT = 2**53  # up to here a float that is whole is the same number as an integer
POWERS = {"us": "e-6", "ms": "e-3", "s": ""}  # shifting the point is exact, multiplying by 0.001 is not
LONGER = {"m": 60.0, "h": 3600.0, "d": 86400.0}
PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*(us|ms|s|m|h|d)\s*$"
SPAN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|d)\s*")


def plain(number: float) -> float:
    """Write a number without a point if it needs none."""
    return int(number) if number == int(number) and abs(number) <= EXACT else number


def number_of(text: str) -> object:
    """Read a number if it is one; else the text is told of as it is."""
    with suppress(ValueError):
        number = float(text)
        return plain(number) if isfinite(number) else text.strip()
    return text.strip()


@dataclass(frozen=True)
class Duration(Value):
    """Seconds, as a number; or a text with a unit. ``zero``: whether a bare 0 is likely to be meant."""

    zero: bool = True

    def read(self, value: object, place: Place) -> float:
        if isinstance(value, str):
            return self._span(value, place)
        if isinstance(value, timedelta):
            value = value.total_seconds()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(value, place)
        try:
            seconds = float(value)
        except OverflowError:
            raise self._wrong(value, place) from None
        if not isfinite(seconds) or seconds < 0:
            raise self._wrong(value, place)
        if not seconds and not self.zero:
            raise place.wrong(
                f"{value}: nothing could run in no time at all; write {UNLIMITED!r} for no limit, "
                "or '0s' if that is what you mean"
            )
        return seconds

    def text(self, text: str) -> object:
        return number_of(text)

    def write(self, value: object, place: Place) -> object:  # noqa: ARG002
        seconds = cast("float", value)
        return "0s" if not seconds and not self.zero else plain(seconds)

    def schema(self) -> dict[str, object]:
        low = "minimum" if self.zero else "exclusiveMinimum"
        return {"anyOf": [{"type": "number", low: 0}, {"type": "string", "pattern": PATTERN}]}

    def _span(self, text: str, place: Place) -> float:
        found = SPAN.fullmatch(text)
        if found is None:
            raise self._wrong(text, place)
        number, unit = found.groups()
        seconds = float(number) * LONGER[unit] if unit in LONGER else float(number + POWERS[unit])
        if not isfinite(seconds):
            raise self._wrong(text, place)
        return seconds

    def _wrong(self, value: object, place: Place) -> ConfigError:
        return place.wrong(
            f"{shown(value)} is no duration: write seconds as a number, 0 or more, or a text with one unit "
            "of us, ms, s, m, h, d, such as '250ms', '30s' or '1.5h'"
        )


@dataclass(frozen=True)
class Whole(Value):
    """A whole number, from ``low`` to ``high``."""

    low: int = 0
    fix: str = ""
    high: float = 1e300  # Python does not spell those of thousands of digits

    def read(self, value: object, place: Place) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            wanted = self.fix or f"write a whole number, {self.low} or more"
            raise place.wrong(f"{shown(value)}: {wanted}")
        return value

    def text(self, text: str) -> object:
        return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,300}\s*", text) else text.strip()

    def schema(self) -> dict[str, object]:
        return {"type": "integer", "minimum": self.low}


@dataclass(frozen=True)
class Number(Value):
    """A number from ``low`` to ``high``."""

    low: float = 0
    high: float = inf

    def read(self, value: object, place: Place) -> float:
        if not isinstance(value, bool) and isinstance(value, int | float):
            with suppress(OverflowError):
                number = float(value)
                if self.low <= number <= self.high and isfinite(number):
                    return number
        wanted = f"{self.low:g} or more" if self.high == inf else f"from {self.low:g} to {self.high:g}"
        raise place.wrong(f"{shown(value)}: write a number, {wanted}")

    def text(self, text: str) -> object:
        return number_of(text)

    def write(self, value: object, place: Place) -> object:  # noqa: ARG002
        return plain(cast("float", value))

    def schema(self) -> dict[str, object]:
        most = {} if self.high == inf else {"maximum": self.high}
        return {"type": "number", "minimum": self.low, **most}
