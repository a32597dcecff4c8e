"""Files: which one it is, and what it says. What that means is not known here."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from redouble._internal.public import public
from redouble._internal.validation import instance
from redouble.config._config import Config
from redouble.config._document import read
from redouble.config._wrong import Place, amend
from redouble.errors import ConfigError

__all__ = ["document", "from_file", "told_of"]

OWN, SHARED = "redouble.toml", "pyproject.toml"
TABLE = "[tool.redouble]"


@public("redouble.config")
def from_file(
    path: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Config:
    """Make everything that a TOML file describes, anew.

    path: a file; of one that is called ``pyproject.toml``, the table ``[tool.redouble]``. Unless said, it is
        ``redouble.toml`` in the working directory, or ``pyproject.toml`` there if it has that table.
    environ: variables that override it, such as ``os.environ``.
    """
    said, found = document(path)
    with told_of(found):
        return read(said, environ).build()


def document(path: str | os.PathLike[str] | None = None) -> tuple[Mapping[str, object], str]:
    """Return what a file says, and the path of the file."""
    instance(path, "path", str | os.PathLike | None, "the path of a TOML file, or None")
    if path is not None:
        return _own(os.fspath(path)), os.fspath(path)
    if Path(OWN).is_file():
        return _own(OWN), OWN
    if Path(SHARED).is_file() and _table(_parsed(SHARED), SHARED) is not None:
        return _own(SHARED), SHARED
    where = "the working directory"
    with suppress(OSError):  # it may be gone
        where = str(Path.cwd())
    raise ConfigError(f"found neither {OWN} nor a {SHARED} with {TABLE} in {where}: name a file")


@contextmanager
def told_of(path: str) -> Generator[None]:
    """Say of what is wrong in which file it is."""
    try:
        yield
    except ConfigError as error:
        amend(error, end=f" (in {path})")
        raise


def _own(path: str) -> Mapping[str, object]:
    parsed = _parsed(path)
    if os.path.basename(path) != SHARED:
        return parsed
    table = _table(parsed, path)
    if table is None:
        raise ConfigError(f"it has no {TABLE}: write one, or name another file", path=path)
    return table


def _table(parsed: Mapping[str, object], path: str) -> Mapping[str, object] | None:
    with told_of(path):
        tools = Place(("tool",)).table(parsed.get("tool", {}))
        found = tools.get("redouble")
        return None if found is None else Place(("tool", "redouble")).table(found)


def _parsed(path: str) -> Mapping[str, object]:
    import tomllib  # noqa: PLC0415  for those who have a file

    try:
        return tomllib.loads(Path(path).read_text("utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", path=path or "''") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number too long, or far too deep
        raise ConfigError(f"is no TOML: {error}", path=path) from error
