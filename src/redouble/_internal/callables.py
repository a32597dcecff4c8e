"""What can be called: of which colour it is, what it is named, and what must be refused.

Knows functions, methods, partials and callable objects; knows nothing of retrying.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, TypeAlias, TypeVar, cast

__all__ = [
    "CallableKind",
    "UsageError",
    "callable_kind",
    "close_unawaited",
    "display_name",
    "lazy_kind",
    "reject_awaitable",
    "reject_uncallable",
]


T = TypeVar("T")

CallableKind: TypeAlias = Literal["plain", "coroutine", "generator", "async generator"]

LAZY: tuple[tuple[Callable[[object], bool], CallableKind], ...] = (
    (inspect.iscoroutinefunction, "coroutine"),
    (inspect.isgeneratorfunction, "generator"),
    (inspect.isasyncgenfunction, "async generator"),
)

# What `contextlib` makes of a generator function; one code object each, whatever the function.
CONTEXT_MANAGERS = tuple(cast("Any", make)(iter).__code__ for make in (contextmanager, asynccontextmanager))


def callable_kind(fn: object) -> CallableKind:
    """Tell what calling ``fn`` gives, looking through partials and callable objects."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    # Asked of the type: an object that answers to every attribute is no coroutine function for that.
    for candidate in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004  not "is it callable"
        for test, found in LAZY:
            if test(candidate):
                return found
    return "plain"


def lazy_kind(fn: object) -> str | None:
    """Say what it is if calling it, as rules and observers are called, runs none of its body."""
    found = callable_kind(fn)
    return None if found == "plain" else f"{'an' if found[0] == 'a' else 'a'} {found} function"


def reject_uncallable(fn: object, verb: str) -> None:
    """Say no to what cannot be retried, and what to do instead."""
    inner: object = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    if inspect.iscoroutine(inner):
        inner.close()
        raise TypeError(
            f"cannot {verb} a coroutine, which can run only once: pass the function and its arguments"
        )
    if not callable(inner):
        below = ": decorate the function below it" if hasattr(inner, "__get__") else ""
        if verb == "decorate" and not below:
            below = " (if this was meant as a call, the decorator lacks its parentheses)"
        raise TypeError(f"cannot {verb} {inner!r}: it is not callable{below}")
    if isinstance(fn, type) and verb == "decorate":
        raise TypeError(
            f"cannot decorate the class {fn.__name__}: decorate a method, or a function that makes one"
        )
    if verb != "enter" and getattr(inner, "__code__", None) in CONTEXT_MANAGERS:
        raise TypeError(
            f"cannot {verb} {display_name(inner)}, which makes a context manager: calling it runs nothing yet. "
            f"Write `with policy.enter({display_name(inner)}):`, or decorate below @contextmanager"
        )


def reject_awaitable(fn: object, result: T) -> T:
    """Return the result of a plain function, unless nothing has happened yet because it must be awaited."""
    if hasattr(type(result), "__await__"):
        close_unawaited(result)
        raise TypeError(
            f"{display_name(fn)} returned something to await, so nothing in it was retried: "
            "decorate or pass a coroutine function, as in policy.call(fetch, url)"
        )
    return result


class UsageError(BaseException):
    """A mistake of whoever wrote the call: carried past the rules, and raised as a `TypeError`."""

    def error(self) -> TypeError:
        """Return what to raise."""
        return TypeError(*self.args)


def close_unawaited(thing: object) -> None:
    """Close a coroutine that nobody is going to await, so that nobody is told it never was."""
    if inspect.iscoroutine(thing):
        thing.close()


def display_name(fn: object) -> str:
    """Return a function's name for people: its own, or what it stands for."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None)
    return name if isinstance(name, str) else type(fn).__qualname__
