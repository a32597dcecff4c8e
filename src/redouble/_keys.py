"""What `Keyed` is given: whether the key can be told from a call, and whether the maker wants to know it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from redouble._internal.callables import spelled

__all__ = ["check_hashable", "check_key", "wants_key"]

KEYWORD = inspect.Parameter.KEYWORD_ONLY
SINGLE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, KEYWORD)


def check_key(key: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Say so if the key cannot be told from the arguments of a function: it is given all of them."""
    try:
        takes, parameters = inspect.signature(key), inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some built-ins do not tell
        return
    if any(p.kind not in SINGLE for p in parameters):  # who knows what it is called with
        return
    positional = [p.name for p in parameters if p.kind is not KEYWORD]
    named = {p.name: p for p in parameters if p.kind is KEYWORD}
    try:
        takes.bind(*positional, **named)
    except TypeError:
        wanted = ", ".join([*positional, *(["*", *named] if named else [])])
        said = f"Keyed key={spelled(key)} does not take what {spelled(fn)} does"
        raise TypeError(f"{said}: write a function of ({wanted})") from None


def check_hashable(found: object, key: Callable[..., Any]) -> None:
    """Say so if what was told cannot be a key; not what it is, for keys go nowhere."""
    try:
        hash(found)
    except TypeError:
        given = f"Keyed key={spelled(key)} gave a {type(found).__name__}"
        raise TypeError(f"{given}: keys must be hashable") from None


def wants_key(make: Callable[..., object]) -> bool:
    """Say whether it needs an argument."""
    try:
        inspect.signature(make).bind()
    except TypeError:
        return True
    except ValueError:  # some built-ins do not tell
        return False
    return False
