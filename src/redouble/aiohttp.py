"""Retries for aiohttp: a client middleware.

    async with aiohttp.ClientSession(middlewares=[redouble.aiohttp.middleware()]) as session:
        ...

The result is what the session itself would have given: a last response of 503 is returned, a last
`ServerDisconnectedError` is raised. `redouble.report` returns the report of either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from inspect import isfunction
from math import inf
from operator import attrgetter
from typing import Any, cast
from weakref import WeakKeyDictionary

from redouble._clients.client_call import PreviousHop
from redouble._clients.idempotency_key import Keys
from redouble._internal.extras import missing_extra
from redouble._layers.layer import Layer
from redouble._runtime.backend import cancel_after
from redouble.http._exchange import Exchange, SuccessRecord, origin, status_text
from redouble.http._request_body import Rewind
from redouble.http._sender import AsyncSender

try:
    import aiohttp

    from redouble.http._aiohttp_bodies import (
        RestartableContent,
        classify_payload,
        has_arrived,
        prepare_resend,
        set_content,
    )
except ModuleNotFoundError as error:
    raise missing_extra("aiohttp", error) from None

__all__ = ["Middleware", "middleware"]

# After these aiohttp reconnects once and calls its middlewares again.
RECONNECTS = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


def middleware(policy: Layer | None = None, *, idempotency: Keys = None) -> Middleware:
    """Make a middleware that retries requests, for `aiohttp.ClientSession(middlewares=[...])`.

    policy: a `Retry`, any other layer, or a pipeline; `redouble.presets.http()` by default, with one budget
        for each host that all clients of the process share.
    idempotency: "auto" adds a key to requests whose method is not idempotent, one for each call and the same
        in all of its attempts, so that they may be resent; see `redouble.http.Idempotency`.

    For one request: ``session.get(url, middlewares=[redouble.aiohttp.middleware(other)])``.
    """
    return Middleware(policy, idempotency)


class Middleware(AsyncSender):
    """The middleware that `middleware` makes."""

    _base_error, _timeout_error = aiohttp.ClientError, aiohttp.ServerTimeoutError
    _timeout_errors = ()  # they are all `TimeoutError`s
    _response_type, _response_name = aiohttp.ClientResponse, "an aiohttp.ClientResponse"
    _status_of = attrgetter("status")

    def __init__(self, policy: Layer | None = None, idempotency: Keys = None) -> None:
        super().__init__("aiohttp", policy, idempotency)
        # After an error on a reused connection aiohttp reconnects silently and calls its middlewares again,
        # although this one has given up. Keyed by task, because the same task makes both calls.
        self._any_gave_up = self._any_redirected = False
        # The redirects whose next request is still to come, by task.
        self._redirects: WeakKeyDictionary[asyncio.Task[Any], tuple[object, PreviousHop]] = (
            WeakKeyDictionary()
        )
        self._gave_up: WeakKeyDictionary[asyncio.Task[Any], tuple[object, Exception]] = WeakKeyDictionary()

    __call__ = AsyncSender._send

    def _is_simple(self, request: aiohttp.ClientRequest) -> bool:
        body = request.body
        return not (self._any_gave_up or self._any_redirected) and (
            not body or isinstance(body, aiohttp.BytesPayload)
        )

    def _host_of(self, request: aiohttp.ClientRequest) -> str:
        url = request.url
        return origin(url.scheme, url.raw_host or "", url.port)

    def _host_key(self, request: aiohttp.ClientRequest) -> tuple[str, str]:
        url = request.url
        return url.scheme, url.raw_authority

    def _put_redirect(self, request: aiohttp.ClientRequest, previous: PreviousHop) -> None:
        self._redirects[cast("Any", asyncio.current_task())] = (_call_identity(request), previous)
        self._any_redirected = True

    def _take_redirect(self, request: aiohttp.ClientRequest) -> PreviousHop | None:
        call, previous = self._redirects.pop(cast("Any", asyncio.current_task()), (None, None))
        self._any_redirected = bool(self._redirects)
        return previous if call is _call_identity(request) else None

    def _client_limit(self, request: Any, deliver: Any) -> float:
        """Return the total timeout of the session's call; 0 if it is over, which aiohttp tells in a timer."""
        if getattr(request._timer, "_cancelled", False):
            return 0.0
        return total_timeout(deliver) or inf

    def _body_of(self, request: Any) -> Rewind:
        if self._any_gave_up:
            self._reject_reconnect(request)
        return classify_payload(request.body)

    def _is_closed(self, request: Any) -> bool:
        return bool(request.session.closed)

    @contextmanager
    def _limited(self, exchange: Exchange, seconds: float) -> Generator[None]:
        before = exchange.request.response
        with cancel_after(exchange.shorten_timeout(seconds)):
            yield
            return
        sent = exchange.request.response is not before
        timeout_error = aiohttp.SocketTimeoutError if sent else aiohttp.ConnectionTimeoutError
        raise exchange.record_failure(timeout_error("the time of the attempt was up"))

    async def _prepare_resend(self, exchange: Exchange) -> None:
        await super()._prepare_resend(exchange)
        await prepare_resend(exchange.request)

    def _is_read(self, response: aiohttp.ClientResponse) -> bool:
        return response._body is not None

    async def _read_result(self, exchange: Exchange, response: aiohttp.ClientResponse) -> None:
        if exchange.plan.reads_bodies:
            set_content(response, await response.read())

    def _body_length(self, response: aiohttp.ClientResponse) -> float:
        length = response.content_length
        return inf if length is None else length

    def _chunks_of(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        return response.content.iter_any()

    async def _release(self, response: aiohttp.ClientResponse) -> None:
        response.release()

    def _replace_body(
        self, exchange: Exchange, response: Any, received: list[bytes], rest: Any, error: Exception | None
    ) -> None:
        del exchange, rest  # a body that is not read as a whole is not replaced
        set_content(response, b"" if error else b"".join(received), error)

    def _status_error(self, exchange: Exchange, response: aiohttp.ClientResponse) -> Exception:  # noqa: ARG002
        return ClientResponseError(response)

    def _is_in_memory(self, response: aiohttp.ClientResponse) -> bool:
        return self._is_read(response) or has_arrived(response.content)

    def _attach_body(self, call: Exchange | SuccessRecord, response: Any) -> bool:
        call.request.response = None  # breaks the reference cycle between response and request
        if self._is_in_memory(response):
            return False
        response.content = RestartableContent(call, response)
        return True

    async def _discard(self, response: aiohttp.ClientResponse) -> None:
        response.close()

    async def _complete(self, exchange: Exchange) -> Any:
        try:
            return await super()._complete(exchange)
        except RECONNECTS as error:
            self._gave_up[cast("Any", asyncio.current_task())] = (_call_identity(exchange.request), error)
            self._any_gave_up = True
            raise

    def _issue_key(self, request: aiohttp.ClientRequest) -> None:
        # By task and call: on a redirect aiohttp makes a new request from the caller's headers, which needs
        # the same key.
        if self._keys.header in request.headers:
            return
        task: Any = asyncio.current_task()
        call, key = self._issued_keys.get(task, (None, ""))
        if call is not _call_identity(request):
            key = self._keys.key()
            self._issued_keys[task] = (_call_identity(request), key)
        request.headers[self._keys.header] = key

    def _reject_reconnect(self, request: aiohttp.ClientRequest) -> None:
        call, error = self._gave_up.pop(cast("Any", asyncio.current_task()), (None, None))
        self._any_gave_up = bool(self._gave_up)
        if error is not None and call is _call_identity(request):
            raise error


class ClientResponseError(aiohttp.ClientResponseError):
    """The library's own error for a bad status; its text has no URL, because it enters reports."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        super().__init__(
            response.request_info,
            response.history,
            status=response.status,
            message=response.reason or "",
            headers=response.headers,
        )

    def __str__(self) -> str:
        return status_text(self.status)


def total_timeout(sends: Any) -> float | None:
    """Return the total timeout of a call of a session, read from the function that sends its requests.

    aiohttp passes it to middlewares in no other way. The function may be inside those of other middlewares.
    """
    pending = [sends]
    for function in pending:  # which grows
        for cell in getattr(function, "__closure__", None) or ():
            found = cell.cell_contents
            if isinstance(found, aiohttp.ClientTimeout):
                return found.total
            if isfunction(found):
                pending.append(found)
    return None


def _call_identity(request: Any) -> object:
    """Return the object that is the same in all requests of one call of the session."""
    return request._timer
