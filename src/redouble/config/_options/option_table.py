"""Tables: a constructor, and the name and value type of each option that a document can pass to it.

Documents, environment variables and the JSON Schema all use these tables, so each option is declared once. An
object may refer to others by name: then reading returns a `Deferred`, which builds the object when the others
exist. The tables themselves are in `catalogue`.

A table can be part of another one: as a value (`Nested`), as one of several types (`Tagged`), or by name
(`Reference`).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from redouble.config._document_path import DocPath, as_table, nearest, short_repr
from redouble.config._options.values import Choice, Value

__all__ = [
    "Blueprint",
    "Deferred",
    "DeferredList",
    "Found",
    "Nested",
    "Option",
    "Reference",
    "Table",
    "Tagged",
    "defaults",
    "known",
]


Found: TypeAlias = Mapping[tuple[str, str], object]

NOTHING: Found = MappingProxyType({})


class Deferred(ABC):
    """An object that was read, but is built only when all objects that it refers to exist."""

    @abstractmethod
    def build(self, found: Found) -> object:
        """Build the object, or look it up in ``found``: the named objects, by section and name."""


@dataclass(frozen=True)
class Reference(Deferred):
    """A reference by name to an object in a section of the document."""

    section: str
    name: str

    def build(self, found: Found) -> object:
        return found[self.section, self.name]


@dataclass(frozen=True)
class DeferredList(Deferred):
    """Several deferred objects, built as a tuple in the same order."""

    parts: tuple[Deferred, ...]

    def build(self, found: Found) -> object:
        return tuple(part.build(found) for part in self.parts)


@dataclass(frozen=True)
class Blueprint(Deferred):
    """The values read from a table; each `build()` builds a new object."""

    table: Table
    values: Mapping[str, object]
    place: DocPath

    def build(self, found: Found) -> object:
        return self.table.build(self.values, self.place, found)


@dataclass(frozen=True)
class Option:
    """One option: the type of its value, its description, and whether it is required."""

    kind: Value
    about: str
    needed: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """A constructor and its options. ``in_code``: the options that only code can set."""

    make: Callable[..., object]
    about: str
    options: Mapping[str, Option]
    in_code: tuple[str, ...] = ()

    def read(self, value: object, place: DocPath, but: Collection[str] = ()) -> dict[str, object]:
        """Parse and validate the options of a table; keys in ``but`` are allowed and left to the caller."""
        table, values = place.table(value), dict[str, object]()
        for key, item in table.items():
            option = self.options.get(key)
            if option is not None:
                values[key] = option.kind.read(item, place.under(key))
            elif key in self.in_code:
                raise place.under(key).error(f"{short_repr(item)}: this can only be set in code")
            elif key not in but:
                raise place.unknown_key(key, item, (*self.options, *but))
        for key, option in self.options.items():
            if option.needed and key not in values:
                raise place.under(key).error(f"missing: {option.about[0].lower()}{option.about[1:]}")
        return values

    def build(
        self,
        values: Mapping[str, object],
        place: DocPath,
        found: Found = NOTHING,
        own: Collection[str] | None = None,
    ) -> Any:
        """Call the constructor; raise its errors as errors of the document.

        own: the keys that an error may be attributed to; None for all keys of ``values``.
        """
        arguments = {
            key: value.build(found) if isinstance(value, Deferred) else value for key, value in values.items()
        }
        try:
            return self.make(**arguments)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise place.constructor_error(error, arguments if own is None else own) from error

    def write(self, thing: object, place: DocPath) -> dict[str, object]:
        """Return the options that differ from their defaults, as a document holds them."""
        usual, written = defaults(self.make), dict[str, object]()
        settings: object = getattr(thing, "settings", thing)  # a policy or a pipeline has its options itself
        for key in self.in_code:
            value: object = getattr(settings, key)
            if value is not usual[key] and value != usual[key]:
                raise place.under(key).error(
                    f"{short_repr(value)} cannot be written to a document: set {key} in code"
                )
        for key, option in self.options.items():
            value = getattr(settings, key)
            if key not in usual or (value is not usual[key] and value != usual[key]):
                written[key] = option.kind.write(value, place.under(key))
        return written

    def kinds(self) -> dict[str, Value]:
        """Return the value type of every option."""
        return {key: option.kind for key, option in self.options.items()}

    def without(self, key: str) -> Table:
        """Return a copy of this table without one option."""
        options = {name: option for name, option in self.options.items() if name != key}
        return Table(self.make, self.about, options, self.in_code)

    def schema(self, tag: str | None = None, *, tagged: bool = True) -> dict[str, object]:
        """Return the JSON Schema; ``tag``: the value of ``type``, which is required only if ``tagged``."""
        properties: dict[str, object] = {} if tag is None else {"type": {"const": tag}}
        for key, option in self.options.items():
            properties[key] = {"description": option.about, **option.kind.schema()}
        required = ["type"] if tag is not None and tagged else []
        required += [key for key, option in self.options.items() if option.needed]
        described: dict[str, object] = {"description": self.about, "type": "object", "properties": properties}
        return {**described, "required": required, "additionalProperties": False}


@cache
def defaults(make: Callable[..., object]) -> Mapping[str, object]:
    """Return the default values of the parameters of a constructor."""
    if is_dataclass(make):
        parameters = ((f.name, f.default, f.default_factory) for f in fields(make))
        usual = ((name, value if factory is MISSING else factory()) for name, value, factory in parameters)
        return {name: value for name, value in usual if value is not MISSING}
    usual = ((name, one.default) for name, one in inspect.signature(make).parameters.items())
    return {name: value for name, value in usual if value is not inspect.Parameter.empty}


@dataclass(frozen=True)
class Nested(Value):
    """A table as the value of an option; its object is built while reading."""

    table: Table

    def read(self, value: object, place: DocPath) -> object:
        return self.table.build(self.table.read(value, place), place)

    def write(self, value: object, place: DocPath) -> object:
        return self.table.write(value, place)

    def schema(self) -> dict[str, object]:
        return {key: part for key, part in self.table.schema().items() if key != "description"}

    def keys(self) -> Mapping[str, Value]:
        return self.table.kinds()


@dataclass(frozen=True)
class Tagged:
    """Several tables, selected by the key ``type``; ``usual``: the type of a table without that key."""

    tables: Mapping[str, Table]
    usual: str | None = None

    def read(self, value: object, place: DocPath, **more: object) -> Blueprint:
        """Parse and validate a table of any of the types; ``more``: values of options that it omits."""
        given = place.table(value)
        tag = given.get("type", self.usual)
        if tag is None:
            raise place.under("type").error(f"missing: write one of {', '.join(self.tables)}")
        table = self.tables[self._types().read(tag, place.under("type"))]
        return Blueprint(table, {**more, **table.read(given, place, but=("type",))}, place)

    def write(self, thing: object, place: DocPath) -> dict[str, object]:
        """Return an object as a table with its ``type``."""
        for tag, table in self.tables.items():
            if type(thing) is table.make:
                return {"type": tag, **table.write(thing, place)}
        names = ", ".join(cast("type", table.make).__name__ for table in self.tables.values())
        raise place.error(
            f"{short_repr(thing)} cannot be written to a document: write one of {names}, or set it in code"
        )

    def keys(self, value: object) -> dict[str, Value]:
        """Return the value types of the keys of a table, which depend on its ``type``."""
        tag = (as_table(value) or {}).get("type", self.usual)
        table = self.tables.get(tag) if isinstance(tag, str) else None
        return {"type": self._types(), **({} if table is None else table.kinds())}

    def every(self) -> dict[str, Value]:
        """Return the value types of the keys of all tables together."""
        kinds = {key: kind for table in self.tables.values() for key, kind in table.kinds().items()}
        return {"type": self._types(), **kinds}

    def schema(self) -> dict[str, object]:
        """Return a JSON Schema that accepts any of the tables."""
        return {"anyOf": [table.schema(tag, tagged=tag != self.usual) for tag, table in self.tables.items()]}

    def _types(self) -> Choice:
        return Choice(tuple(self.tables))


def known(name: str, section: str, place: DocPath) -> Reference:
    """Return a reference to a name in a section; raise if the section does not have it."""
    names = place.known.get(section, ())
    if name not in names:
        hint = nearest(name, names) if names else f"the document has no [{section}]"
        raise place.error(f"{short_repr(name)} is not in [{section}]; {hint}")
    return Reference(section, name)
