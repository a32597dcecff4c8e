"""Configuration documents: reading them from mappings and TOML files, building their objects, writing them.

`parse` validates the sections of a document and the references between them. Budgets and gates are built
first, because policies and pipelines share them; then policies, then pipelines. `Config` holds the objects
that were built; `to_mapping` converts objects back to plain mappings. `read_document` finds the TOML file.

`_options` defines the options and the values that each accepts.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from redouble._engine.backoff import Backoff
from redouble._engine.budget_protocol import Budget
from redouble._internal.public import public
from redouble._internal.validation import instance
from redouble._layers.gate import Gate
from redouble._layers.layer import Pipeline
from redouble._layers.retry.retry import Retry
from redouble.config._document_path import DocPath, as_table, nearest, rewrite, short_repr
from redouble.config._environment import apply_variables
from redouble.config._options.backoff import written
from redouble.config._options.catalogue import BUDGETS, DEFAULTS, GATES, LAYERS, PIPELINE, RETRY
from redouble.config._options.option_table import Blueprint, Found, Tagged
from redouble.config._options.values import UNLIMITED
from redouble.errors import ConfigError

__all__ = [
    "Config",
    "ParsedDocument",
    "SharedTables",
    "from_file",
    "from_mapping",
    "in_file",
    "parse",
    "policy",
    "read_document",
    "to_mapping",
]


SharedTables = Mapping[tuple[str, str], Mapping[str, object]]

ANY = Tagged({**BUDGETS.tables, **LAYERS.tables})


@public("redouble.config")
@dataclass(frozen=True, eq=False)
class Config:
    """The policies, budgets, gates and pipelines of a document, by name."""

    policies: Mapping[str, Retry]
    budgets: Mapping[str, Budget]
    gates: Mapping[str, Gate]
    pipelines: Mapping[str, Pipeline]
    # Budgets and gates as tables of the document, because the objects change while they are used.
    _shared_tables: SharedTables = field(
        default_factory=dict[tuple[str, str], Mapping[str, object]], repr=False
    )

    def named(self, name: str) -> Retry | Pipeline:
        """Return the policy or the pipeline of that name; raise `ConfigError` if there is none."""
        instance(name, "name", str, "the name of a policy or a pipeline, such as 'payments'")
        target: Retry | Pipeline | None = self.policies.get(name, self.pipelines.get(name))
        if target is None:
            hint = nearest(name, (*self.policies, *self.pipelines))
            raise ConfigError(f"there is no policy or pipeline {short_repr(name)}; {hint}")
        return target

    def to_mapping(self) -> dict[str, object]:
        """Return the configuration as a document: plain dicts, lists, numbers, strings and booleans."""
        names = {id(budget): name for name, budget in self.budgets.items()}
        names |= {id(gate): f"gates.{name}" for name, gate in self.gates.items()}
        names |= {id(policy): f"policies.{name}" for name, policy in self.policies.items()}
        document: dict[str, dict[str, object]] = {"budgets": {}, "gates": {}, "policies": {}, "pipelines": {}}
        for (section, name), table in self._shared_tables.items():
            document[section][name] = _without_default_name(table, name)
        for name, policy in self.policies.items():
            place = DocPath(("policies", name), names=names)
            document["policies"][name] = _without_default_name(RETRY.write(policy, place), name)
        for name, pipeline in self.pipelines.items():
            place = DocPath(("pipelines", name), names=names)
            document["pipelines"][name] = PIPELINE.write(pipeline, place)
        return {section: tables for section, tables in document.items() if tables}


@public("redouble.config")
def to_mapping(thing: object) -> dict[str, object]:
    """Convert a policy, backoff, budget, gate, `Timeout`, `Hedge`, pipeline or `Config` to a mapping.

    The mapping holds plain dicts, lists, numbers, strings and booleans, so that it fits into TOML and JSON;
    None is written as ``"unlimited"``. Only values that differ from the defaults are written. A value that
    cannot be written, such as a hook, raises `ConfigError`.
    """
    if isinstance(thing, Config):
        return thing.to_mapping()
    if isinstance(thing, Backoff):
        return written(thing, DocPath())
    if type(thing) is Retry:
        return RETRY.write(thing, DocPath())
    if type(thing) is Pipeline:
        return PIPELINE.write(thing, DocPath())
    return ANY.write(thing, DocPath())


def _without_default_name(table: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in table.items() if (key, value) != ("name", name)}


SECTIONS = ("defaults", "budgets", "gates", "policies", "pipelines")
MISPLACED = "this is an option: write it under [defaults], or [policies.NAME]"
NOTHING: Found = MappingProxyType({})


@dataclass(frozen=True)
class ParsedDocument:
    """A parsed and validated document.

    shared: its budgets and gates, newly created, by section and name.
    shared_tables: the normalised table of each of them; equal tables mean that it has not changed.
    """

    shared: dict[tuple[str, str], object]
    shared_tables: dict[tuple[str, str], dict[str, object]]
    _policies: dict[str, tuple[Blueprint, tuple[str, ...]]] = field(repr=False)
    _pipelines: dict[str, Blueprint] = field(repr=False)
    _variables: Mapping[str, str] = field(repr=False)

    def build(self, kept: Found = NOTHING) -> Config:
        """Build the policies and pipelines, using the ``kept`` budgets and gates in place of new ones."""
        objects = {key: kept.get(key, fresh) for key, fresh in self.shared.items()}
        with _from_variable(self._variables):
            policies = {
                name: cast("Retry", RETRY.build(blueprint.values, blueprint.place, objects, own))
                for name, (blueprint, own) in self._policies.items()
            }
            objects |= {("policies", name): policy for name, policy in policies.items()}
            pipelines: dict[str, Any] = {
                name: blueprint.build(objects) for name, blueprint in self._pipelines.items()
            }
        sections: dict[str, Mapping[str, Any]] = {
            section: MappingProxyType({name: one for (of, name), one in objects.items() if of == section})
            for section in ("budgets", "gates")
        }
        return Config(
            policies=MappingProxyType(policies),
            budgets=sections["budgets"],
            gates=sections["gates"],
            pipelines=MappingProxyType(pipelines),
            _shared_tables=self.shared_tables,
        )


def parse(document: Mapping[str, object], environ: Mapping[str, str] | None = None) -> ParsedDocument:
    """Parse and validate a document, after applying the variables that override it."""
    place = DocPath()
    document = place.table(document, "a document, such as tomllib.loads() gives")
    given = {section: _section(document, section, place) for section in SECTIONS}
    for section in document:
        if section in RETRY.options:
            raise place.under(section).error(MISPLACED)
        if section not in SECTIONS:
            raise place.unknown_key(section, None, SECTIONS, foreign=True)
    sections, variables = apply_variables(given, {} if environ is None else environ)
    known = {section: sections[section] for section in ("budgets", "gates", "policies")}
    with _from_variable(variables):
        _check_names(sections)
        shared: dict[tuple[str, str], Blueprint] = {
            (section, name): kinds.read(table, DocPath((section, name), known), name=name)
            for section, kinds in (("budgets", BUDGETS), ("gates", GATES))
            for name, table in sections[section].items()
        }
        defaults = DEFAULTS.read(sections["defaults"], DocPath(("defaults",), known))
        policies: dict[str, tuple[Blueprint, tuple[str, ...]]] = {}
        for name, table in sections["policies"].items():
            place = DocPath(("policies", name), known)
            if name in RETRY.options and as_table(table) is None:
                raise place.error(MISPLACED)
            own = RETRY.read(table, place)
            policies[name] = Blueprint(RETRY, {**defaults, "name": name, **own}, place), tuple(own)
        pipelines = {
            name: _pipeline(table, sections["defaults"], DocPath(("pipelines", name), known))
            for name, table in sections["pipelines"].items()
        }
        objects = {key: blueprint.build(NOTHING) for key, blueprint in shared.items()}
    kinds = {"budgets": BUDGETS, "gates": GATES}
    tables = {key: kinds[key[0]].write(thing, DocPath(key)) for key, thing in objects.items()}
    return ParsedDocument(objects, tables, policies, pipelines, variables)


@public("redouble.config")
def from_mapping(document: Mapping[str, object], *, environ: Mapping[str, str] | None = None) -> Config:
    """Build new objects for everything that a document describes.

    >>> from redouble.config import from_mapping
    >>> config = from_mapping({"policies": {"payments": {"attempts": 5, "timeout": "10s"}}})
    >>> config.policies["payments"].timeout
    10.0

    environ: variables that override the document, such as ``os.environ``: ``REDOUBLE_PAYMENTS_ATTEMPTS=5``.
    """
    return parse(document, environ).build()


@public("redouble.config")
def policy(mapping: Mapping[str, object]) -> Retry:
    """Build one policy from its table.

    >>> from redouble.config import policy
    >>> policy({"on": "ConnectionError", "attempts": 5, "give_up_after": "10s"})
    Retry(on=ConnectionError, attempts=5, give_up_after=10.0)
    """
    retry: Retry = RETRY.build(RETRY.read(mapping, DocPath()), DocPath())
    return retry


def _section(document: Mapping[str, object], section: str, place: DocPath) -> Mapping[str, object]:
    """Return a section of a document, empty if absent; raise `ConfigError` if it is not a table."""
    return place.under(section).table(document.get(section, {}), f"[{section}]")


def _pipeline(table: object, usual: Mapping[str, object], place: DocPath) -> Blueprint:
    options = dict(place.table(table))
    layers = options.get("layers")
    if isinstance(layers, list | tuple):
        # The defaults also apply to a policy defined inline; `parse` has validated them already.
        options["layers"] = [_with_defaults(layer, usual) for layer in cast("list[object]", layers)]
    return Blueprint(PIPELINE, PIPELINE.read(options, place), place)


def _with_defaults(layer: object, usual: Mapping[str, object]) -> object:
    table = as_table(layer)
    return {**usual, **table} if table is not None and table.get("type") == "retry" else layer


def _check_names(sections: Mapping[str, Mapping[str, object]]) -> None:
    for section in SECTIONS[1:]:
        for name in sections[section]:
            if not name or name == UNLIMITED:
                raise DocPath((section, name)).error("this name is not allowed: choose another one")
    for name in sections["pipelines"]:
        if name in sections["policies"]:
            raise DocPath(("pipelines", name)).error(
                "a policy has the same name, and redouble.policies() looks up both: rename one of them"
            )


@contextmanager
def _from_variable(variables: Mapping[str, str]) -> Generator[None]:
    """Attribute a `ConfigError` to the environment variable that set the value."""
    try:
        yield
    except ConfigError as error:
        keys = [path for path in variables if f"{error.path}.".startswith(f"{path}.")]
        if keys:
            rewrite(error, path=variables[max(keys, key=len)])
        raise


OWN_FILE, PROJECT_FILE = "redouble.toml", "pyproject.toml"
TOOL_TABLE = "[tool.redouble]"


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
        return parse(document, environ).build()


def read_document(path: str | os.PathLike[str] | None = None) -> tuple[Mapping[str, object], str]:
    """Return the document in a TOML file, and the path of the file; find the file if ``path`` is None."""
    instance(path, "path", str | os.PathLike | None, "the path of a TOML file, or None")
    if path is not None:
        return _read_file(os.fspath(path)), os.fspath(path)
    if Path(OWN_FILE).is_file():
        return _read_file(OWN_FILE), OWN_FILE
    if Path(PROJECT_FILE).is_file() and _tool_table(_parse_toml(PROJECT_FILE), PROJECT_FILE) is not None:
        return _read_file(PROJECT_FILE), PROJECT_FILE
    where = "the working directory"
    with suppress(OSError):  # the working directory may have been deleted
        where = str(Path.cwd())
    raise ConfigError(
        f"found neither {OWN_FILE} nor a {PROJECT_FILE} with {TOOL_TABLE} in {where}: name a file"
    )


@contextmanager
def in_file(path: str) -> Generator[None]:
    """Add the path of the file to a `ConfigError`."""
    try:
        yield
    except ConfigError as error:
        rewrite(error, end=f" (in {path})")
        raise


def _read_file(path: str) -> Mapping[str, object]:
    parsed = _parse_toml(path)
    if os.path.basename(path) != PROJECT_FILE:
        return parsed
    table = _tool_table(parsed, path)
    if table is None:
        raise ConfigError(f"it has no {TOOL_TABLE}: write one, or name another file", path=path)
    return table


def _tool_table(parsed: Mapping[str, object], path: str) -> Mapping[str, object] | None:
    with in_file(path):
        tools = DocPath(("tool",)).table(parsed.get("tool", {}))
        table = tools.get("redouble")
        return None if table is None else DocPath(("tool", "redouble")).table(table)


def _parse_toml(path: str) -> Mapping[str, object]:
    import tomllib  # noqa: PLC0415  needed only to read a file

    try:
        return tomllib.loads(Path(path).read_text("utf-8-sig"))  # some editors write a byte order mark
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=path or "''") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, too long a number, too deep nesting
        raise ConfigError(f"is not valid TOML: {error}", path=path) from error
