"""Retries for aiohttp: a client middleware.

    async with aiohttp.ClientSession(middlewares=[redouble.aiohttp.middleware()]) as session:
        ...

The result is what the session itself would have given: a last response of 503 is returned, a last
`ServerDisconnectedError` is raised. `redouble.report` returns the report of either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from redouble._clients.call_record import LazyCallRecord
from redouble._clients.idempotency_key import Keys, as_idempotency
from redouble._internal.extras import missing_extra
from redouble._layers.layer import Layer
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import cancel_after
from redouble.http._client import NOW, PolicyBinding
from redouble.http._exchange import Exchange, status_text

try:
    import aiohttp

    from redouble.http._aiohttp_bodies import (
        TIMEOUT_TYPES,
        RestartableContent,
        classify_payload,
        prefetch,
        prepare_resend,
        set_content,
    )
except ModuleNotFoundError as error:
    raise missing_extra("aiohttp", error) from None

__all__ = ["Middleware", "middleware"]

Next: TypeAlias = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]

RECONNECTS = (
    aiohttp.ClientOSError,
    aiohttp.ServerDisconnectedError,
)  # after these aiohttp reconnects once and calls its middlewares again


def middleware(policy: Layer | None = None, *, idempotency: Keys = None) -> Middleware:
    """Make a middleware that retries requests, for `aiohttp.ClientSession(middlewares=[...])`.

    policy: a `Retry`, any other layer, or a pipeline; `redouble.presets.http()` by default, with one budget
        for each host that all clients of the process share.
    idempotency: "auto" adds a key to requests whose method is not idempotent, one for each call and the same
        in all of its attempts, so that they may be resent; see `redouble.http.Idempotency`.

    For one request: ``session.get(url, middlewares=[redouble.aiohttp.middleware(other)])``.
    """
    return Middleware(policy, idempotency)


class Middleware:
    """The middleware that `middleware` makes."""

    def __init__(self, policy: Layer | None = None, idempotency: Keys = None) -> None:
        self._binding = PolicyBinding("aiohttp", policy, idempotency, self._attempt, aio=True)
        # After an error on a reused connection aiohttp reconnects silently and calls its middlewares again,
        # although this one has given up. Keyed by task, because the same task makes both calls.
        self._any_gave_up = False
        self._gave_up: WeakKeyDictionary[asyncio.Task[Any], tuple[object, Exception]] = WeakKeyDictionary()
        # On a redirect aiohttp makes a new request from the caller's headers, which needs the same key.
        self._keys = as_idempotency(idempotency)
        self._issued_keys: WeakKeyDictionary[asyncio.Task[Any], tuple[object, str]] = WeakKeyDictionary()

    async def __call__(self, request: aiohttp.ClientRequest, handler: Next) -> aiohttp.ClientResponse:
        """Send a request as often as the policy allows."""
        if self._any_gave_up:
            self._reject_reconnect(request)
        policy, body = self._binding.current, request.body
        if not policy.fast_path or ambient.active or (body and not isinstance(body, aiohttp.BytesPayload)):
            if self._keys.auto:
                self._issue_key(request)
            exchange = policy.begin_exchange(request, classify_payload(body), request.url.raw_authority)
            exchange.how = handler
            return await self._complete(exchange)
        started = NOW()
        try:
            response: Any = await handler(request)
        except Exception as error:
            failure: Exception | None = error
            response = None
        else:
            failure = None
            if response.status < 400:
                return self._finish_fast(request, handler, response, started)
        exchange = policy.resume_exchange(request, request.url.raw_authority, started)
        exchange.how = handler
        try:
            return await self._complete(
                exchange, await self._failure_of(exchange, response, failure), response
            )
        finally:
            failure = None  # breaks the reference cycle between this frame and its error

    def _finish_fast(
        self, request: Any, handler: Any, response: Any, started: float
    ) -> aiohttp.ClientResponse:
        """Stamp a response that succeeded at once with its record."""
        policy, host, now = self._binding.current, request.url.raw_authority, NOW()
        if policy.has_budget:
            (policy.credits.get(host) or policy.credit_for(host, host))(now)
        if response.content.is_eof() and response.content.exception() is None:
            response.__redouble__ = LazyCallRecord(policy.plan, started, now)
            return cast("aiohttp.ClientResponse", response)
        exchange = policy.resume_exchange(request, host, started)
        exchange.how = handler
        return self._finish(exchange, response)

    async def _complete(
        self, exchange: Exchange, failure: Exception | None = None, response: Any = None
    ) -> aiohttp.ClientResponse:
        exchange.client_closed = lambda: bool(exchange.request.session.closed)
        try:
            response = await exchange.aoutcome(TIMEOUT_TYPES, failure, response)
        except RECONNECTS as error:
            self._gave_up[cast("Any", asyncio.current_task())] = (_call_identity(exchange.request), error)
            self._any_gave_up = True
            raise
        finally:
            failure = None
            if exchange.unread is not None:
                exchange.unread.close()
        if not isinstance(response, aiohttp.ClientResponse):
            raise TypeError(
                f"the policy returned {response!r}: write a layer that returns an aiohttp.ClientResponse"
            )
        return self._finish(exchange, response)

    def _finish(self, exchange: Exchange, response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
        exchange.finish(response)
        exchange.request.response = None  # breaks the reference cycle between response and request
        content = response.content
        if not content.is_eof() or content.exception() is not None:  # otherwise the body is complete
            response.content = cast("Any", RestartableContent(exchange, response))
        return response

    def _issue_key(self, request: aiohttp.ClientRequest) -> None:
        task: Any = asyncio.current_task()
        if request.method in self._binding.current.plan.methods or self._keys.header in request.headers:
            return
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

    async def _attempt(self, exchange: Exchange) -> aiohttp.ClientResponse:
        exchange.begin_attempt()
        if exchange.sends > 1:
            await prepare_resend(exchange)
        seconds = exchange.seconds_left()
        if seconds == inf:
            return await self._send(exchange)
        exchange.attempt_deadline = exchange.now() + seconds
        before = exchange.request.response
        with cancel_after(exchange.shorten_timeout(seconds)):
            return await self._send(exchange)
        sent = exchange.request.response is not before
        timeout_error = aiohttp.SocketTimeoutError if sent else aiohttp.ConnectionTimeoutError
        raise exchange.record_failure(timeout_error("the time of the attempt was up"))

    async def _send(self, exchange: Exchange) -> aiohttp.ClientResponse:
        failure = None
        try:
            response: aiohttp.ClientResponse = await exchange.how(exchange.request)
            if response.status >= 400:
                failure = await self._failure_of(exchange, response, None)
            if failure is not None:
                raise failure
            if exchange.plan.reads_bodies:
                set_content(response, await response.read())
        except Exception as error:
            if exchange.error is not error:
                exchange.record_failure(error)
            raise
        finally:
            failure = None
        exchange.in_flight = False
        return response

    async def _failure_of(
        self, exchange: Exchange, response: Any, failure: Exception | None
    ) -> Exception | None:
        """Return the stamped failure of an attempt, or None if it succeeded."""
        if failure is not None:
            return exchange.record_failure(failure)
        if not exchange.is_failure(response.status, response.headers):
            return None
        await prefetch(exchange, response)
        return exchange.record_failure(ClientResponseError(response), response)


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


def _call_identity(request: Any) -> object:
    """Return the object that is the same in all requests of one call of the session."""
    return request._timer
