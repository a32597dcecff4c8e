"""The built-in rule: what is worth retrying, known by name, importing nothing.

`transient` answers "retry", or None: no opinion, so that it can stand in a list with rules of yours.
Classes are recognised by their qualified name through the MRO. Python's own are known here; the table of
all others, `_known`, is loaded when the first of them is judged. What was found out about a class is
remembered for as long as the class lives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import ref

from redouble._failures.builtin_errors import BUILTIN, Ask, Entry, Look
from redouble._failures.verdict import Answer, Kind, Rule, Verdict, verdict
from redouble._internal.callables import lazy_kind
from redouble.errors import Rejected

__all__ = ["Transient", "kind_of", "transient"]


Told: TypeAlias = bool | float | timedelta | Verdict | Callable[[Any], Answer]
Table: TypeAlias = Mapping[type[Exception] | str, Told]

# Reading a member off its enum costs a call of its own on Python 3.11.
NETWORK, TIMEOUT, THROTTLED, UNKNOWN = Kind.network, Kind.timeout, Kind.throttled, Kind.unknown

_OWN_MODULES = ("builtins", "redouble.errors")  # a class from elsewhere needs the whole table
_DEEPEST = 8  # an error inside an error inside an error: further down nobody looks

# What is remembered of a class: a reference to it, its verdict, functions of yours to ask, and a look.
_Known: TypeAlias = tuple[Any, Verdict | None, tuple[Rule, ...], Look | None]


class _Failed(Exception):
    """Carries the error of a rule of yours out past our own care for odd errors."""


class Transient:
    """A rule that retries errors which tend to go away by themselves: the default of ``on``.

    It has no opinion on the rest. ``with_`` makes a rule that knows your errors too.
    """

    __slots__ = ("__weakref__", "_asks", "_seen", "_tables", "_written")

    def __init__(self, *tables: Table) -> None:
        self._tables = tuple(checked for table in tables if (checked := _checked(table)))
        self._written = tuple(dict[Any, Any](table) for table in tables if table)
        # By identity of the class: hashing one may be its metaclass's business. The reference tells
        # whether it is still that class, and takes the entry away with it.
        self._seen: dict[int, _Known] = {}
        self._asks: list[Ask] = [partial(self._below, depth) for depth in range(1, _DEEPEST + 1)]

    def __call__(self, error: Exception, /) -> Verdict | None:
        """Judge an error."""
        kind = type(error)
        known = self._seen.get(id(kind))
        if known is None or known[0]() is not kind:
            known = self._learn(kind)
        _, found, mine, look = known
        if look is None and not mine:
            return found
        try:
            return self._judge(error, known, 0)
        except _Failed as carrier:
            failure: Exception = carrier.args[0]
        raise failure  # out here its context is the error that was judged, not the carrier

    def with_(self, table: Table) -> Transient:
        """Return a rule that also knows what ``table`` says, and asks it first.

        Keys are exception types or their full names. Values are answers, or functions of the error; one
        that answers None leaves the error to its base classes, and to what was known before.

        >>> transient.with_({"mylib.errors.Busy": 2.5, KeyError: False})
        transient.with_({'mylib.errors.Busy': 2.5, KeyError: False})
        """
        return Transient(table, *self._written)

    def _judge(self, error: Exception, known: _Known, depth: int) -> Verdict | None:
        _, found, mine, look = known
        for rule in mine:
            try:
                answer = rule(error)
                if answer is not None:
                    return verdict(answer, rule)
            except Exception as failed:
                raise _Failed(failed) from None
        if look is None or depth == _DEEPEST:
            return found
        try:
            return look(error, self._asks[depth])
        except _Failed:
            raise
        except Exception:
            return None  # an error that cannot be read is not known to be transient

    def _below(self, depth: int, error: object) -> Verdict | None:
        """Judge an error found inside another one."""
        if not isinstance(error, Exception):
            return None
        known = self._seen.get(id(type(error)))
        if known is None or known[0]() is not type(error):
            known = self._learn(type(error))
        return self._judge(error, known, depth)

    def _learn(self, kind: type[Exception]) -> _Known:
        """Find out what is known of a class, and remember it."""
        mine: tuple[Rule, ...] = ()
        found: Entry = None
        whole = True
        try:
            if self._tables:
                mine, found = self._told(kind)
            if found is None:
                table = BUILTIN
                if kind.__module__ not in _OWN_MODULES:
                    table, whole = _whole_table()
                for base in kind.__mro__:
                    if base is Exception:
                        break  # whatever is said of an exception has been met before it
                    name = f"{base.__module__}.{base.__qualname__}"
                    if name in table:
                        found = table[name]
                        break
        except Exception:
            return None, None, (), None  # a class that does not tell its name
        key, seen = id(kind), self._seen
        alive = ref(kind, lambda _: seen.pop(key, None))
        known = (alive, found, mine, None) if isinstance(found, Verdict) else (alive, None, mine, found)
        if whole:
            seen[key] = known
        return known

    def _told(self, kind: type[Exception]) -> tuple[tuple[Rule, ...], Verdict | None]:
        """Find what we were told of a class: functions to ask, up to a verdict that needs no asking."""
        mine: list[Rule] = []
        for table in self._tables:
            for base in kind.__mro__:
                for told in (table.get(id(base)), table.get(f"{base.__module__}.{base.__qualname__}")):
                    if isinstance(told, Verdict):
                        return tuple(mine), told
                    if told is not None:
                        mine.append(told)
        return tuple(mine), None

    def __eq__(self, other: object) -> bool:
        return self._tables == other._tables if isinstance(other, Transient) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(frozenset(table) for table in self._tables))  # values may be unhashable

    def __repr__(self) -> str:
        return "transient" + "".join(f".with_({_spelled(table)})" for table in reversed(self._written))

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (Transient, self._written) if self is not transient else "transient"


def _checked(table: object) -> dict[int | str, Verdict | Rule]:
    if not isinstance(table, Mapping):
        raise TypeError(
            f"with_({table!r}): write a mapping, such as {{Busy: True, 'mylib.errors.Full': 2.5}}"
        )
    return {_key(key): _value(key, told) for key, told in cast("Mapping[object, object]", table).items()}


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


def _value(key: object, told: object) -> Verdict | Rule:
    if callable(told) and not isinstance(told, type):
        if (what := lazy_kind(told)) is not None:
            raise TypeError(f"with_: {key!r} is given {what}: rules are plain functions, also in async code")
        return cast("Rule", told)
    if isinstance(told, bool | int | float | timedelta | Verdict):
        return verdict(told, "with_")
    raise TypeError(
        f"with_: {key!r} is given {told!r}: write True, False, a number of seconds, a Verdict, "
        "or a function of the error that answers one of these or None"
    )


def _spelled(table: Mapping[Any, Any]) -> str:
    said = (
        f"{getattr(k, '__qualname__', repr(k))}: {getattr(v, '__qualname__', repr(v))}"
        for k, v in table.items()
    )
    return "{" + ", ".join(said) + "}"


_whole: dict[str, Entry] = {}


def _whole_table() -> tuple[dict[str, Entry], bool]:
    """Return the table of everything, and whether it is: a file cannot be opened at every moment."""
    if not _whole:
        try:
            from redouble._failures.known_errors import TABLE  # noqa: PLC0415
        except Exception:
            return BUILTIN, False
        _whole.update({**TABLE, **BUILTIN})
    return _whole, True


transient = Transient()


def kind_of(error: type[BaseException] | None) -> Kind:
    """Tell the kind of an error by its type alone, for verdicts that do not say."""
    if error is None:
        return UNKNOWN
    if issubclass(error, TimeoutError):
        return TIMEOUT
    if issubclass(error, ConnectionError):
        return NETWORK
    return THROTTLED if issubclass(error, Rejected) else UNKNOWN
