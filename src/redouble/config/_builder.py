"""Creating the objects of a document, and keeping the objects of the previous configuration that stay.

An object stays if its blueprint is equal to the previous one and all objects that it refers to stay. A budget
or a gate whose values have changed stays too, with its state, if it can adopt the new values: a reload
reconfigures it. Nothing is activated here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import is_
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from redouble._internal.public import public
from redouble._layers.retry.retry import Retry
from redouble._telemetry.registry import unregister
from redouble.config._config import Config
from redouble.config._document import in_file, parse, read_document
from redouble.config._document_path import DocPath
from redouble.config._options.catalogue import RETRY, TABLES
from redouble.config._options.option_table import Blueprint, Reference

# The section and the name of a table of the document, the type of an object in that table, its own name, and
# None for each object before it of which all that is equal.
Key: TypeAlias = tuple[object, ...]


class BuiltObject(NamedTuple):
    """An object, the blueprint that it was built from, and the objects that the blueprint refers to."""

    thing: Any
    blueprint: Blueprint
    parts: list[object]


class Builder:
    """The construction of one configuration, which reuses the objects of a previous one.

    config: the configuration.
    objects: all its objects, also those that are defined inline.
    """

    config: Config

    def __init__(self, previous: Builder | None = None) -> None:
        self._previous: Mapping[Key, BuiltObject] = {} if previous is None else previous.objects
        self._named: dict[Reference, Any] = {}
        self.objects: dict[Key, BuiltObject] = {}
        self._reconfigured: list[tuple[Any, Any]] = []  # kept objects, each with one that has its settings

    def build(self, blueprints: Mapping[Reference, Blueprint]) -> Config:
        """Build and return the configuration; raise `ConfigError` if a constructor rejects its values."""
        sections: dict[str, dict[str, Any]] = {section: {} for section in TABLES}
        for reference, blueprint in blueprints.items():
            thing = self.build_one(blueprint, reference)
            self._named[reference] = sections[reference.section][reference.name] = thing
        self.config = Config(**{section: MappingProxyType(named) for section, named in sections.items()})
        return self.config

    @property
    def changed(self) -> tuple[str, ...]:
        """The sorted paths that were added, changed or removed."""
        new, old = self.objects, self._previous
        keys = (key for key in (*new, *old) if new.get(key) is not old.get(key))
        return tuple(sorted({DocPath((str(section), str(name))).path for section, name, *_ in keys}))

    def build_one(self, blueprint: Blueprint, owner: tuple[str, ...] = ()) -> Any:
        """Return the object for a blueprint: a kept one, or a new one."""
        parts: list[object] = []
        arguments = {key: self._resolve(value, owner, parts) for key, value in blueprint.values.items()}
        key: Key = (*owner, blueprint.table, arguments.get("name"))
        while key in self.objects:
            key = (*key, None)
        old = self._previous.get(key)
        if old is not None and old.blueprint == blueprint and all(map(is_, old.parts, parts)):
            self.objects[key] = old
            return old.thing
        thing = blueprint.build(arguments)
        self.objects[key] = BuiltObject(thing, blueprint, parts)
        if old is not None and old.thing.can_reconfigure(thing):
            unregister(thing)  # it only carries settings
            self._reconfigured.append((old.thing, thing))
            self.objects[key] = BuiltObject(old.thing, blueprint, parts)
        return self.objects[key].thing

    def _resolve(self, value: object, owner: tuple[str, ...], parts: list[object]) -> object:
        """Return the object for a reference or a blueprint inside a value, and add it to ``parts``."""
        if isinstance(value, Reference | Blueprint):
            thing = self._named[value] if isinstance(value, Reference) else self.build_one(value, owner)
            parts.append(thing)
            return thing
        if isinstance(value, tuple):
            items = cast("tuple[object, ...]", value)
            return tuple(self._resolve(item, owner, parts) for item in items)
        return value

    def update_kept(self) -> None:
        """Reconfigure the kept objects, and remove the others from the statistics. Is idempotent."""
        for thing in _others(self._previous, self.objects):
            unregister(thing)
        for old, fresh in self._reconfigured:
            old.reconfigure(fresh)

    def discard(self) -> None:
        """Remove the new objects from the statistics."""
        for thing in _others(self.objects, self._previous):
            unregister(thing)


def _others(objects: Mapping[Key, BuiltObject], kept: Mapping[Key, BuiltObject]) -> list[object]:
    """Return those of the objects that are not among the kept ones."""
    ids = {id(built.thing) for built in kept.values()}
    return [built.thing for built in objects.values() if id(built.thing) not in ids]


@public("redouble.config")
def from_mapping(document: Mapping[str, object], *, environ: Mapping[str, str] | None = None) -> Config:
    """Build new objects for everything that a document describes.

    >>> from redouble.config import from_mapping
    >>> config = from_mapping({"policies": {"payments": {"attempts": 5, "timeout": "10s"}}})
    >>> config.policies["payments"].timeout
    10.0

    environ: variables that override the document, such as ``os.environ``:
        ``REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS=5``.
    """
    return Builder().build(parse(document, environ))


@public("redouble.config")
def from_file(
    path: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Config:
    """Build new objects for everything that a TOML file describes.

    path: a TOML file; of a file called ``pyproject.toml``, the table ``[tool.redouble]`` is read. None reads
        ``redouble.toml`` in the working directory, or else ``pyproject.toml`` there if it has that table.
    environ: variables that override the file, such as ``os.environ``.
    """
    document, file = read_document(path)
    with in_file(file):
        return from_mapping(document, environ=environ)


@public("redouble.config")
def policy(mapping: Mapping[str, object]) -> Retry:
    """Build one policy from its table.

    >>> from redouble.config import policy
    >>> policy({"on": "ConnectionError", "attempts": 5, "give_up_after": "10s"})
    Retry(on=ConnectionError, attempts=5, give_up_after=10.0)
    """
    retry: Retry = Builder().build_one(RETRY.blueprint(mapping, DocPath()))
    return retry
