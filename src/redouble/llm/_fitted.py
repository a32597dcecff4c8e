"""What known clients are told of a call: its time limits, its key; and what of theirs is refused.

Known by the module of a function, and without importing any: the SDKs of OpenAI and Anthropic, httpx and
httpx2. Of anything else nothing is assumed: it can ask `redouble.llm.current`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from sys import modules
from typing import Any, TypeVar, cast

from redouble._internal.callables import colour, drop, spelled
from redouble.llm._context import Call

__all__ = ["Fitted", "is_async", "refuse_own_retries", "refuse_stream", "whole"]

# What headers are called there.
HEADERS = {
    "anthropic": "extra_headers",
    "httpx": "headers",
    "httpx2": "headers",
    "openai": "extra_headers",
}
SDKS = ("anthropic", "openai")
CLIENTS = ("httpx", "httpx2")

T = TypeVar("T")


class Fitted:
    """What is known of a function that is to be called."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._library = library_of(fn)
        self._said: dict[str, Any] = {}  # by its caller already
        self._takes: frozenset[str] = frozenset()
        if self._library is not None:
            while isinstance(fn, functools.partial):
                self._said = fn.keywords | self._said
                fn = fn.func
            self._takes = _takes(fn)

    def keywords(self, kwargs: dict[str, Any], call: Call) -> dict[str, Any]:
        """Return the keywords with what a known client is told; what the caller has said stays as it is."""
        if self._library is None:
            return kwargs
        said, told = self._said | kwargs, dict[str, Any]()
        if "timeout" in self._takes and "timeout" not in said:
            told["timeout"] = modules[self._library].Timeout(**call.timeout)
        name = HEADERS[self._library]
        if call.headers and name in self._takes:
            own = dict(said.get(name) or {})
            known = {header.lower() for header in own}
            told[name] = {k: v for k, v in call.headers.items() if k.lower() not in known} | own
        return kwargs | told

    def good(self, answer: Any) -> Any:
        """Return an answer, unless it is one of httpx's that tells of a failure: that is raised."""
        if self._library in CLIENTS and getattr(answer, "is_error", False) is True:
            answer.raise_for_status()
        return answer


def is_async(fn: Callable[..., Any]) -> bool:
    """Say whether its result is to be awaited; what the SDKs call async is wrapped in plain functions."""
    if colour(fn) != "plain":
        return colour(fn) == "coroutine"
    return library_of(fn) in SDKS and inspect.iscoroutinefunction(inspect.unwrap(_innermost(fn)))


def refuse_own_retries(fn: Callable[..., Any]) -> None:
    """Say no to an SDK that retries by itself: attempts would multiply, and nobody would see it."""
    if library_of(fn) in SDKS:
        client = _client_of(_innermost(fn))
        own = getattr(client, "max_retries", 0)
        if isinstance(own, int) and own > 0:
            raise TypeError(
                f"{spelled(fn)} retries by itself (max_retries={own}), so attempts would multiply: write "
                f"{type(client).__name__}(max_retries=0), or client.with_options(max_retries=0)"
            )


def refuse_stream(fn: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Say no to a call of a known client that gives a stream: nobody would guard it, or close it."""
    if library_of(fn) is not None:
        said = kwargs
        while isinstance(fn, functools.partial):
            said, fn = fn.keywords | said, fn.func
        if said.get("stream") is True:
            raise TypeError(
                f"stream=True gives a stream: write model.stream({spelled(fn)}, ..., stream=True)"
            )


def whole(fn: Callable[..., Any], answer: T) -> T:
    """Return what a call gave, unless that is a stream, or will be one: nobody would guard it."""
    kind = type(answer)
    lazy = hasattr(kind, "__enter__") or hasattr(kind, "__aenter__")
    if (
        not hasattr(kind, "__next__")
        and not hasattr(kind, "__anext__")
        and not (lazy and kind.__module__.partition(".")[0] in SDKS)
    ):
        return answer
    with suppress(Exception):
        drop(cast("Any", answer).close())  # of an async one that is a coroutine, which nobody awaits
    raise TypeError(
        f"{spelled(fn)} gave a stream ({kind.__name__}), and a call guards none: write "
        f"model.stream({spelled(fn)}, ...), or in a function of yours `yield` what comes"
    )


def _client_of(fn: Any) -> Any:
    """Find the client behind a method of an SDK, which may be wrapped, as by ``with_raw_response``."""
    while fn is not None:
        owner = getattr(fn, "__self__", None)  # the client itself has methods too, such as ``post``
        client = owner if hasattr(owner, "max_retries") else getattr(owner, "_client", None)
        if client is not None:
            return client
        fn = getattr(fn, "__wrapped__", None)
    return None


def library_of(fn: Callable[..., Any]) -> str | None:
    """Tell which known library a function is of, if it is of one."""
    module = getattr(_innermost(fn), "__module__", None)
    root = module.partition(".")[0] if isinstance(module, str) else ""
    return root if root in HEADERS and root in modules else None


def _innermost(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _takes(fn: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return frozenset()  # it does not tell
