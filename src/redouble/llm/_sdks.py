"""`ModelFunction`: the caller's function that calls a model, and the library that it belongs to.

It recognises the SDKs of OpenAI and Anthropic, httpx and httpx2 by the module of the function, and imports
none of them. These receive the timeout and the key of the call as arguments, unless the caller gives others.
Any other function receives nothing: it can call `redouble.llm.current`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from sys import modules
from typing import Any, TypeVar, cast

from redouble._internal.callables import close_unawaited, display_name
from redouble.llm._call import current
from redouble.llm._stream_adapters import has

# The keyword argument for headers, by library.
HEADERS = {"anthropic": "extra_headers", "openai": "extra_headers", "httpx": "headers", "httpx2": "headers"}
SDKS = ("anthropic", "openai")
CLIENTS = ("httpx", "httpx2")

T = TypeVar("T")


class ModelFunction:
    """One function of the caller's, looked at through `functools.partial`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.name = display_name(fn)
        self._bound: dict[str, Any] = {}
        while isinstance(fn, functools.partial):
            self._bound = fn.keywords | self._bound
            fn = fn.func
        self._unwrapped = fn
        module = getattr(fn, "__module__", None)
        root = module.partition(".")[0] if isinstance(module, str) else ""
        self._library = root if root in HEADERS and root in modules else None
        self.has_async_client = False
        if self._library in SDKS:
            client = _client_of(fn)
            self._refuse_own_retries(client)
            self.has_async_client = inspect.iscoroutinefunction(getattr(client, "close", None))

    def is_async(self) -> bool:
        """Return True if it is a coroutine function of an SDK: they wrap these in plain functions."""
        return self._library in SDKS and inspect.iscoroutinefunction(inspect.unwrap(self._unwrapped))

    def begin_attempt(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Begin an attempt at the current call; return the keyword arguments, with the call's options."""
        call = current()
        if call._account is not None:
            call._account.start_attempt()
        if self._library is None:
            return kwargs
        given, added = self._bound | kwargs, dict[str, Any]()
        if self._library in SDKS and "model" in self._parameters and "model" not in given:
            added["model"] = call.model
        if "timeout" in self._parameters and "timeout" not in given:
            added["timeout"] = modules[self._library].Timeout(**call.timeout)
        option = HEADERS[self._library]
        if call.headers and option in self._parameters:
            headers = dict(given.get(option) or {})
            names = {name.lower() for name in headers}
            added[option] = {k: v for k, v in call.headers.items() if k.lower() not in names} | headers
        return kwargs | added

    def end_attempt(self, answer: T) -> T:
        """Record the usage of an answer and return it; raise the error of a response with an error status."""
        if self._library in CLIENTS and getattr(answer, "is_error", False) is True:
            cast("Any", answer).raise_for_status()
        call = current()
        usage = call._meter.read(answer)
        if call._account is not None:
            call._account.record_answer(usage)
        return answer

    @functools.cached_property
    def _parameters(self) -> frozenset[str]:
        try:
            return frozenset(inspect.signature(self._unwrapped).parameters)
        except (TypeError, ValueError):
            return frozenset()  # a builtin without a signature

    # --------------------------------------------------------------------------- mistakes

    def _refuse_own_retries(self, client: object) -> None:
        """Raise if an SDK client retries on its own: attempts would multiply without being visible."""
        own = getattr(client, "max_retries", 0)
        if isinstance(own, int) and own > 0:
            raise TypeError(
                f"{self.name} retries by itself (max_retries={own}), so attempts would multiply: "
                f"write {type(client).__name__}(max_retries=0), or client.with_options(max_retries=0)"
            )

    def refuse_stream(self, kwargs: dict[str, Any]) -> None:
        """Raise if the arguments of a known client request a stream: a call would not guard or close it."""
        if self._library is not None and (self._bound | kwargs).get("stream") is True:
            name = display_name(self._unwrapped)
            raise TypeError(f"stream=True returns a stream: write model.stream({name}, ..., stream=True)")

    def refuse_stream_result(self, answer: T) -> T:
        """Return the result of a call; if it is a stream, or opens one, close it and raise."""
        kind = type(answer)
        opens_stream = kind.__module__.partition(".")[0] in SDKS and has(answer, "__enter__", "__aenter__")
        if not opens_stream and not has(answer, "__next__", "__anext__"):
            return answer
        with suppress(Exception):
            # close() of an async stream returns a coroutine, which cannot be awaited here.
            close_unawaited(cast("Any", answer).close())
        raise TypeError(
            f"{self.name} returned a stream ({kind.__name__}), which call() does not guard: "
            f"write model.stream({self.name}, ...), or `yield` the chunks in a function of your own"
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
