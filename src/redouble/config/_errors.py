"""What is wrong, and where: every complaint about a document is made here.

A `Place` is a path of keys, as one writes it: ``policies.payments.attempts``. This file knows nothing of what
may stand there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from reprlib import Repr
from types import MappingProxyType
from typing import NamedTuple, cast

from redouble.errors import ConfigError

__all__ = ["DocPath", "as_table", "nearest", "rewrite", "short_repr"]


MAX_LENGTH = 80  # characters of a value that are shown
HUGE = 10**70
MAX_NAMES = 30  # names that are listed
BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that TOML wants no quotes around

_brief = Repr()  # it neither goes deep nor fails, whatever it is shown
_brief.maxlevel = 2
_brief.maxstring = _brief.maxother = _brief.maxlong = MAX_LENGTH


def short_repr(value: object) -> str:
    """Spell a value, cut to a length that fits into a message."""
    try:
        text = "a huge integer" if isinstance(value, int) and abs(value) > HUGE else _brief.repr(value)
    except ValueError:  # there is one inside: Python does not spell integers of thousands of digits
        return "something with a huge integer"
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."


def nearest(word: str, words: Iterable[str]) -> str:
    """Say which of the words was probably meant, or else what there is."""
    from difflib import get_close_matches  # noqa: PLC0415  for those who misspell

    known = sorted(words)
    if close := get_close_matches(word[:MAX_LENGTH], known, 1):
        return f"did you mean {close[0]!r}?"
    more = "..." if len(known) > MAX_NAMES else ""
    return f"write one of {', '.join(known[:MAX_NAMES])}{more}" if known else "there is none"


def rewrite(error: ConfigError, *, path: str | None = None, end: str = "") -> None:
    """Give an error another path, or another end: it stays the same object, and is raised on."""
    message = str(error).removeprefix(f"{error.path}: ") if error.path else str(error)
    error.path = error.path if path is None else path
    error.args = (f"{error.path}: {message}{end}" if error.path else message + end,)


def as_table(value: object) -> Mapping[str, object] | None:
    """Return a value if it is a table, whose keys are texts."""
    if not isinstance(value, Mapping):
        return None
    found = cast("Mapping[object, object]", value)
    return cast("Mapping[str, object]", found) if all(isinstance(key, str) for key in found) else None


class DocPath(NamedTuple):
    """Where in a document something stands.

    known: the names that may be referred to, by section.
    names: what to write instead of a thing that has a name there, by its identity.
    """

    keys: tuple[str, ...] = ()
    known: Mapping[str, Collection[str]] = MappingProxyType({})
    names: Mapping[int, str] = MappingProxyType({})

    @property
    def path(self) -> str:
        """Spell it."""
        return ".".join(
            key if BARE.fullmatch(key) else f'"{repr(key[:MAX_LENGTH])[1:-1]}"' for key in self.keys
        )

    def under(self, key: str) -> DocPath:
        """Return the place of a key in the table that stands here."""
        return DocPath((*self.keys, key), self.known, self.names)

    def error(self, message: str) -> ConfigError:
        """Make the error that says so."""
        return ConfigError(message, path=self.path)

    def table(self, value: object, wanted: str = "a table") -> Mapping[str, object]:
        """Accept a table, whose keys are texts."""
        found = as_table(value)
        if found is None:
            said = f"{short_repr(value)} is no table"
            keys = ", whose keys are texts" if isinstance(value, Mapping) else ""
            raise self.error(f"{said}{keys}: write {wanted}")
        return found

    def items(self, value: object, wanted: str) -> Sequence[object]:
        """Accept a list."""
        if not isinstance(value, list | tuple):
            raise self.error(f"{short_repr(value)}: write {wanted}")
        return cast("Sequence[object]", value)

    def constructor_error(self, error: Exception, keys: Iterable[str]) -> ConfigError:
        """Make a constructor's complaint one about a document: of the key that it names, if it names one."""
        said = str(error).replace("None", "'unlimited'")
        named = re.search(rf"\b({'|'.join(map(re.escape, keys)) or '$'})(?==|\[)", said)
        return (self if named is None else self.under(named[1])).error(said)

    def unknown_key(
        self, key: str, value: object, keys: Iterable[str], *, foreign: bool = False
    ) -> ConfigError:
        """Make the error that says that there is no such key.

        A file of a whole program may have anything at its top, passwords too: of what is ``foreign`` nothing
        is shown.
        """
        text = short_repr(value)
        if isinstance(value, Mapping | list):
            text = "a list" if isinstance(value, list) else "a table"
        said = "" if foreign else f" (for {text})"
        return self.under(key).error(f"there is no such key{said}; {nearest(key, keys)}")
