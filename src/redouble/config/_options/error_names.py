"""The names of exceptions and rules in a document, for ``on`` and ``until``; reading one imports nothing.

The names are those of the built-in exceptions, `transient`, some errors of this library, two rules that stop,
``http`` for the rule `redouble.http.rule()`, and the names that the program registered with `register()`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from redouble import errors
from redouble._failures.transient import transient
from redouble._failures.verdict import On, as_rules
from redouble._internal.locks import ForkSafeLock
from redouble._internal.public import public
from redouble._internal.validation import nearest
from redouble.config._document_path import DocPath, short_repr
from redouble.config._options.values import Value
from redouble.errors import ConfigError
from redouble.http import HttpRule, rule


@dataclass(frozen=True)
class StopOn:
    """A rule that stops on errors of one type, for the beginning of a list of rules."""

    name: str
    kind: type[Exception]

    def __call__(self, error: Exception, /) -> bool | None:
        """Return False, do not retry, for an error of the type; None, no opinion, for any other."""
        return False if isinstance(error, self.kind) else None

    def __repr__(self) -> str:
        return self.name


STOP_ON_TIMEOUT = StopOn("stop_on_timeout", errors.AttemptTimeout)
STOP_ON_WORKER_FAILURE = StopOn("stop_on_worker_failure", errors.WorkerFailed)
OURS = ("AttemptTimeout", "BulkheadFull", "CircuitOpen", "RateLimited", "Rejected", "WorkersBusy")
EXCEPTIONS = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException) and not name.startswith("_")
}
BUILT_IN: Mapping[str, object] = MappingProxyType(
    {
        **{name: kind for name, kind in EXCEPTIONS.items() if issubclass(kind, Exception)},
        **{name: getattr(errors, name) for name in OURS},
        "transient": transient,
        "http": rule(),
        **{rule.name: rule for rule in (STOP_ON_TIMEOUT, STOP_ON_WORKER_FAILURE)},
    }
)
# Rejected in every document, because they must reach the caller.
NEVER = {"CancelledError", "Cancelled", *(EXCEPTIONS.keys() - BUILT_IN.keys())}

_lock = ForkSafeLock()
_known = BUILT_IN  # and the registered names


@public("redouble.config")
def register(name: str, on: On) -> None:
    """Register a name that documents may use for an exception type, a tuple of types, or a rule.

    >>> from redouble.config import register
    >>> class Busy(Exception): ...
    >>> register("billing.Busy", Busy)

    The name of a rule may also stand in ``until``: it then receives the results.
    """
    global _known  # noqa: PLW0603  the mapping is replaced, never changed: readers need no lock
    if not isinstance(cast("object", name), str) or not all(map(str.isidentifier, name.split("."))):
        raise ConfigError(f"register({short_repr(name)}, ...): write a name such as 'Busy' or 'billing.Busy'")
    if name in BUILT_IN or name in NEVER:
        raise ConfigError(f"register({name!r}, ...): that name has a meaning already; choose another one")
    as_rules(on)
    rule: object = on
    given: object = tuple(cast("list[object]", rule)) if isinstance(rule, list) else rule
    with _lock.rlock:
        known = _known.get(name, given)
        if not _same(known, given):
            raise ConfigError(
                f"register({name!r}, {short_repr(on)}): it is the name of {short_repr(known)} already; "
                "choose another name"
            )
        _known = MappingProxyType({**_known, name: given})


class ErrorNames(Value):
    """One name, or a list of names, of the exceptions and rules to retry or to count."""

    def parse(self, value: object, place: DocPath) -> object:
        if isinstance(value, str):
            return _found(value, place)
        names = place.items(value, "a name, or a list of names, such as ['transient', 'ConnectionError']")
        if not names:
            raise place.error("the list is empty, so nothing would count: write a name, such as 'transient'")
        return [_found(name, place) for name in names]

    def text(self, text: str) -> object:
        names = [name.strip() for name in text.split(",")]
        return names[0] if len(names) == 1 else names

    def write(self, value: object, place: DocPath) -> object:
        if (name := _name_of(value)) is not None:
            return name
        return list(_names(value, place))

    def schema(self) -> dict[str, object]:
        return {"$ref": "#/$defs/on"}


class ResultRuleName(Value):
    """The name of a rule for results: ``http``, or that of a registered rule."""

    def parse(self, value: object, place: DocPath) -> object:
        name = place.expect(value, str, "the name of a rule in quotes, such as 'http'")
        known = _rules_for_results()
        if name in known:
            return known[name]
        if name in _known:
            raise place.error(
                f"{name!r} judges errors, and until judges results: write 'http', or your own rule"
            )
        raise place.error(
            f"{short_repr(name)} is not known; write 'http', or name your own rule with "
            "redouble.config.register()"
        )

    def write(self, value: object, place: DocPath) -> object:
        for name, known in _rules_for_results().items():
            if _same(known, value):
                return name
        raise _unnamed(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"const": "http"}, {"type": "string"}]}


def _rules_for_results() -> dict[str, object]:
    """Return the rules that may judge results: no types, no lists, and of our own only that for HTTP."""
    return {
        name: known
        for name, known in _known.items()
        if name == "http" or not (name in BUILT_IN or isinstance(known, type | tuple))
    }


def _found(name: object, place: DocPath) -> object:
    name = place.expect(name, str, "a name in quotes, such as 'transient'")
    if name in _known:
        return _known[name]
    if name.rpartition(".")[2] in NEVER:
        raise place.error(
            f"{name!r} is never retried: cancellation, Ctrl-C and exits belong to your caller; "
            "write Exception or something narrower"
        )
    hint = nearest(name, _known)
    advice = hint if hint.startswith("did") else "write a built-in exception or 'transient',"
    raise place.error(
        f"{short_repr(name)} is not known; {advice} or name your own with redouble.config.register()"
    )


def _name_of(value: object) -> str | None:
    return next((name for name, known in _known.items() if _same(known, value)), None)


def _same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) in (tuple, StopOn, HttpRule) and one == other)


def _names(value: object, place: DocPath) -> Iterator[str]:
    if (name := _name_of(value)) is not None:
        yield name
    elif type(value) in (list, tuple) and value:
        for item in cast("tuple[object, ...]", value):
            yield from _names(item, place)
    else:
        raise _unnamed(value, place)


def _unnamed(value: object, place: DocPath) -> ConfigError:
    called = getattr(value, "__qualname__", None) or short_repr(value)
    return place.error(f"{called} has no name in documents: give it one with redouble.config.register()")
