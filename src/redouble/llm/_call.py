"""One logical call of a model: its key, its time and its allowance, from before the first attempt on.

What known clients are told of a call: its time limits, its key; and what of theirs is refused.

Known by the module of a function, and without importing any: the SDKs of OpenAI and Anthropic, httpx and
httpx2. Of anything else nothing is assumed: it can ask `redouble.llm.current`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from sys import modules
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from redouble._clients.idempotency import Idempotency
from redouble._engine.report import STAMP, Report
from redouble._internal.callables import callable_kind, close_unawaited, display_name
from redouble.errors import Reason
from redouble.llm._context import Call, CallContext, current
from redouble.llm._errors import SpendRefused
from redouble.llm._protocols.fields import usage_of
from redouble.llm._spend.account import Account, amount_to_reserve
from redouble.llm._spend.spend import Spend
from redouble.llm._spend.usage import Price, Usage

__all__ = [
    "CallFactory",
    "CallScope",
    "SdkAdapter",
    "aattempting",
    "attempting",
    "is_async",
    "opening",
    "refuse_own_retries",
    "refuse_stream",
    "whole",
]


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


class SdkAdapter:
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
    if callable_kind(fn) != "plain":
        return callable_kind(fn) == "coroutine"
    return library_of(fn) in SDKS and inspect.iscoroutinefunction(inspect.unwrap(_innermost(fn)))


def refuse_own_retries(fn: Callable[..., Any]) -> None:
    """Say no to an SDK that retries by itself: attempts would multiply, and nobody would see it."""
    if library_of(fn) in SDKS:
        client = _client_of(_innermost(fn))
        own = getattr(client, "max_retries", 0)
        if isinstance(own, int) and own > 0:
            raise TypeError(
                f"{display_name(fn)} retries by itself (max_retries={own}), so attempts would multiply: write "
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
                f"stream=True gives a stream: write model.stream({display_name(fn)}, ..., stream=True)"
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
        close_unawaited(
            cast("Any", answer).close()
        )  # of an async one that is a coroutine, which nobody awaits
    raise TypeError(
        f"{display_name(fn)} gave a stream ({kind.__name__}), and a call guards none: write "
        f"model.stream({display_name(fn)}, ...), or in a function of yours `yield` what comes"
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


P = ParamSpec("P")


class CallFactory:
    """What all calls of a model begin with."""

    def __init__(
        self,
        call: Callable[..., Call],
        keys: Idempotency,
        labels: Mapping[str, str],
        spend: tuple[Spend, object, Price | None] | None,
        usage: Callable[[Any], Usage | None] | None,
    ) -> None:
        self._call, self._keys, self._labels = call, keys, labels
        self._spend = spend
        self._usage = usage or usage_of

    def begin(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, stream: bool
    ) -> tuple[Call, Account | None]:
        """Begin a call: it has a key of its own, its time counts, and what it may take is reserved."""
        key = self._keys.key() if self._keys.auto else None  # before: it may fail
        account = self._reserved(name, args, kwargs)
        headers = {} if key is None else {self._keys.header: key}
        call = self._call(stream=stream, key=key, headers=headers)
        object.__setattr__(call, "_account", account)
        return call, account

    def _reserved(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Account | None:
        if self._spend is None:
            return None
        spend, reserve, price = self._spend
        try:
            return Account(spend, price, amount_to_reserve(reserve, args, kwargs), self._usage)
        except SpendRefused as error:
            report = Report(Reason.stopped, 0, 0.0, 0.0, name=name, labels=dict(self._labels))
            vars(error)[STAMP] = report
            raise


class CallScope:
    """One call that is not a stream, in a ``with``."""

    def __init__(self, begun: tuple[Call, Account | None]) -> None:
        call, self._account = begun
        self._being = CallContext(call)

    def __enter__(self) -> None:
        self._being.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._account is not None:
            self._account.close()
        self._being.__exit__(kind, error, tb)


def attempting(fn: Callable[P, T]) -> Callable[P, T]:
    """Return what makes one attempt at a call."""
    fitted = SdkAdapter(fn)

    def attempted(*args: Any, **kwargs: Any) -> Any:
        this = current()
        this._begins()
        return this._answered(fitted.good(fn(*args, **fitted.keywords(kwargs, this))))

    attempted.__qualname__ = display_name(fn)
    return attempted


def aattempting(fn: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return what makes one attempt at a call."""
    fitted = SdkAdapter(fn)

    async def attempted(*args: Any, **kwargs: Any) -> Any:
        this = current()
        this._begins()
        return this._answered(fitted.good(await fn(*args, **fitted.keywords(kwargs, this))))

    attempted.__qualname__ = display_name(fn)
    return attempted


def opening(fn: Callable[P, T]) -> Callable[P, T]:
    """Return what opens a stream, in either colour; whoever reads it looks at its status, and closes it."""
    fitted = SdkAdapter(fn)

    def opened(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **fitted.keywords(kwargs, current()))

    opened.__qualname__ = display_name(fn)
    return opened
