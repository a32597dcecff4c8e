"""Options of a gate that are functions of the arguments of a call, such as its class or its cost.

A gate has at most one `PerCall`, which evaluates all of them. It is called before the call is admitted, and
what it raises comes out: nothing has been admitted yet. The result is `Admission.per_call`; a ``with`` block
has no arguments, so there it is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from redouble._internal.callables import display_name, lazy_kind
from redouble._internal.validation import signature_mismatch


class PerCall:
    """Functions of the arguments of a call.

    functions: by option, for messages, such as ``"Bulkhead priority"``.
    evaluate: called with the arguments of a call; returns what the gate needs to know about it.
    inlined: what a compiled wrapper calls instead, if its template does the rest of ``evaluate``.
    """

    __slots__ = ("evaluate", "functions", "inlined")

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        evaluate: Callable[..., Any],
        inlined: Callable[..., Any] | None = None,
    ) -> None:
        self.functions, self.evaluate, self.inlined = functions, evaluate, inlined or evaluate

    def check(self, fn: Callable[..., Any]) -> None:
        """Raise TypeError if one of the functions does not accept the arguments of ``fn``."""
        for option, function in self.functions.items():
            check_arguments(option, function, fn)

    def of_request(self) -> PerCall:
        """Return the same for a client, where the argument of these functions is the request."""
        for option, function in self.functions.items():
            check_request(option, function)
        return PerCall({}, partial(_evaluate_request, self.evaluate))


def _evaluate_request(evaluate: Callable[..., Any], client_call: Any) -> Any:
    return evaluate(client_call.request)


def argument_function(value: object, option: str, example: str) -> Callable[..., Any]:
    """Validate an option that is a function of the arguments of a call."""
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"{option}={value!r}: write {example}")
    if (kind := lazy_kind(value)) is not None:
        raise TypeError(f"{option}={display_name(value)} is {kind}: write a plain function")
    return value


def check_arguments(option: str, function: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Raise TypeError if a function cannot be called with all arguments of ``fn``."""
    wanted = missing_parameters(function, fn)
    if wanted is not None:
        text = f"{option}={display_name(function)} does not accept the arguments of {display_name(fn)}"
        raise TypeError(f"{text}: write a function of ({wanted})")


def check_request(option: str, function: Callable[..., Any]) -> None:
    """Raise TypeError if a function cannot be called with a request, the argument of a client's calls."""
    if signature_mismatch(function, 1) is not None:
        raise TypeError(f"{option}={display_name(function)} of a client: write a function of the request")


def missing_parameters(function: Callable[..., Any], fn: Callable[..., Any], *before: str) -> str | None:
    """Return the parameters that a function needs, or None if it accepts the arguments of ``fn``.

    before: names of the arguments that the function receives in front of those.
    """
    import inspect  # noqa: PLC0415  takes long to import, and few gates need it

    keyword_only = inspect.Parameter.KEYWORD_ONLY
    try:
        signature, parameters = inspect.signature(function), inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):  # they may be anything
        return None
    positional = [*before, *(p.name for p in parameters if p.kind is not keyword_only)]
    named = {p.name: p for p in parameters if p.kind is keyword_only}
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return ", ".join([*positional, *(["*", *named] if named else [])])
    return None
