"""A whole document: its sections, what they may refer to, and the order in which things are made.

Budgets and gates are made first, as they are shared; then policies, then pipelines. What an option may say
is not known here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from redouble._internal.public import public
from redouble._layers.retry.retry import Retry
from redouble.config._config import Config
from redouble.config._environment import overridden
from redouble.config._gates import GATES, PIPELINE
from redouble.config._policies import BUDGETS, DEFAULTS, RETRY
from redouble.config._table import Found, Recipe
from redouble.config._values import UNLIMITED
from redouble.config._wrong import Place, amend, mapping
from redouble.errors import ConfigError

__all__ = ["Config", "Parts", "from_mapping", "policy", "read"]

SECTIONS = ("defaults", "budgets", "gates", "policies", "pipelines")
MISPLACED = "this is an option: write it under [defaults], or [policies.NAME]"
NOTHING: Found = MappingProxyType({})


@dataclass(frozen=True)
class Parts:
    """A document that was read.

    shared: its budgets and gates, made anew, by section and name.
    said: what it says of each of them, in one way of many; equal ones have not changed.
    """

    shared: dict[tuple[str, str], object]
    said: dict[tuple[str, str], dict[str, object]]
    _policies: dict[str, tuple[Recipe, tuple[str, ...]]] = field(repr=False)
    _pipelines: dict[str, Recipe] = field(repr=False)
    _variables: Mapping[str, str] = field(repr=False)

    def build(self, kept: Found = NOTHING) -> Config:
        """Make the policies and pipelines, with what is ``kept`` in place of new budgets and gates."""
        found = {key: kept.get(key, fresh) for key, fresh in self.shared.items()}
        with _told_by(self._variables):
            policies = {
                name: cast("Retry", RETRY.build(recipe.values, recipe.place, found, own))
                for name, (recipe, own) in self._policies.items()
            }
            found |= {("policies", name): policy for name, policy in policies.items()}
            pipelines: dict[str, Any] = {name: recipe.made(found) for name, recipe in self._pipelines.items()}
        sections: dict[str, Mapping[str, Any]] = {
            section: MappingProxyType({name: one for (of, name), one in found.items() if of == section})
            for section in ("budgets", "gates")
        }
        return Config(
            policies=MappingProxyType(policies),
            budgets=sections["budgets"],
            gates=sections["gates"],
            pipelines=MappingProxyType(pipelines),
            _said=self.said,
        )


def read(document: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Parts:
    """Read a document, with what variables say instead."""
    place = Place()
    document = place.table(document, "a document, such as tomllib.loads() gives")
    said = {section: tables(document, section, place) for section in SECTIONS}
    for section in document:
        if section in RETRY.options:
            raise place.under(section).wrong(MISPLACED)
        if section not in SECTIONS:
            raise place.unknown(section, None, SECTIONS, foreign=True)
    sections, variables = overridden(said, {} if environ is None else environ)
    known = {section: sections[section] for section in ("budgets", "gates", "policies")}
    with _told_by(variables):
        _distinct(sections)
        shared: dict[tuple[str, str], Recipe] = {
            (section, name): kinds.read(table, Place((section, name), known), name=name)
            for section, kinds in (("budgets", BUDGETS), ("gates", GATES))
            for name, table in sections[section].items()
        }
        usual = DEFAULTS.read(sections["defaults"], Place(("defaults",), known))
        policies: dict[str, tuple[Recipe, tuple[str, ...]]] = {}
        for name, table in sections["policies"].items():
            place = Place(("policies", name), known)
            if name in RETRY.options and mapping(table) is None:
                raise place.wrong(MISPLACED)
            own = RETRY.read(table, place)
            policies[name] = Recipe(RETRY, {**usual, "name": name, **own}, place), tuple(own)
        pipelines = {
            name: _pipeline(table, sections["defaults"], Place(("pipelines", name), known))
            for name, table in sections["pipelines"].items()
        }
        made = {key: recipe.made(NOTHING) for key, recipe in shared.items()}
    kinds = {"budgets": BUDGETS, "gates": GATES}
    plain = {key: kinds[key[0]].write(thing, Place(key)) for key, thing in made.items()}
    return Parts(made, plain, policies, pipelines, variables)


@public("redouble.config")
def from_mapping(document: Mapping[str, object], *, environ: Mapping[str, str] | None = None) -> Config:
    """Make everything that a document describes, anew.

    >>> from redouble.config import from_mapping
    >>> config = from_mapping({"policies": {"payments": {"attempts": 5, "timeout": "10s"}}})
    >>> config.policies["payments"].timeout
    10.0

    environ: variables that override it, such as ``os.environ``: ``REDOUBLE_PAYMENTS_ATTEMPTS=5``.
    """
    return read(document, environ).build()


@public("redouble.config")
def policy(mapping: Mapping[str, object]) -> Retry:
    """Make one policy from its own table.

    >>> from redouble.config import policy
    >>> policy({"on": "ConnectionError", "attempts": 5, "give_up_after": "10s"})
    Retry(on=ConnectionError, attempts=5, give_up_after=10.0)
    """
    made: Retry = RETRY.build(RETRY.read(mapping, Place()), Place())
    return made


def tables(document: Mapping[str, object], section: str, place: Place) -> Mapping[str, object]:
    """Return a section of a document."""
    return place.under(section).table(document.get(section, {}), f"[{section}]")


def _pipeline(table: object, usual: Mapping[str, object], place: Place) -> Recipe:
    said = dict(place.table(table))
    layers = said.get("layers")
    if isinstance(layers, list | tuple):
        # A policy written there has the defaults too; they were read before, so nothing is wrong with them.
        said["layers"] = [_under(layer, usual) for layer in cast("list[object]", layers)]
    return Recipe(PIPELINE, PIPELINE.read(said, place), place)


def _under(layer: object, usual: Mapping[str, object]) -> object:
    table = mapping(layer)
    return {**usual, **table} if table is not None and table.get("type") == "retry" else layer


def _distinct(sections: Mapping[str, Mapping[str, object]]) -> None:
    for section in SECTIONS[1:]:
        for name in sections[section]:
            if not name or name == UNLIMITED:
                raise Place((section, name)).wrong("that is no name: write another one")
    for name in sections["pipelines"]:
        if name in sections["policies"]:
            raise Place(("pipelines", name)).wrong(
                "there is a policy of that name, and both are found by it: rename one of them"
            )


@contextmanager
def _told_by(variables: Mapping[str, str]) -> Generator[None]:
    """Say of what a variable has set that it was the variable."""
    try:
        yield
    except ConfigError as error:
        keys = [path for path in variables if f"{error.path}.".startswith(f"{path}.")]
        if keys:
            amend(error, path=variables[max(keys, key=len)])
        raise
