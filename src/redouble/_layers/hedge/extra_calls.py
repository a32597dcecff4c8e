"""What the extra attempts of a hedge call: another function, or the same one with other arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Signature, signature
from typing import Any, TypeAlias, cast

from redouble._engine.per_call import check_arguments
from redouble._internal.callables import CallableKind, callable_kind, display_name
from redouble._layers.hedge.started_stream import aopen_stream, open_stream

Operation: TypeAlias = Callable[..., Any]
Different: TypeAlias = Operation | Mapping[str, Any]
Call: TypeAlias = tuple[Operation, tuple[Any, ...], dict[str, Any]]  # a function and its arguments

WANTED = "write a function with the same arguments, a mapping of other arguments, or a list of these"
KINDS: dict[CallableKind, str] = {
    "plain": "a function that blocks",
    "coroutine": "an async function",
    "generator": "a generator function",
    "async generator": "an async generator function",
}


def as_different(different: Any, hedges: int) -> tuple[Different, ...]:
    """Validate the option ``different``; return what the first extra attempt calls, the second, and so on."""
    if different is None:
        return ()
    others: tuple[Any, ...] = (different,)
    if isinstance(different, list | tuple):
        others = tuple(cast("Sequence[Any]", different))
    if not 1 <= len(others) <= hedges:
        raise ValueError(
            f"Hedge different= has {len(others)} entries: write from 1 to hedges={hedges} of them (the last "
            "one is repeated), or more hedges"
        )
    for other in others:
        if isinstance(other, Mapping):
            names: list[object] = list(cast("Mapping[object, object]", other))
            wrong = not names or not all(isinstance(name, str) for name in names)
        else:
            wrong = not callable(other)
        if wrong:
            raise TypeError(f"Hedge different={other!r}: {WANTED}")
    return others


def describe_different(other: Different) -> str:
    """Return a few words about what an extra attempt calls; values of arguments may be private."""
    if isinstance(other, Mapping):
        names: dict[str, Any] = {**other}
        return f"with another {' and '.join(names)}"
    return f"by {display_name(other)}"


def check_different(others: tuple[Different, ...], fn: Operation, kind: CallableKind) -> None:
    """Raise TypeError if one of them cannot be called in place of ``fn``, which is of this kind."""
    for other in others:
        if isinstance(other, Mapping):
            _check_arguments({**other}, fn)
        elif callable_kind(other) not in (kind, "plain"):
            raise TypeError(
                f"Hedge different={display_name(other)} cannot replace {display_name(fn)}: write "
                f"{KINDS[kind]} with the same arguments"
            )
        else:
            check_arguments("Hedge different", other, fn)


def _check_arguments(changes: dict[str, Any], fn: Operation) -> None:
    parameters = _signature(fn).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL}
    for name in changes.keys() - names:
        raise TypeError(f"Hedge different={changes!r}: {display_name(fn)} has no parameter {name!r}")


def different_call(other: Different, call: Call) -> Call:
    """Return the call to make in place of another one."""
    fn, args, kwargs = call
    if fn is open_stream or fn is aopen_stream:  # its argument makes the stream
        make: partial[Any] = args[0]
        inner, inner_args, inner_kwargs = different_call(other, (make.func, make.args, make.keywords))
        return fn, (partial(inner, *inner_args, **inner_kwargs),), {}
    if not isinstance(other, Mapping):
        return other, args, kwargs
    changes: dict[str, Any] = {**other}
    bound = _signature(fn).bind(*args, **kwargs)
    parameters = bound.signature.parameters
    bound.arguments |= {name: changes.pop(name) for name in [*changes] if name in parameters}
    return fn, bound.args, bound.kwargs | changes


def _signature(fn: Operation) -> Signature:
    try:
        return signature(fn)
    except (TypeError, ValueError):  # some built-in functions have none
        return ANY_SIGNATURE


def _any(*args: Any, **kwargs: Any) -> None:
    """Take any arguments."""


ANY_SIGNATURE = signature(_any)
