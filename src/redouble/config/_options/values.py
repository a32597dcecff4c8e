"""The types of option values: each reads documents and environment variables, writes, and has a JSON Schema.

The tables in `catalogue` assign a type to each option. In a document, a duration is a number of seconds or a
text with a unit; a text is never accepted where a number is expected.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf, isfinite
from typing import Any, Final, cast

from redouble._internal.validation import nearest
from redouble.config._document_path import DocPath, rewrite, short_repr
from redouble.errors import ConfigError

UNLIMITED: Final = "unlimited"


class VariableText(str):
    """The stripped text of a variable as a value of a document: the type of the option converts it."""

    __slots__ = ()


class Value(ABC):
    """The type of an option's value."""

    def read(self, value: object, place: DocPath) -> Any:
        """Validate a value of a document and return the argument for the constructor."""
        return self.parse(self.text(value) if isinstance(value, VariableText) else value, place)

    @abstractmethod
    def parse(self, value: object, place: DocPath) -> object:
        """Read a value that does not come from an environment variable."""

    def text(self, text: str) -> object:
        """Convert the text of an environment variable to the value that a document would hold."""
        return str(text)

    def write(self, value: Any, place: DocPath) -> object:  # noqa: ARG002  for overrides that raise
        """Convert an attribute of an object to the value that a document would hold."""
        return value

    @abstractmethod
    def schema(self) -> dict[str, object]:
        """Return the JSON Schema of the value."""


class Flag(Value):
    """A boolean."""

    def parse(self, value: object, place: DocPath) -> bool:
        return place.expect(value, bool, "true or false")

    def text(self, text: str) -> object:
        return {"true": True, "false": False}.get(text.lower(), text)

    def schema(self) -> dict[str, object]:
        return {"type": "boolean"}


class Text(Value):
    """Any text."""

    def parse(self, value: object, place: DocPath) -> str:
        return place.expect(value, str, "a text, in quotes")

    def schema(self) -> dict[str, object]:
        return {"type": "string"}


class AnyValue(Value):
    """Any value of a document, as it is."""

    def parse(self, value: object, place: DocPath) -> object:  # noqa: ARG002
        return value

    def write(self, value: object, place: DocPath) -> object:
        if not _is_plain(value):
            raise place.error(f"{short_repr(value)} cannot be written to a document: set it in code")
        return value

    def schema(self) -> dict[str, object]:
        return {}


def _is_plain(value: object) -> bool:
    """Return True if a document can hold a value."""
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return all(isinstance(key, str) for key in table) and all(map(_is_plain, table.values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[object]", value)))
    return value is None or isinstance(value, str | int | float)


class Choice(Value):
    """One of a fixed set of words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def parse(self, value: object, place: DocPath) -> str:
        word = place.expect(value, str, f"one of {', '.join(self.words)}, in quotes")
        if word not in self.words:
            raise place.error(f"{short_repr(word)} is not one of the choices; {nearest(word, self.words)}")
        return word

    def schema(self) -> dict[str, object]:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class Unlimited(Value):
    """A value of another type, or the word for no limit, which is None in Python."""

    of: Value

    def parse(self, value: object, place: DocPath) -> object:
        if value is None or value == UNLIMITED:
            return None
        try:
            return self.of.read(value, place)
        except ConfigError as error:
            if error.path == place.origin and ": write" in str(error):
                rewrite(error, end=f", or {UNLIMITED!r}")
            raise

    def text(self, text: str) -> object:
        return text  # the other type converts it

    def write(self, value: object, place: DocPath) -> object:
        return UNLIMITED if value is None else self.of.write(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"const": UNLIMITED}, self.of.schema()]}


@dataclass(frozen=True)
class Listed(Value):
    """A list of at least ``least`` values of one type; ``wanted``: an example for errors."""

    of: Value
    wanted: str = "a list, in square brackets"
    least: int = 0

    def parse(self, value: object, place: DocPath) -> tuple[Any, ...]:
        items = place.items(value, self.wanted)
        if len(items) < self.least:
            raise place.error("the list is empty: leave it out, or write something into it")
        return tuple(self.of.read(item, place.under(str(index))) for index, item in enumerate(items))

    def text(self, text: str) -> object:
        return [VariableText(item) for item in re.split(r"\s*,\s*", text)]

    def write(self, value: object, place: DocPath) -> object:
        if not isinstance(value, tuple):
            raise place.error(
                f"{short_repr(value)} is an iterable of your own: set it in code, or write a list"
            )
        items = cast("tuple[object, ...]", value)
        return [self.of.write(item, place.under(str(index))) for index, item in enumerate(items)]

    def schema(self) -> dict[str, object]:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.of.schema(), **least}


@dataclass(frozen=True)
class TableOf(Value):
    """A table of values of one type; ``wanted``: an example for errors.

    keys: the keys that it may have, and what each is in Python; if there are none, any key, as it is.
    """

    of: Value
    wanted: str = "a table"
    keys: Mapping[str, object] = field(default_factory=dict[str, object])

    def parse(self, value: object, place: DocPath) -> dict[object, object]:
        values: dict[object, object] = {}
        for key, item in place.table(value, self.wanted).items():
            if self.keys and key not in self.keys:
                raise place.unknown_key(key, item, self.keys)
            values[self.keys.get(key, key)] = self.of.read(item, place.under(key))
        return values

    def write(self, value: Mapping[Any, object], place: DocPath) -> object:
        texts: dict[object, str] = {inner: key for key, inner in self.keys.items()}
        named: dict[str, object] = {texts.get(key) or key: item for key, item in value.items()}
        return {key: self.of.write(item, place.under(key)) for key, item in named.items()}

    def schema(self) -> dict[str, object]:
        values = self.of.schema()
        if not self.keys:
            return {"type": "object", "additionalProperties": values}
        return {
            "type": "object",
            "properties": dict.fromkeys(self.keys, values),
            "additionalProperties": False,
        }


EXACT = 2**53  # up to here a float represents every integer exactly
POWERS = {"us": "e-6", "ms": "e-3", "s": ""}  # an exponent in the text is exact, multiplying by 0.001 is not
LONGER = {"m": 60.0, "h": 3600.0, "d": 86400.0}
SPAN = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|d)\s*$")


def plain(number: float) -> float:
    """Return a whole number as an int, so that it is written without a decimal point."""
    return int(number) if number == int(number) and abs(number) <= EXACT else number


def finite(value: object) -> float | None:
    """Return a number as a float; None if the value is no number, or not finite as a float."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
            return number if isfinite(number) else None
    return None


@dataclass(frozen=True)
class Number(Value):
    """A number from ``low`` to ``high``."""

    low: float = 0
    high: float = inf

    def parse(self, value: object, place: DocPath) -> float:
        number = finite(value)
        if number is None or not self.low <= number <= self.high:
            wanted = f"{self.low:g} or more" if self.high == inf else f"from {self.low:g} to {self.high:g}"
            raise place.error(f"{short_repr(value)}: write a number, {wanted}")
        return number

    def text(self, text: str) -> object:
        with suppress(ValueError):
            number = float(text)
            return plain(number) if isfinite(number) else text
        return text

    def write(self, value: float, place: DocPath) -> object:  # noqa: ARG002
        return plain(value)

    def schema(self) -> dict[str, object]:
        most = {} if self.high == inf else {"maximum": self.high}
        return {"type": "number", "minimum": self.low, **most}


@dataclass(frozen=True)
class DurationValue(Number):
    """A duration: seconds as a number, or a text with a unit.

    zero: accept a bare 0. If False, 0 is rejected as a likely mistake for "no limit"; ``"0s"`` is always
        accepted.
    """

    zero: bool = True

    def parse(self, value: object, place: DocPath) -> float:
        seconds = finite(_seconds(value))
        if seconds is None or seconds < 0:
            raise place.error(
                f"{short_repr(value)} is no duration: write seconds as a number, 0 or more, or a text with "
                "one unit of us, ms, s, m, h, d, such as '250ms', '30s' or '1.5h'"
            )
        if not (seconds or self.zero or isinstance(value, str)):
            raise place.error(
                f"{value}: with a limit of 0 seconds nothing could run; write {UNLIMITED!r} for no limit, "
                "or '0s' if that is what you mean"
            )
        return seconds

    def write(self, value: float, place: DocPath) -> object:  # noqa: ARG002
        return "0s" if not value and not self.zero else plain(value)

    def schema(self) -> dict[str, object]:
        low = "minimum" if self.zero else "exclusiveMinimum"
        return {"anyOf": [{"type": "number", low: 0}, {"type": "string", "pattern": SPAN.pattern}]}


def _seconds(value: object) -> object:
    if isinstance(value, str) and (match := SPAN.match(value)):
        number, unit = match.groups()
        return float(number) * LONGER[unit] if unit in LONGER else float(number + POWERS[unit])
    return value.total_seconds() if isinstance(value, timedelta) else value


@dataclass(frozen=True)
class Whole(Value):
    """A whole number, from ``low`` to ``high``."""

    low: int = 0
    fix: str = ""
    high: float = 1e300  # Python refuses to convert integers of thousands of digits to text

    def parse(self, value: object, place: DocPath) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            wanted = self.fix or f"write a whole number, {self.low} or more"
            raise place.error(f"{short_repr(value)}: {wanted}")
        return value

    def text(self, text: str) -> object:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,300}", text) else text

    def schema(self) -> dict[str, object]:
        return {"type": "integer", "minimum": self.low}
