"""Configuration documents: finding and reading TOML files, and parsing documents.

`parse` validates the sections of a document and the references between them, and creates nothing but
blueprints. `_options` defines the options and the values that each accepts, `Builder` creates the objects.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from redouble._internal.validation import instance, nearest
from redouble.config._document_path import DocPath, as_table, rewrite
from redouble.config._environment import apply_variables
from redouble.config._options.catalogue import DEFAULTS, RETRY, TABLES
from redouble.config._options.option_table import Blueprint, Reference
from redouble.config._options.values import UNLIMITED
from redouble.errors import ConfigError

SECTIONS = ("defaults", *TABLES)
MISPLACED = "this is an option: write it under [defaults], or [policies.NAME]"

OWN_FILE, PROJECT_FILE = "redouble.toml", "pyproject.toml"
TOOL_TABLE = "[tool.redouble]"


def parse(
    document: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> dict[Reference, Blueprint]:
    """Parse and validate a document, after applying the variables that override it.

    Each blueprint refers only to those before it: budgets and gates come first, then policies and pipelines.
    """
    root = DocPath()
    document = root.table(document, "a document, such as tomllib.loads() gives")
    given = {name: root.under(name).table(document.get(name, {}), f"[{name}]") for name in SECTIONS}
    for section in document:
        if section in RETRY.options:
            raise root.under(section).error(MISPLACED)
        if section not in SECTIONS:
            # Its value is not shown: a file that configures a whole program may have passwords there.
            raise root.under(section).error(f"there is no such key; {nearest(section, SECTIONS)}")
    sections, variables = apply_variables(given, {} if environ is None else environ)
    root = DocPath((), sections, variables)
    defaults = DEFAULTS.blueprint(sections["defaults"], root.under("defaults")).values
    root = DocPath((), {**sections, "defaults": defaults}, variables)
    blueprints: dict[Reference, Blueprint] = {}
    for section, tables in TABLES.items():
        for name, table in sections[section].items():
            place = root.under(section, name)
            if not name or name == UNLIMITED:
                raise place.error("this name is not allowed: choose another one")
            if section == "policies" and name in RETRY.options and as_table(table) is None:
                raise place.error(MISPLACED)
            if section == "pipelines" and name in sections["policies"]:
                raise place.error(
                    "a policy has the same name, and redouble.policies() looks up both: rename one"
                )
            blueprints[Reference(section, name)] = tables.blueprint(table, place, name)
    return blueprints


def read_document(path: str | os.PathLike[str] | None = None) -> tuple[Mapping[str, object], str]:
    """Return the document in a TOML file, and the path of the file; find the file if ``path`` is None."""
    instance(path, "path", str | os.PathLike | None, "the path of a TOML file, or None")
    if path is not None:
        file = os.fspath(path)
        if (document := _read_file(file)) is None:
            raise ConfigError(f"it has no {TOOL_TABLE}: write one, or name another file", path=file)
        return document, file
    for file in (OWN_FILE, PROJECT_FILE):
        if Path(file).is_file() and (document := _read_file(file)) is not None:
            return document, file
    where = "the working directory"
    with suppress(OSError):  # the working directory may have been deleted
        where = str(Path.cwd())
    raise ConfigError(
        f"found neither {OWN_FILE} nor a {PROJECT_FILE} with {TOOL_TABLE} in {where}: name a file"
    )


@contextmanager
def in_file(path: str) -> Generator[None]:
    """Add the path of the file, if there is one, to a `ConfigError`."""
    try:
        yield
    except ConfigError as error:
        rewrite(error, end=path and f" (in {path})")
        raise


def _read_file(path: str) -> Mapping[str, object] | None:
    """Return the document in a file; None if it is a ``pyproject.toml`` without our table."""
    import tomllib  # noqa: PLC0415  needed only to read a file

    try:
        parsed = tomllib.loads(Path(path).read_text("utf-8-sig"))  # some editors write a byte order mark
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=path or "''") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, too long a number, too deep nesting
        raise ConfigError(f"is not valid TOML: {error}", path=path) from error
    if os.path.basename(path) != PROJECT_FILE:
        return parsed
    with in_file(path):
        table = DocPath(("tool",)).table(parsed.get("tool", {})).get("redouble")
        return None if table is None else DocPath(("tool", "redouble")).table(table)
