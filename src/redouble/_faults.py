"""Exceptions made on purpose: a new one each time, for one that was raised gathers tracebacks and notes."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, TypeAlias, cast

from redouble._internal.callables import spelled

__all__ = ["Fault", "maker"]

Fault: TypeAlias = "Exception | type[Exception] | Callable[[], Exception]"

WHY = "injected by Chaos"


def maker(fault: Any) -> Callable[[], Exception]:
    """Return what makes a new exception each time: a raised one gathers tracebacks and notes."""
    if isinstance(fault, type):
        if not issubclass(cast("type[object]", fault), Exception):
            raise TypeError(f"Chaos fault={fault.__name__}: write an exception type, and no other")
        return partial(fault, WHY) if _makes(partial(fault, WHY)) else _tried(fault, fault)
    if isinstance(fault, Exception):
        return _tried(partial(_copied, fault), fault)
    if not callable(fault) or isinstance(fault, BaseException):
        raise TypeError(f"Chaos fault={fault!r}: write an exception, its type, or a function that makes one")
    return cast("Callable[[], Exception]", fault)


def _copied(error: Exception) -> Exception:
    made = copy(error)
    if hasattr(made, "__notes__"):
        made.__notes__ = list(made.__notes__)  # which copies would share
    return made


def _tried(make: Callable[[], Any], fault: object) -> Callable[[], Exception]:
    if not _makes(make):
        name = spelled(fault)
        raise TypeError(f"Chaos fault={name} cannot be made just so: write a function, lambda: {name}(...)")
    return make


def _makes(make: Callable[[], Any]) -> bool:
    try:
        return isinstance(make(), Exception)
    except Exception:
        return False
