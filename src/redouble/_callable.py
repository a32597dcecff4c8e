"""What can be called: of which colour it is, what it is named, and what must be refused.

Knows functions, methods, partials and callable objects; knows nothing of retrying.
"""

from __future__ import annotations

import functools
import inspect
from typing import TypeVar

__all__ = ["done", "is_async", "refuse", "spelled", "would_not_run"]

T = TypeVar("T")

LAZY = (
    (inspect.iscoroutinefunction, "a coroutine function"),
    (inspect.isgeneratorfunction, "a generator function"),
    (inspect.isasyncgenfunction, "an async generator function"),
)


def is_async(fn: object) -> bool:
    """Tell whether calling ``fn`` gives a coroutine, looking through partials and callable objects."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    # Asked of the type: an object that answers to every attribute is no coroutine function for that.
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(type(fn), "__call__", None))  # noqa: B004


def would_not_run(fn: object) -> str | None:
    """Say what it is if calling it, as rules and observers are called, runs none of its body."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    for candidate in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004  not "is it callable"
        for test, what in LAZY:
            if test(candidate):
                return what
    return None


def refuse(fn: object, verb: str) -> None:
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
        raise TypeError(f"cannot {verb} {inner!r}: it is not callable{below}")
    if isinstance(fn, type) and verb == "decorate":
        raise TypeError(
            f"cannot decorate the class {fn.__name__}: decorate a method, or a function that makes one"
        )
    for candidate in (inner, getattr(type(inner), "__call__", None)):  # noqa: B004  not "is it callable"
        if inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(
                f"cannot {verb} the generator function {spelled(inner)}: calling it runs none of its body "
                "yet. Return a list, or retry the call that fetches each item"
            )


def done(fn: object, result: T) -> T:
    """Return the result of a plain function, unless nothing has happened yet because it must be awaited."""
    if hasattr(type(result), "__await__"):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            f"{spelled(fn)} returned something to await, so nothing in it was retried: "
            "decorate or pass a coroutine function, as in policy.call(fetch, url)"
        )
    return result


def spelled(fn: object) -> str:
    """Return a function's name for people: its own, or what it stands for."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None)
    return name if isinstance(name, str) else type(fn).__qualname__
