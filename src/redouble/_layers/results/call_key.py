"""The key of a call: calls of one function with equal keys are the same call.

The key is what a function of the user's returns, or else the arguments, as the parameters of the function
hold them: ``fetch(1)`` and ``fetch(number=1)`` are the same call. Keys may be private: no name, label, log or
error contains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any

from redouble._internal.callables import UsageError, display_name, lazy_kind
from redouble._internal.codegen import Template, is_own

KEY = "redouble_key_of({arguments})"  # stands in a template where the key is computed
ARGUMENTS = "redouble_key_of(({positional}), {keyword_dict})"
KEYWORDS = object()  # so that a key with keyword arguments equals none without


def key_templates(title: str, source: str) -> dict[bool, Template]:
    """Return the template of a wrapper that computes a key; True: by a function of the user's."""
    own = Template(title, source)
    return {True: own, False: own.derive(title, (KEY, ARGUMENTS))}


def key_of_arguments(positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a call as a key."""
    return (KEYWORDS, positional, *sorted(keywords.items())) if keywords else positional


def check_key(key: object, option: str) -> None:
    """Validate the option ``key``; None stands for the arguments."""
    if key is None:
        return
    if not callable(key):
        raise TypeError(f"{option}={key!r}: write a function of the arguments, such as lambda user: user.id")
    if (kind := lazy_kind(key)) is not None:
        raise TypeError(f"{option}={display_name(key)} is {kind}: write a plain function")


def unhashable(layer: str, key: object, fn: object, error: TypeError) -> UsageError:
    """Return the error for a call whose key is not hashable; it does not show the key."""
    if key is not None:
        return UsageError(f"{layer} key={display_name(key)} returned no hashable key: {error}")
    return UsageError(
        f"{layer} cannot compare the arguments of {display_name(fn)}: {error}; write key=, a function of the "
        "arguments that returns something hashable"
    )


class Same:
    """An object compared by identity: a callable of the user's need not be hashable."""

    __slots__ = ("_thing",)

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._thing is self._thing

    def __hash__(self) -> int:
        return id(self._thing)


def function_of(fn: Any) -> FunctionType | MethodType | Same:
    """Return the function inside our layers, to compare functions by: ``call`` wraps it again every time."""
    while isinstance(fn, FunctionType) and "__wrapped__" in fn.__dict__ and is_own(fn.__code__):
        fn = fn.__dict__["__wrapped__"]
    return fn if isinstance(fn, FunctionType | MethodType) else Same(fn)
