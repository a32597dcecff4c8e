"""Tables inside others: as a value, as one of several types, or by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from redouble.config._table import Recipe, Reference, Table
from redouble.config._values import Choice, Value
from redouble.config._wrong import Place, mapping, nearest, shown

__all__ = ["Nested", "Tagged", "known"]


@dataclass(frozen=True)
class Nested(Value):
    """A table inside a table, made at once."""

    table: Table

    def read(self, value: object, place: Place) -> object:
        return self.table.build(self.table.read(value, place), place)

    def write(self, value: object, place: Place) -> object:
        return self.table.write(value, place)

    def schema(self) -> dict[str, object]:
        return {key: said for key, said in self.table.schema().items() if key != "description"}

    def keys(self) -> Mapping[str, Value]:
        return self.table.kinds()


@dataclass(frozen=True)
class Tagged:
    """Tables that say by their ``type`` what they are; ``usual``: what they are if they do not."""

    tables: Mapping[str, Table]
    usual: str | None = None

    def read(self, value: object, place: Place, **more: object) -> Recipe:
        """Read a table of any of the types; ``more``: what holds if the table does not say it."""
        said = place.table(value)
        tag = said.get("type", self.usual)
        if tag is None:
            raise place.under("type").wrong(f"missing: write one of {', '.join(self.tables)}")
        table = self.tables[self._types().read(tag, place.under("type"))]
        return Recipe(table, {**more, **table.read(said, place, but=("type",))}, place)

    def write(self, thing: object, place: Place) -> dict[str, object]:
        """Write a thing with its type."""
        for tag, table in self.tables.items():
            if type(thing) is table.make:
                return {"type": tag, **table.write(thing, place)}
        known = ", ".join(cast("type", table.make).__name__ for table in self.tables.values())
        raise place.wrong(f"{shown(thing)} cannot be written down: write one of {known}, or set it in code")

    def keys(self, value: object) -> dict[str, Value]:
        """Tell the kinds of the keys of a table, by the type it says."""
        tag = (mapping(value) or {}).get("type", self.usual)
        table = self.tables.get(tag) if isinstance(tag, str) else None
        return {"type": self._types(), **({} if table is None else table.kinds())}

    def every(self) -> dict[str, Value]:
        """Tell the kinds of the keys of all tables."""
        kinds = {key: kind for table in self.tables.values() for key, kind in table.kinds().items()}
        return {"type": self._types(), **kinds}

    def schema(self) -> dict[str, object]:
        """Describe all of them."""
        return {"anyOf": [table.schema(tag, tagged=tag != self.usual) for tag, table in self.tables.items()]}

    def _types(self) -> Choice:
        return Choice(tuple(self.tables))


def known(name: str, section: str, place: Place) -> Reference:
    """Accept the name of something in a section."""
    there = place.known.get(section, ())
    if name not in there:
        hint = nearest(name, there) if there else f"there are no [{section}] here"
        raise place.wrong(f"{shown(name)} is not in [{section}]; {hint}")
    return Reference(section, name)
