"""Kinds of values: how each is read from a document, from a variable, written again, and described.

A kind is a small value without a name; which option is of which kind is said in the tables. What a value is
for is not known here. Numbers and durations are in `_numbers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from redouble.config._wrong import Place, amend, nearest, shown
from redouble.errors import ConfigError

__all__ = ["UNLIMITED", "Choice", "Flag", "Labels", "Listed", "Text", "Unlimited", "Value"]

UNLIMITED: Final = "unlimited"


class Value(ABC):
    """A kind of value."""

    @abstractmethod
    def read(self, value: object, place: Place) -> object:
        """Turn what a document says into what a constructor wants."""

    def text(self, text: str) -> object:
        """Turn the text of a variable into what a document would say."""
        return text.strip()

    def write(self, value: object, place: Place) -> object:  # noqa: ARG002  some cannot be written
        """Turn what an object has into what a document says."""
        return value

    @abstractmethod
    def schema(self) -> dict[str, object]:
        """Describe it in JSON Schema."""

    def keys(self) -> Mapping[str, Value]:
        """Name the keys inside it, if it may be a table."""
        return MappingProxyType({})

    def other(self) -> Value | None:
        """Tell of what kind all other keys inside it are, if there may be any."""
        return None


@dataclass(frozen=True)
class Flag(Value):
    """True or false."""

    def read(self, value: object, place: Place) -> bool:
        if not isinstance(value, bool):
            raise place.wrong(f"{shown(value)}: write true or false")
        return value

    def text(self, text: str) -> object:
        word = text.strip().lower()
        return word == "true" if word in ("true", "false") else word

    def schema(self) -> dict[str, object]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text(Value):
    """Any text."""

    def read(self, value: object, place: Place) -> str:
        if not isinstance(value, str):
            raise place.wrong(f"{shown(value)}: write a text, in quotes")
        return value

    def schema(self) -> dict[str, object]:
        return {"type": "string"}


TEXT = Text()


@dataclass(frozen=True)
class Choice(Value):
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, value: object, place: Place) -> str:
        if not isinstance(value, str):
            raise place.wrong(f"{shown(value)}: write one of {', '.join(self.words)}, in quotes")
        if value not in self.words:
            raise place.wrong(f"{shown(value)} is not known here; {nearest(value, self.words)}")
        return value

    def schema(self) -> dict[str, object]:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class Unlimited(Value):
    """Something that may also be left without a limit: None, in Python."""

    of: Value

    def read(self, value: object, place: Place) -> object:
        if value is None or value == UNLIMITED:
            return None
        try:
            return self.of.read(value, place)
        except ConfigError as error:
            if error.path == place.path and ": write" in str(error):
                amend(error, end=f", or {UNLIMITED!r}")
            raise

    def text(self, text: str) -> object:
        return UNLIMITED if text.strip() == UNLIMITED else self.of.text(text)

    def write(self, value: object, place: Place) -> object:
        return UNLIMITED if value is None else self.of.write(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"const": UNLIMITED}, self.of.schema()]}

    def keys(self) -> Mapping[str, Value]:
        return self.of.keys()

    def other(self) -> Value | None:
        return self.of.other()


@dataclass(frozen=True)
class Listed(Value):
    """A list of one kind, ``least`` or more."""

    of: Value
    least: int = 1

    def read(self, value: object, place: Place) -> tuple[object, ...]:
        items = place.items(value, "a list, in square brackets")
        if len(items) < self.least:
            raise place.wrong("the list is empty: leave it out, or write something into it")
        return tuple(self.of.read(item, place.under(str(index))) for index, item in enumerate(items))

    def text(self, text: str) -> object:
        return [self.of.text(item) for item in text.split(",")]

    def write(self, value: object, place: Place) -> object:
        return [self.of.write(item, place) for item in place.items(value, "a list")]

    def schema(self) -> dict[str, object]:
        return {"type": "array", "items": self.of.schema(), "minItems": self.least}


@dataclass(frozen=True)
class Labels(Value):
    """A table of texts, whose keys are anybody's."""

    of: Value = TEXT

    def read(self, value: object, place: Place) -> dict[str, object]:
        wanted = 'a table of texts, such as { team = "payments" }'
        table = place.table(value, wanted)
        return {key: self.of.read(item, place.under(key)) for key, item in table.items()}

    def write(self, value: object, place: Place) -> object:
        return {**place.table(value)}

    def schema(self) -> dict[str, object]:
        return {"type": "object", "additionalProperties": self.of.schema()}

    def other(self) -> Value:
        return self.of
