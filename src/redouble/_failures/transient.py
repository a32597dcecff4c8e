"""The built-in rule `transient`, which recognises retryable errors by name and imports no library.

It returns "retry", or None for "no opinion", so that it can be listed with rules of the user. Classes are
recognised by their qualified name through the MRO. Built-in classes are in `builtin_errors`; the table of all
others, `known_errors`, is loaded when the first of them is judged. The result for a class is cached while the
class lives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import ref

from redouble._failures.builtin_errors import BUILTIN, Entry
from redouble._failures.verdict import Answer, ErrorRule, Kind, Rule, Verdict, verdict
from redouble._internal.callables import lazy_kind
from redouble._internal.validation import timedelta
from redouble.errors import Rejected

TableValue: TypeAlias = bool | float | timedelta | Verdict | Callable[[Any], Answer]
Table: TypeAlias = Mapping[type[Exception] | str, TableValue]

_BUILTIN_MODULES = ("builtins", "redouble.errors")  # a class from any other module needs the full table
_MAX_DEPTH = 8  # of errors inside errors

# The cached result for a class: a weak reference to it, the user's rules, and the entry of a table.
_CachedClass: TypeAlias = tuple[Any, tuple[Rule, ...], Entry]


class _RuleFailed(Exception):
    """Carries the error of a user's rule past the handler for malformed errors."""


class Transient(ErrorRule):
    """The rule that retries transient errors: the default of ``on``.

    It has no opinion on other errors. ``with_`` returns a rule that recognises your errors too.
    """

    __slots__ = ("__weakref__", "_cache", "_original_tables", "_tables")

    def __init__(self, *tables: Table) -> None:
        self._tables = tuple(checked for table in tables if (checked := _checked_table(table)))
        self._original_tables = tuple(dict[Any, Any](table) for table in tables if table)
        # By identity of the class, because its metaclass may define `__hash__`. The weak reference shows
        # whether it is still the same class, and its callback removes the entry.
        self._cache: dict[int, _CachedClass] = {}

    def __call__(self, error: Exception, /, _depth: int = 0) -> Verdict | None:
        """Judge an error."""
        kind = type(error)
        known = self._cache.get(id(kind))
        if known is None or known[0]() is not kind:
            known = self._look_up(kind)
        _, rules, entry = known
        for rule in rules:
            try:
                answer = rule(error)
                if answer is not None:
                    return verdict(answer, rule)
            except Exception as failed:
                if _depth:
                    raise _RuleFailed(failed) from None
                raise
        if entry is None or isinstance(entry, Verdict):
            return entry
        try:
            return entry(error, partial(self._ask, _depth + 1)) if _depth < _MAX_DEPTH else None
        except _RuleFailed as carrier:
            if _depth:
                raise
            failure: Exception = carrier.args[0]
        except Exception:
            return None  # a malformed error is not known to be transient
        raise failure  # outside of the handler, so that its context is the judged error, not the carrier

    def with_(self, table: Table) -> Transient:
        """Return a rule that looks errors up in ``table`` first.

        Keys are exception types or their full names. Values are answers, or functions of the error. If a
        function returns None, the entries of the base classes and the earlier tables decide.

        >>> transient.with_({"mylib.errors.Busy": 2.5, KeyError: False})
        transient.with_({'mylib.errors.Busy': 2.5, KeyError: False})
        """
        return Transient(table, *self._original_tables)

    def _ask(self, depth: int, error: object) -> Verdict | None:
        """Judge an error inside another: its cause, or a member of an exception group."""
        return self(error, depth) if isinstance(error, Exception) else None

    def _look_up(self, kind: type[Exception]) -> _CachedClass:
        """Look a class up in the tables and cache the result."""
        try:
            rules, entry, complete = self._entries(kind)
        except Exception:
            return None, (), None  # the name of the class cannot be read
        key, seen = id(kind), self._cache
        known = (ref(kind, lambda _: seen.pop(key, None)), rules, entry)
        if complete:
            seen[key] = known
        return known

    def _entries(self, kind: type[Exception]) -> tuple[tuple[Rule, ...], Entry, bool]:
        """Return the user's rules for a class, the entry that follows them, and if all tables were at hand.

        The tables of the user come first; a fixed verdict in them is the last entry.
        """
        rules: list[Rule] = []
        for own in self._tables:
            for base in kind.__mro__:
                for found in (own.get(id(base)), own.get(f"{base.__module__}.{base.__qualname__}")):
                    if isinstance(found, Verdict):
                        return tuple(rules), found, True
                    if found is not None:
                        rules.append(found)
        table, complete = _table_for(kind)
        for base in kind.__mro__:
            if base is Exception:
                break  # the tables have no entry for Exception or its bases
            if (name := f"{base.__module__}.{base.__qualname__}") in table:
                return tuple(rules), table[name], complete
        return tuple(rules), None, complete

    def __eq__(self, other: object) -> bool:
        return self._tables == other._tables if isinstance(other, Transient) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(frozenset(table) for table in self._tables))  # values may be unhashable

    def __repr__(self) -> str:
        return "transient" + "".join(
            f".with_({_table_repr(table)})" for table in reversed(self._original_tables)
        )

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (Transient, self._original_tables) if self is not transient else "transient"


def _checked_table(table: object) -> dict[int | str, Verdict | Rule]:
    if not isinstance(table, Mapping):
        raise TypeError(
            f"with_({table!r}): write a mapping, such as {{Busy: True, 'mylib.errors.Full': 2.5}}"
        )
    return {_key(key): _value(key, value) for key, value in cast("Mapping[object, object]", table).items()}


def _key(key: object) -> int | str:
    if isinstance(key, str):
        if "." not in key or not all(part.isidentifier() for part in key.split(".")):
            raise ValueError(f"with_: key {key!r}: write the full name, such as 'mylib.errors.Busy'")
        return key
    if not isinstance(key, type) or not issubclass(key, BaseException):
        raise TypeError(f"with_: key {key!r}: write an exception type, or its full name as a text")
    if not issubclass(key, Exception):
        raise ValueError(
            f"with_: key {key.__name__} is never retried: cancellation, Ctrl-C and exits are your caller's"
        )
    return id(key)


def _value(key: object, value: object) -> Verdict | Rule:
    if callable(value) and not isinstance(value, type):
        if (kind := lazy_kind(value)) is not None:
            raise TypeError(f"with_: {key!r} is given {kind}: rules are plain functions, also in async code")
        return cast("Rule", value)
    if isinstance(value, bool | int | float | timedelta | Verdict):
        return verdict(value, "with_")
    raise TypeError(
        f"with_: {key!r} is given {value!r}: write True, False, a number of seconds, a Verdict, "
        "or a function of the error that answers one of these or None"
    )


def _table_repr(table: Mapping[Any, Any]) -> str:
    items = (
        f"{getattr(k, '__qualname__', repr(k))}: {getattr(v, '__qualname__', repr(v))}"
        for k, v in table.items()
    )
    return "{" + ", ".join(items) + "}"


def _table_for(kind: type[Exception]) -> tuple[Mapping[str, Entry], bool]:
    """Return the table for a class and True, or only the built-in one and False if the import fails.

    It may fail for a while, such as when the process has no free file descriptor.
    """
    if kind.__module__ in _BUILTIN_MODULES:
        return BUILTIN, True
    try:
        from redouble._failures.known_errors import TABLE  # noqa: PLC0415
    except Exception:
        return BUILTIN, False
    return TABLE, True


transient = Transient()

# Reading a member off its enum costs a call of its own on Python 3.11.
NETWORK, TIMEOUT, THROTTLED, UNKNOWN = Kind.network, Kind.timeout, Kind.throttled, Kind.unknown


def kind_of(error: type[BaseException] | None) -> Kind:
    """Return the kind of an error by its type alone, for verdicts without a kind."""
    if error is None:
        return UNKNOWN
    if issubclass(error, TimeoutError):
        return TIMEOUT
    if issubclass(error, ConnectionError):
        return NETWORK
    return THROTTLED if issubclass(error, Rejected) else UNKNOWN
