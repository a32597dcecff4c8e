"""Classification of callables: their kind, their display name, and errors for those that are rejected.

A callable is a function, a method, a partial or an object with ``__call__``.
"""

from __future__ import annotations

import functools
from contextlib import asynccontextmanager, contextmanager
from types import CoroutineType, FunctionType
from typing import Any, Literal, TypeAlias, TypeVar, cast

T = TypeVar("T")

CallableKind: TypeAlias = Literal["plain", "coroutine", "generator", "async generator"]

# By the flag in the code of a function whose call does not run its body: CO_COROUTINE and so on of `inspect`.
KINDS: dict[int, CallableKind] = {0: "plain", 0x80: "coroutine", 0x20: "generator", 0x200: "async generator"}
LAZY_FLAGS = sum(KINDS)

# The code objects of functions decorated by `contextlib`: the decorated functions all share one of these two.
CONTEXT_MANAGERS = tuple(cast("Any", make)(iter).__code__ for make in (contextmanager, asynccontextmanager))


def callable_kind(fn: object) -> CallableKind:
    """Return the kind of ``fn``, looking through partials and at the ``__call__`` of objects."""
    if type(fn) is FunctionType and not fn.__dict__:
        return KINDS[fn.__code__.co_flags & LAZY_FLAGS]  # the usual case
    while isinstance(fn, functools.partial):
        fn = fn.func
    # `__call__` is looked up on the type, because an instance of `Mock` has every attribute.
    called: object = getattr(type(fn), "__call__", None)  # noqa: B004  not "is it callable"
    kind = _function_kind(fn)
    return _function_kind(called) if kind == "plain" else kind


def _function_kind(fn: object) -> CallableKind:
    """Return the kind of a function, a method or an object like these; "plain" for any other."""
    if type(fn) is FunctionType and not fn.__dict__:
        return KINDS[fn.__code__.co_flags & LAZY_FLAGS]
    # An attribute may mark a callable as a coroutine function.
    if not any(hasattr(fn, name) for name in ("__code__", "__func__", "_is_coroutine_mark")):
        return "plain"
    import inspect  # noqa: PLC0415  takes long to import, and few callables need it

    if inspect.iscoroutinefunction(fn):
        return "coroutine"
    if inspect.isgeneratorfunction(fn):
        return "generator"
    return "async generator" if inspect.isasyncgenfunction(fn) else "plain"


def lazy_kind(fn: object) -> str | None:
    """Return the kind with its article if a call of ``fn`` does not run its body; None for a plain function.

    Rules and observers must be plain functions.
    """
    kind = callable_kind(fn)
    return None if kind == "plain" else f"{'an' if kind[0] == 'a' else 'a'} {kind} function"


def reject_uncallable(fn: object, verb: str) -> None:
    """Raise a TypeError, which contains the fix, if ``fn`` cannot be called repeatedly."""
    inner: object = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    if isinstance(inner, CoroutineType):
        inner.close()
        raise TypeError(
            f"cannot {verb} a coroutine, which can run only once: pass the function and its arguments"
        )
    if not callable(inner):
        advice = ": decorate the function below it" if hasattr(inner, "__get__") else ""
        if verb == "decorate" and not advice:
            advice = " (if this was meant as a call, the decorator lacks its parentheses)"
        raise TypeError(f"cannot {verb} {inner!r}: it is not callable{advice}")
    if isinstance(fn, type) and verb == "decorate":
        raise TypeError(
            f"cannot decorate the class {fn.__name__}: decorate a method, or a function that makes one"
        )
    if verb != "enter" and getattr(inner, "__code__", None) in CONTEXT_MANAGERS:
        raise TypeError(
            f"cannot {verb} {display_name(inner)}, which makes a context manager: "
            "calling it runs nothing yet. "
            f"Write `with policy.enter({display_name(inner)}):`, or decorate below @contextmanager"
        )


def reject_awaitable(fn: object, result: T) -> T:
    """Return the result of a plain function; raise TypeError if it is an awaitable, which has not run yet."""
    if hasattr(type(result), "__await__"):
        close_unawaited(result)
        raise TypeError(
            f"{display_name(fn)} returned something to await, so nothing in it was retried: "
            "decorate or pass a coroutine function, as in policy.call(fetch, url)"
        )
    return result


class UsageError(BaseException):
    """A programming error of the caller. Rules do not see it, and it leaves the library as a `TypeError`."""

    def error(self) -> TypeError:
        """Return the TypeError to raise."""
        return TypeError(*self.args)


def close_unawaited(thing: object) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it."""
    if isinstance(thing, CoroutineType):
        thing.close()


def display_name(fn: object) -> str:
    """Return the name of a function for messages: its qualified name, or that of the object's type."""
    fn = without_partials(fn)
    name = getattr(fn, "__qualname__", None)
    return name if isinstance(name, str) else type(fn).__qualname__


def without_partials(fn: Any) -> Any:
    """Return the function of a partial, however deeply nested; everything else is returned as it is."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
