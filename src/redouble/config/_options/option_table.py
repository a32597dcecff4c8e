"""Tables: a constructor, and the name and value type of each option that a document can pass to it.

Parsing, writing, comparing and the JSON Schema all use these tables, so each option is declared once. Parsing
a table creates a `Blueprint`: the values for the constructor. Two blueprints are equal if they describe equal
objects, so a reload finds out what has changed without creating an object. The tables themselves are in
`catalogue`.

A table can be part of another one: as a value (`Nested`), as one of several types (`Tagged`), or by name
(`Reference`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from redouble.config._document_path import DocPath, nearest, short_repr
from redouble.config._options.values import Choice, Value

__all__ = ["Blueprint", "Nested", "Option", "Reference", "Table", "Tagged", "defaults", "refer"]


NOTHING: Mapping[str, object] = MappingProxyType({})


class Reference(NamedTuple):
    """A reference by name to an object in a section of the document."""

    section: str
    name: str


@dataclass(frozen=True)
class Blueprint:
    """The values that a table has for its constructor; equal ones describe equal objects.

    A value may be a `Reference`, or the blueprint of an inline object; the builder resolves them.
    complete: the values, and the defaults of absent options.
    own: the values as written in the table itself, and not inherited.
    """

    table: Table
    complete: Mapping[str, object]
    values: Mapping[str, object] = field(compare=False)
    own: Mapping[str, object] = field(compare=False)
    place: DocPath = field(compare=False)

    def build(self, arguments: Mapping[str, object]) -> Any:
        """Call the constructor; raise its errors as errors of the document."""
        try:
            return self.table.make(**arguments)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self.place.constructor_error(error, self.own) from error


@dataclass(frozen=True)
class Option:
    """One option: the type of its value, its description, and whether it is required."""

    kind: Value
    about: str
    needed: bool = False


class Table:
    """A constructor and its options. ``in_code``: the names of options that only code can set."""

    def __init__(self, make: Callable[..., Any], about: str, /, *in_code: str, **options: Option) -> None:
        self.make, self.about, self.in_code, self.options = make, about, in_code, options

    def read(
        self, value: object, place: DocPath, usual: Mapping[str, object] = NOTHING, *, tagged: bool = False
    ) -> Blueprint:
        """Parse and validate a table; ``usual``: what it inherits; ``tagged``: it may have a ``type``."""
        own, values = place.table(value), dict[str, object]()
        for key, item in {**usual, **own}.items():
            if option := self.options.get(key):
                values[key] = option.kind.read(item, place.under(key))
            elif key in self.in_code:
                raise place.under(key).error(f"{short_repr(item)}: this can only be set in code")
            elif not (tagged and key == "type"):
                raise place.unknown_key(key, item, (*self.options, *(["type"] if tagged else [])))
        for key, option in self.options.items():
            if option.needed and key not in values:
                raise place.under(key).error(f"missing: {option.about[0].lower()}{option.about[1:]}")
        return Blueprint(self, {**defaults(self.make), **values}, values, own, place)

    def write(self, thing: object, place: DocPath) -> dict[str, object]:
        """Return the options of an object that differ from their defaults, as a document holds them."""
        usual, written = defaults(self.make), dict[str, object]()
        settings: object = getattr(thing, "settings", thing)  # a policy or a pipeline has its options itself
        for key in (*self.in_code, *self.options):
            value: object = getattr(settings, key)
            if key in usual and (value is usual[key] or value == usual[key]):
                continue
            if key in self.in_code:
                raise place.under(key).error(
                    f"{short_repr(value)} cannot be written to a document: set {key} in code"
                )
            written[key] = self.options[key].kind.write(value, place.under(key))
        return written

    def without(self, key: str) -> Table:
        """Return a copy of this table without one option."""
        options = {name: option for name, option in self.options.items() if name != key}
        return Table(self.make, self.about, *self.in_code, **options)

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

    table: Table | Tagged

    def parse(self, value: object, place: DocPath) -> object:
        blueprint = self.table.read(value, place)
        return blueprint.build(blueprint.values)

    def write(self, value: object, place: DocPath) -> object:
        return self.table.write(value, place)

    def schema(self) -> dict[str, object]:
        return {key: part for key, part in self.table.schema().items() if key != "description"}


class Tagged:
    """Several tables, selected by the key ``type``; ``usual``: the type of a table without that key."""

    def __init__(self, usual: str | None = None, /, **tables: Table) -> None:
        self.usual, self.tables = usual, tables

    def read(self, value: object, place: DocPath, inherited: Mapping[str, object] = NOTHING) -> Blueprint:
        """Parse and validate a table of any of the types; ``inherited``: options that it may omit."""
        tag = place.table(value).get("type", self.usual)
        if tag is None:
            raise place.under("type").error(f"missing: write one of {', '.join(self.tables)}")
        table = self.tables[Choice(*self.tables).read(tag, place.under("type"))]
        return table.read(value, place, inherited, tagged=True)

    def write(self, thing: object, place: DocPath) -> dict[str, object]:
        """Return an object as a table with its ``type``."""
        for tag, table in self.tables.items():
            if type(thing) is table.make:
                return {"type": tag, **table.write(thing, place)}
        names = ", ".join(table.make.__name__ for table in self.tables.values())
        raise place.error(
            f"{short_repr(thing)} cannot be written to a document: write one of {names}, or set it in code"
        )

    def schema(self) -> dict[str, object]:
        """Return a JSON Schema that accepts any of the tables."""
        return {"anyOf": [table.schema(tag, tagged=tag != self.usual) for tag, table in self.tables.items()]}


def refer(name: str, section: str, place: DocPath) -> Reference:
    """Return a reference to a name in a section; raise if the section does not have it."""
    names = place.sections.get(section, ())
    if name not in names:
        hint = nearest(name, names) if names else f"the document has no [{section}]"
        raise place.error(f"{short_repr(name)} is not in [{section}]; {hint}")
    return Reference(section, name)
