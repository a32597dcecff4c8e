"""Tables: a constructor, and the name and value type of each option that a document can pass to it.

Parsing, writing, comparing and the JSON Schema all use these tables, so each option is declared once. Parsing
a table creates a `Blueprint`: the values for the constructor. Two blueprints are equal if they describe equal
objects, so a reload finds out what has changed without creating an object. The tables themselves are in
`catalogue`.

A table can be part of another one: as a value, whose object is built while reading; as one of several types
(`Tagged`); or by name (`Reference`).
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, Self

from redouble._internal.validation import UNSET, nearest
from redouble.config._document_path import DocPath, short_repr
from redouble.config._options.values import Choice, Text, Value

REQUIRED = inspect.Parameter.empty


class Reference(NamedTuple):
    """A reference by name to an object in a section of the document."""

    section: str
    name: str


@dataclass(frozen=True)
class Blueprint:
    """The arguments that a table has for its constructor; equal ones describe equal objects.

    values: the arguments, defaults included. One may be a `Reference`, or the blueprint of an inline object;
        the builder resolves them.
    own: the values as written in the table itself, and not inherited.
    """

    table: Table
    values: Mapping[str, object]
    own: Mapping[str, object] = field(compare=False)
    place: DocPath = field(compare=False)

    def build(self, arguments: Mapping[str, object]) -> Any:
        """Call the constructor; raise its errors as errors of the document."""
        try:
            return self.table.build(**arguments)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self.place.constructor_error(error, self.own) from error


class Option(NamedTuple):
    """One option: the type of its value, and its description."""

    kind: Value
    about: str


NAME = Option(Text(), "Its name in errors, events and metrics; by default the key of its table.")


class TableValue(Value):
    """A table, or one of several, as the value of an option."""

    @abstractmethod
    def blueprint(self, value: object, place: DocPath, name: str | None = None) -> Blueprint:
        """Parse and validate a table; ``name``: the name of its object, unless the table has another."""

    def parse(self, value: object, place: DocPath) -> object:
        blueprint = self.blueprint(value, place)
        return blueprint.build(blueprint.values)


class Table(TableValue):
    """A constructor and its options.

    inherits: the section whose values, already parsed, stand for absent options.
    in_code: the parameters that only code can set.
    """

    def __init__(
        self, make: Callable[..., Any], about: str, inherits: str = "", /, **options: Option
    ) -> None:
        self.make, self.about, self.inherits = make, about, inherits
        parameters = inspect.signature(make).parameters
        self.defaults: dict[str, Any] = {
            key: () if one.kind is one.VAR_POSITIONAL else REQUIRED if one.default is UNSET else one.default
            for key, one in parameters.items()
        }
        self.variadic = [key for key, one in parameters.items() if one.kind is one.VAR_POSITIONAL]
        if is_dataclass(make):
            factories = {option.name: option.default_factory for option in fields(make)}
            self.defaults |= {key: make() for key, make in factories.items() if make is not MISSING}
        self.needed = [key for key, default in self.defaults.items() if default is REQUIRED]
        self.options = {**options, "name": NAME} if "name" in self.defaults else options
        self.in_code = self.defaults.keys() - self.options.keys()

    def build(self, **arguments: Any) -> Any:
        """Call the constructor."""
        return self.make(**{key: arguments[key] for key in arguments if key not in self.variadic})

    def blueprint(
        self, value: object, place: DocPath, name: str | None = None, more: tuple[str, ...] = ()
    ) -> Blueprint:
        """Parse and validate a table; ``more``: keys that it may have besides its options."""
        own, values = place.table(value), {**self.defaults, **place.sections.get(self.inherits, {})}
        if name is not None and "name" in values:
            values["name"] = name
        for key, item in own.items():
            if option := self.options.get(key):
                values[key] = option.kind.read(item, place.under(key))
            elif key in self.in_code:
                raise place.under(key).error(f"{short_repr(item)}: this can only be set in code")
            elif key not in more:
                raise place.unknown_key(key, item, (*self.options, *more))
        for key in self.needed:
            if values[key] is REQUIRED:
                about = self.options[key].about
                raise place.under(key).error(f"missing: {about[0].lower()}{about[1:]}")
        return Blueprint(self, values, own, place)

    def write(self, value: object, place: DocPath) -> dict[str, object]:
        """Return the options of an object that differ from their defaults, as a document holds them."""
        settings: object = getattr(value, "settings", value)  # a policy or a pipeline has its options itself
        written = dict[str, object]()
        for key, usual in self.defaults.items():
            setting: object = getattr(settings, key)
            if setting is usual or setting == usual:
                continue
            if key in self.in_code:
                raise place.under(key).error(
                    f"{short_repr(setting)} cannot be written to a document: set {key} in code"
                )
            written[key] = self.options[key].kind.write(setting, place.under(key))
        return written

    def without(self, *keys: str) -> Self:
        """Return a copy of this table without some options."""
        table = copy(self)
        table.options = {key: option for key, option in self.options.items() if key not in keys}
        return table

    def schema(self, tag: str | None = None, *more: str) -> dict[str, object]:
        """Return the JSON Schema; ``tag``: the value of ``type``; ``more``: other keys that are required."""
        properties: dict[str, object] = {} if tag is None else {"type": {"const": tag}}
        for key, option in self.options.items():
            properties[key] = {**option.kind.schema(), "description": option.about}
        described: dict[str, object] = {"description": self.about, "type": "object", "properties": properties}
        return {**described, "required": [*more, *self.needed], "additionalProperties": False}


class Tagged(TableValue):
    """Several tables, selected by the key ``type``; ``usual``: the type of a table without that key."""

    def __init__(self, usual: str | None = None, /, **tables: Table) -> None:
        self.usual, self.tables = usual, tables

    def blueprint(self, value: object, place: DocPath, name: str | None = None) -> Blueprint:
        """Parse and validate a table of any of the types."""
        tag = place.table(value).get("type", self.usual)
        if tag is None:
            raise place.under("type").error(f"missing: write one of {', '.join(self.tables)}")
        table = self.tables[Choice(*self.tables).read(tag, place.under("type"))]
        return table.blueprint(value, place, name, ("type",))

    def write(self, value: object, place: DocPath) -> dict[str, object]:
        """Return an object as a table with its ``type``."""
        for tag, table in self.tables.items():
            if type(value) is table.make:
                return {"type": tag, **table.write(value, place)}
        names = ", ".join(table.make.__name__ for table in self.tables.values())
        raise place.error(
            f"{short_repr(value)} cannot be written to a document: write one of {names}, or set it in code"
        )

    def schema(self) -> dict[str, object]:
        """Return a JSON Schema that accepts any of the tables."""
        needed = {tag: () if tag == self.usual else ("type",) for tag in self.tables}
        return {"anyOf": [table.schema(tag, *needed[tag]) for tag, table in self.tables.items()]}


def refer(name: str, section: str, place: DocPath) -> Reference:
    """Return a reference to a name in a section; raise if the section does not have it."""
    names = place.sections.get(section, ())
    if name not in names:
        hint = nearest(name, names) if names else f"the document has no [{section}]"
        raise place.error(f"{short_repr(name)} is not in [{section}]; {hint}")
    return Reference(section, name)
