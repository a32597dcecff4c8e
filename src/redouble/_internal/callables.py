"""Classification of callables: their kind, their display name, and errors for those that are rejected.

A callable is a function, a method, a partial or an object with ``__call__``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager, suppress
from sys import modules
from types import CoroutineType, FunctionType
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, cast
from weakref import ref

P = ParamSpec("P")
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


# The types whose instances cannot be awaited, by identity, because a metaclass may define `__hash__`. The
# callback of the weak reference removes a type that no longer exists.
plain_types: dict[int, ref[type[object]]] = {}


class UsageError(TypeError):
    """A programming error of the caller, which no layer retries, replaces or counts, and no rule sees."""


def reject_awaitable(fn: object, result: T) -> T:
    """Return the result of a plain function; raise `UsageError` if it is an awaitable: it has not run yet."""
    if is_awaitable_type(type(result)):
        error = close_unawaited(result)
        raise UsageError(
            f"{display_name(fn)} returned something to await (a {type(result).__name__}), so nothing in it "
            "was retried: decorate or pass a coroutine function that awaits it, as in policy.call(fetch, url)"
        ) from error
    return result


def call_plain(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a plain function; raise `UsageError` if its result is an awaitable."""
    return reject_awaitable(fn, fn(*args, **kwargs))


def check_result_type(fn: object, result: object) -> type[object]:
    """Return the type of a result, for a wrapper to remember; raise `UsageError` if it is an awaitable.

    Each type is checked once. A wrapper must not keep a class alive that no module has, such as the class of
    one mock, which refers to the mock: for these, return ``object``.
    """
    kind = type(reject_awaitable(fn, result))
    key, known = id(kind), plain_types
    plain_types[key] = ref(kind, lambda _: known.pop(key, None))
    try:
        is_global = vars(modules[kind.__module__]).get(kind.__name__) is kind
    except Exception:  # its metaclass may do anything
        is_global = False
    return kind if is_global else object


def is_awaitable_type(kind: type[object]) -> bool:
    """Return True if ``await`` accepts an instance of a class."""
    # By the dictionaries of the classes, as the interpreter does: a metaclass may have every attribute.
    for base in kind.__mro__:
        if "__await__" in base.__dict__:
            return base.__dict__["__await__"] is not None
    return False


def close_unawaited(thing: object) -> Exception | None:
    """Close or cancel an object that will not be awaited, so that it neither runs nor causes a warning.

    Return the error of a future that has failed: nothing else reads it.
    """
    if isinstance(thing, CoroutineType):
        thing.close()
        return None
    kind: Any = type(thing)
    with suppress(Exception):
        # Any other awaitable, such as a pool of connections, may be in use elsewhere.
        is_coroutine = all(hasattr(kind, name) for name in ("send", "throw", "close"))
        if not is_coroutine and not _is_future_or_rpc(kind):
            return None
        ended: object = kind.close(thing) if is_coroutine else kind.cancel(thing)
        if isinstance(ended, CoroutineType):
            ended.close()
        elif ended is False and not kind.cancelled(thing):
            error: object = kind.exception(thing)
            close_unawaited(error)  # that of gRPC has to be awaited
            return error if isinstance(error, Exception) else None
    return None


def _is_future_or_rpc(kind: Any) -> bool:
    """Return True for futures and tasks of asyncio, which have this attribute, and for calls of gRPC."""
    return hasattr(kind, "_asyncio_future_blocking") or any(
        base.__module__.startswith("grpc.") for base in kind.__mro__
    )


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
