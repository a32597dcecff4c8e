"""The path of a part of a document: every `ConfigError` about a part is created here.

A `DocPath` is the path of keys to that part, written as in TOML: ``policies.payments.attempts``. This module
does not depend on the options that a document may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from reprlib import Repr
from types import MappingProxyType
from typing import NamedTuple, TypeVar, cast

from redouble._internal.validation import nearest
from redouble._redaction.rendering import shown, without_secrets
from redouble.errors import ConfigError

T = TypeVar("T")

MAX_LENGTH = 80  # characters of a value shown in a message
HUGE = 10**70
BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that needs no quotes in TOML

_brief = Repr()  # its depth is limited, and an object whose repr raises does no harm
_brief.maxlevel = 2
_brief.maxstring = _brief.maxother = _brief.maxlong = MAX_LENGTH


def short_repr(value: object) -> str:
    """Return the repr of a value, shortened to fit into a message, without secrets."""
    try:
        text = "a huge integer" if isinstance(value, int) and abs(value) > HUGE else _brief.repr(value)
    except ValueError:  # a huge integer inside: Python limits the digits that it converts
        return "something with a huge integer"
    text = without_secrets(text)
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."


def rewrite(error: ConfigError, *, path: str | None = None, end: str = "") -> None:
    """Replace the path of an error or append to its message, in place, so that the caller can re-raise it."""
    message = str(error).removeprefix(f"{error.path}: ") if error.path else str(error)
    error.path = error.path if path is None else path
    error.args = (f"{error.path}: {message}{end}" if error.path else message + end,)


def as_table(value: object) -> Mapping[str, object] | None:
    """Return the value if it is a mapping whose keys are all strings, else None."""
    if not isinstance(value, Mapping):
        return None
    mapping = cast("Mapping[object, object]", value)
    return cast("Mapping[str, object]", mapping) if all(isinstance(key, str) for key in mapping) else None


class DocPath(NamedTuple):
    """A path of keys to one part of a document.

    sections: the sections of the document, for references; the defaults, which policies inherit, are parsed.
    variables: the environment variable that set each path.
    names: the reference to write in place of a named object, by the object's ``id()``.
    """

    keys: tuple[str, ...] = ()
    sections: Mapping[str, Mapping[str, object]] = MappingProxyType({})
    variables: Mapping[str, str] = MappingProxyType({})
    names: Mapping[int, str] = MappingProxyType({})

    @property
    def path(self) -> str:
        """The path as in TOML: keys separated by dots, quoted where necessary."""
        return ".".join(
            key if BARE.fullmatch(key) else f'"{repr(key[:MAX_LENGTH])[1:-1]}"' for key in self.keys
        )

    @property
    def origin(self) -> str:
        """The environment variable that set this part of the document, or else its path."""
        outer = [path for path in self.variables if f"{self.path}.".startswith(f"{path}.")]
        return self.variables[max(outer, key=len)] if outer else self.path

    def under(self, *keys: str) -> DocPath:
        """Return the path of a key in the table at this path."""
        return DocPath((*self.keys, *keys), *self[1:])

    def error(self, message: str) -> ConfigError:
        """Return a `ConfigError` with this message and origin."""
        return ConfigError(message, path=self.origin)

    def table(self, value: object, wanted: str = "a table") -> Mapping[str, object]:
        """Return the value if it is a mapping whose keys are all strings; raise `ConfigError` otherwise."""
        table = as_table(value)
        if table is None:
            problem = f"{short_repr(value)} is not a table"
            keys = " with texts as keys" if isinstance(value, Mapping) else ""
            raise self.error(f"{problem}{keys}: write {wanted}")
        return table

    def expect(self, value: object, kind: type[T] | tuple[type[T], ...], wanted: str) -> T:
        """Return the value if it is of this type; raise `ConfigError` otherwise."""
        if not isinstance(value, kind):
            raise self.error(f"{short_repr(value)}: write {wanted}")
        return value

    def items(self, value: object, wanted: str) -> Sequence[object]:
        """Return the value if it is a list or a tuple; raise `ConfigError` otherwise."""
        return cast("Sequence[object]", self.expect(value, (list, tuple), wanted))

    def constructor_error(self, error: Exception, keys: Iterable[str]) -> ConfigError:
        """Convert a constructor's error to a `ConfigError` at the key that its message names, if any."""
        message = shown(str(error)).replace("None", "'unlimited'")
        named = re.search(rf"\b({'|'.join(map(re.escape, keys)) or '$'})(?==|\[)", message)
        return (self if named is None else self.under(named[1])).error(message)

    def unknown_key(self, key: str, value: object, keys: Iterable[str]) -> ConfigError:
        """Return a `ConfigError` for an unknown key."""
        text = short_repr(value)
        if isinstance(value, Mapping | list):
            text = "a list" if isinstance(value, list) else "a table"
        else:
            text = without_secrets(f"{key}={text}").removeprefix(f"{key}=")  # the key may be that of a secret
        return self.under(key).error(f"there is no such key (its value: {text}); {nearest(key, keys)}")
