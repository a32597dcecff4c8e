"""One logical call of a model: its idempotency key, time limits and spend, and how SDKs receive them.

`SdkAdapter` recognises the SDKs of OpenAI and Anthropic, httpx and httpx2 by the module of a function, and
imports none of them. Any other function receives nothing: it can call `redouble.llm.current`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from sys import modules
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from redouble._clients.idempotency_key import Idempotency
from redouble._engine.report import STAMP, Report
from redouble._internal.callables import callable_kind, close_unawaited, display_name
from redouble.errors import Reason
from redouble.llm._current_call import Call, CallContext, current
from redouble.llm._errors import SpendRefused
from redouble.llm._protocols.fields import usage_of
from redouble.llm._spend.account import Account, amount_to_reserve
from redouble.llm._spend.spend import Spend
from redouble.llm._spend.usage import Price, Usage

__all__ = [
    "CallFactory",
    "CallScope",
    "SdkAdapter",
    "aattempt_function",
    "attempt_function",
    "is_async",
    "open_function",
    "refuse_own_retries",
    "refuse_stream",
    "refuse_stream_result",
]

# The keyword argument for headers, by library.
HEADERS = {
    "anthropic": "extra_headers",
    "httpx": "headers",
    "httpx2": "headers",
    "openai": "extra_headers",
}
SDKS = ("anthropic", "openai")
CLIENTS = ("httpx", "httpx2")

P = ParamSpec("P")
T = TypeVar("T")


class CallFactory:
    """Creates the calls of one model: each with its key, its time limits and its reservation."""

    def __init__(
        self,
        call: Callable[..., Call],
        keys: Idempotency,
        labels: Mapping[str, str],
        spend: tuple[Spend, object, Price | None] | None,
        usage: Callable[[Any], Usage | None] | None,
    ) -> None:
        self._make_call, self._idempotency, self._labels = call, keys, labels
        self._spend = spend
        self._usage = usage or usage_of

    def begin(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, stream: bool
    ) -> tuple[Call, Account | None]:
        """Create a call: issue its key, reserve its spend and start its time."""
        key = self._idempotency.key() if self._idempotency.auto else None  # before reserving: it may fail
        account = self._reserve(name, args, kwargs)
        headers = {} if key is None else {self._idempotency.header: key}
        call = self._make_call(stream=stream, key=key, headers=headers)
        object.__setattr__(call, "_account", account)
        return call, account

    def _reserve(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Account | None:
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
    """Context manager of one call that is not a stream: sets the current call, and settles its spend."""

    def __init__(self, started: tuple[Call, Account | None]) -> None:
        call, self._account = started
        self._context = CallContext(call)

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._account is not None:
            self._account.close()
        self._context.__exit__(kind, error, tb)


def attempt_function(fn: Callable[P, T]) -> Callable[P, T]:
    """Return a function that makes one attempt at a call."""
    adapter = SdkAdapter(fn)

    def attempt(*args: Any, **kwargs: Any) -> Any:
        this_call = current()
        this_call._start_attempt()
        answer = fn(*args, **adapter.add_call_options(kwargs, this_call))
        return this_call._record_answer(adapter.raise_for_status(answer))

    attempt.__qualname__ = display_name(fn)
    return attempt


def aattempt_function(fn: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a function that makes one attempt at a call."""
    adapter = SdkAdapter(fn)

    async def attempt(*args: Any, **kwargs: Any) -> Any:
        this_call = current()
        this_call._start_attempt()
        answer = await fn(*args, **adapter.add_call_options(kwargs, this_call))
        return this_call._record_answer(adapter.raise_for_status(answer))

    attempt.__qualname__ = display_name(fn)
    return attempt


def open_function(fn: Callable[P, T]) -> Callable[P, T]:
    """Return a function that opens a stream, in either colour; the guarded stream checks its status."""
    adapter = SdkAdapter(fn)

    def open_stream(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **adapter.add_call_options(kwargs, current()))

    open_stream.__qualname__ = display_name(fn)
    return open_stream


# ------------------------------------------------------------------------------ known SDKs


class SdkAdapter:
    """The library of one function, and the keyword arguments that it accepts."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._library = library_of(fn)
        self._bound_keywords: dict[str, Any] = {}  # by functools.partial
        self._parameters: frozenset[str] = frozenset()
        if self._library is not None:
            while isinstance(fn, functools.partial):
                self._bound_keywords = fn.keywords | self._bound_keywords
                fn = fn.func
            self._parameters = _parameters_of(fn)

    def add_call_options(self, kwargs: dict[str, Any], call: Call) -> dict[str, Any]:
        """Return the keyword arguments with the timeout and headers of the call; those of the caller win."""
        if self._library is None:
            return kwargs
        given, added = self._bound_keywords | kwargs, dict[str, Any]()
        if "timeout" in self._parameters and "timeout" not in given:
            added["timeout"] = modules[self._library].Timeout(**call.timeout)
        option = HEADERS[self._library]
        if call.headers and option in self._parameters:
            headers = dict(given.get(option) or {})
            names = {name.lower() for name in headers}
            added[option] = {k: v for k, v in call.headers.items() if k.lower() not in names} | headers
        return kwargs | added

    def raise_for_status(self, answer: Any) -> Any:
        """Return an answer; if it is a response of httpx with an error status, raise its error."""
        if self._library in CLIENTS and getattr(answer, "is_error", False) is True:
            answer.raise_for_status()
        return answer


def is_async(fn: Callable[..., Any]) -> bool:
    """Return True if the result must be awaited: the SDKs wrap their coroutine functions in plain ones."""
    if callable_kind(fn) != "plain":
        return callable_kind(fn) == "coroutine"
    return library_of(fn) in SDKS and inspect.iscoroutinefunction(inspect.unwrap(_unwrap_partial(fn)))


def refuse_own_retries(fn: Callable[..., Any]) -> None:
    """Raise if an SDK client retries on its own: attempts would multiply without being visible."""
    if library_of(fn) in SDKS:
        client = _client_of(_unwrap_partial(fn))
        own = getattr(client, "max_retries", 0)
        if isinstance(own, int) and own > 0:
            raise TypeError(
                f"{display_name(fn)} retries by itself (max_retries={own}), so attempts would multiply: "
                f"write {type(client).__name__}(max_retries=0), or client.with_options(max_retries=0)"
            )


def refuse_stream(fn: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Raise if the arguments of a known client request a stream: a call would neither guard nor close it."""
    if library_of(fn) is not None:
        given = kwargs
        while isinstance(fn, functools.partial):
            given, fn = fn.keywords | given, fn.func
        if given.get("stream") is True:
            raise TypeError(
                f"stream=True returns a stream: write model.stream({display_name(fn)}, ..., stream=True)"
            )


def refuse_stream_result(fn: Callable[..., Any], answer: T) -> T:
    """Return the result of a call; if it is a stream, or opens one, close it and raise."""
    kind = type(answer)
    lazy = hasattr(kind, "__enter__") or hasattr(kind, "__aenter__")
    if (
        not hasattr(kind, "__next__")
        and not hasattr(kind, "__anext__")
        and not (lazy and kind.__module__.partition(".")[0] in SDKS)
    ):
        return answer
    with suppress(Exception):
        # close() of an async stream returns a coroutine, which cannot be awaited here.
        close_unawaited(cast("Any", answer).close())
    raise TypeError(
        f"{display_name(fn)} returned a stream ({kind.__name__}), which call() does not guard: "
        f"write model.stream({display_name(fn)}, ...), or `yield` the chunks in a function of your own"
    )


def _client_of(fn: Any) -> Any:
    """Return the client of a method of an SDK, which may be wrapped, as by ``with_raw_response``."""
    while fn is not None:
        owner = getattr(fn, "__self__", None)  # the client itself has methods too, such as ``post``
        client = owner if hasattr(owner, "max_retries") else getattr(owner, "_client", None)
        if client is not None:
            return client
        fn = getattr(fn, "__wrapped__", None)
    return None


def library_of(fn: Callable[..., Any]) -> str | None:
    """Return the known library that a function belongs to, or None."""
    module = getattr(_unwrap_partial(fn), "__module__", None)
    root = module.partition(".")[0] if isinstance(module, str) else ""
    return root if root in HEADERS and root in modules else None


def _unwrap_partial(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _parameters_of(fn: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return frozenset()  # a builtin without a signature
