"""Configuration documents: finding and reading TOML files, and parsing documents.

`parse` validates the sections of a document and the references between them, and creates nothing but
blueprints. `_options` defines the options and the values that each accepts, `Builder` creates the objects.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from redouble._internal.validation import instance
from redouble.config._document_path import DocPath, as_table, rewrite
from redouble.config._environment import apply_variables
from redouble.config._options.catalogue import BUDGETS, DEFAULTS, GATES, PIPELINE, RETRY
from redouble.config._options.option_table import Blueprint, Reference
from redouble.config._options.values import UNLIMITED
from redouble.errors import ConfigError

__all__ = ["SECTIONS", "in_file", "parse", "read_document"]


SECTIONS = ("defaults", "budgets", "gates", "policies", "pipelines")
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
            raise root.unknown_key(section, None, SECTIONS, foreign=True)
    sections, variables = apply_variables(given, {} if environ is None else environ)
    root = DocPath((), sections, variables)
    usual = sections["defaults"]
    DEFAULTS.read(usual, root.under("defaults"))
    blueprints: dict[Reference, Blueprint] = {}
    for section in SECTIONS[1:]:
        for name, table in sections[section].items():
            place = root.under(section, name)
            if not name or name == UNLIMITED:
                raise place.error("this name is not allowed: choose another one")
            match section:
                case "policies":
                    if name in RETRY.options and as_table(table) is None:
                        raise place.error(MISPLACED)
                    blueprint = RETRY.read(table, place, {**usual, "name": name})
                case "pipelines":
                    if name in sections["policies"]:
                        raise place.error(
                            "a policy has the same name, and redouble.policies() looks up both: rename one"
                        )
                    blueprint = PIPELINE.read(table, place)
                case _:
                    tables = BUDGETS if section == "budgets" else GATES
                    blueprint = tables.read(table, place, {"name": name})
            blueprints[Reference(section, name)] = blueprint
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
    """Add the path of the file to a `ConfigError`."""
    try:
        yield
    except ConfigError as error:
        rewrite(error, end=f" (in {path})")
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
