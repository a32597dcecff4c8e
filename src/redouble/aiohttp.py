"""Retries for aiohttp: a client middleware.

    async with aiohttp.ClientSession(middlewares=[redouble.aiohttp.middleware()]) as session:
        ...

What comes out is what the session would have given: a last answer of 503 is returned, a last
`ServerDisconnectedError` is raised. `redouble.report` tells the story of either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from redouble._clients.call_record import LazyCallRecord
from redouble._clients.idempotency import Keys, as_idempotency
from redouble._internal.extras import missing_extra
from redouble._layers.layer import Layer
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import cut_after
from redouble.http._client import NOW, PolicyBinding
from redouble.http._exchange import Exchange, spelled_status

try:
    import aiohttp

    from redouble.http._aiohttp_response import LATE, RestartableContent, keep, ready_again, refill, source_of
except ModuleNotFoundError as error:
    raise missing_extra("aiohttp", error) from None

__all__ = ["Middleware", "middleware"]

Next: TypeAlias = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]

RECONNECTS = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)  # after these aiohttp asks once more


def middleware(policy: Layer | None = None, *, idempotency: Keys = None) -> Middleware:
    """Make a middleware that sends requests again, for `aiohttp.ClientSession(middlewares=[...])`.

    policy: a `Retry`, any other layer, or a pipeline; `redouble.presets.http()` unless given, with one budget
        for each host that all clients of the process share.
    idempotency: "auto" gives requests of other methods than the idempotent ones a key, one for each call and
        the same in all of its attempts, so that they may be sent again; see `redouble.http.Idempotency`.

    For one request: ``session.get(url, middlewares=[redouble.aiohttp.middleware(other)])``.
    """
    return Middleware(policy, idempotency)


class Middleware:
    """What `middleware` makes."""

    def __init__(self, policy: Layer | None = None, idempotency: Keys = None) -> None:
        self._going = PolicyBinding("aiohttp", policy, idempotency, self._attempt, aio=True)
        # aiohttp reconnects by itself, without a word, after an error of a connection that was used before,
        # and asks its middlewares again, who have given up already. By task: that is who asks.
        self._waiting = False
        self._gave_up: WeakKeyDictionary[asyncio.Task[Any], tuple[object, Exception]] = WeakKeyDictionary()
        # It makes a new request of the caller's headers when it is redirected, where the key has to go too.
        self._keys = as_idempotency(idempotency)
        self._given: WeakKeyDictionary[asyncio.Task[Any], tuple[object, str]] = WeakKeyDictionary()

    async def __call__(self, request: aiohttp.ClientRequest, handler: Next) -> aiohttp.ClientResponse:
        """Send a request, as often as the policy says."""
        if self._waiting:
            self._refuse_to_begin_again(request)
        terms, body = self._going.terms, request.body
        if not terms.quick or ambient.active or (body and not isinstance(body, aiohttp.BytesPayload)):
            if self._keys.auto:
                self._give_key(request)
            exchange = terms.exchange(request, source_of(body), request.url.raw_authority)
            exchange.how = handler
            return await self._concluded(exchange)
        started = NOW()
        try:
            response: Any = await handler(request)
        except Exception as error:
            failure: Exception | None = error
            response = None
        else:
            failure = None
            if response.status < 400:
                return self._answered(request, handler, response, started)
        exchange = terms.resumed(request, request.url.raw_authority, started)
        exchange.how = handler
        try:
            return await self._concluded(exchange, await self._failed(exchange, response, failure), response)
        finally:
            failure = None  # or this frame and its error would keep each other alive

    def _answered(self, request: Any, handler: Any, response: Any, started: float) -> aiohttp.ClientResponse:
        """Leave the story on an answer about which there was nothing to decide."""
        terms, host, now = self._going.terms, request.url.raw_authority, NOW()
        if terms.credited:
            (terms.credits.get(host) or terms.credit_for(host, host))(now)
        if response.content.is_eof() and response.content.exception() is None:
            response.__redouble__ = LazyCallRecord(terms.plan, started, now)
            return cast("aiohttp.ClientResponse", response)
        exchange = terms.resumed(request, host, started)
        exchange.how = handler
        return self._handed_out(exchange, response)

    async def _concluded(
        self, exchange: Exchange, failure: Exception | None = None, response: Any = None
    ) -> aiohttp.ClientResponse:
        exchange.closed = lambda: bool(exchange.request.session.closed)
        try:
            response = await exchange.aoutcome(LATE, failure, response)
        except RECONNECTS as error:
            self._gave_up[cast("Any", asyncio.current_task())] = (_call_of(exchange.request), error)
            self._waiting = True
            raise
        finally:
            failure = None
            if exchange.unread is not None:
                exchange.unread.close()
        if not isinstance(response, aiohttp.ClientResponse):
            raise TypeError(
                f"the policy returned {response!r}: write a layer that gives an answer of aiohttp's"
            )
        return self._handed_out(exchange, response)

    def _handed_out(self, exchange: Exchange, response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
        exchange.ended(response)
        exchange.request.response = None  # or the answer and its request would keep each other alive
        content = response.content
        if not content.is_eof() or content.exception() is not None:  # else nothing can break any more
            response.content = cast("Any", RestartableContent(exchange, response))
        return response

    def _give_key(self, request: aiohttp.ClientRequest) -> None:
        task: Any = asyncio.current_task()
        if request.method in self._going.terms.plan.methods or self._keys.header in request.headers:
            return
        call, key = self._given.get(task, (None, ""))
        if call is not _call_of(request):
            key = self._keys.key()
            self._given[task] = (_call_of(request), key)
        request.headers[self._keys.header] = key

    def _refuse_to_begin_again(self, request: aiohttp.ClientRequest) -> None:
        call, error = self._gave_up.pop(cast("Any", asyncio.current_task()), (None, None))
        self._waiting = bool(self._gave_up)
        if error is not None and call is _call_of(request):
            raise error

    async def _attempt(self, exchange: Exchange) -> aiohttp.ClientResponse:
        exchange.begins()
        if exchange.sends > 1:
            await ready_again(exchange)
        rest = exchange.left()
        if rest == inf:
            return await self._send(exchange)
        exchange.ends = exchange.now() + rest
        before = exchange.request.response
        with cut_after(exchange.hurry(rest)):
            return await self._send(exchange)
        sent = exchange.request.response is not before
        late = aiohttp.SocketTimeoutError if sent else aiohttp.ConnectionTimeoutError
        raise exchange.failed(late("the time of the attempt was up"))

    async def _send(self, exchange: Exchange) -> aiohttp.ClientResponse:
        failure = None
        try:
            response: aiohttp.ClientResponse = await exchange.how(exchange.request)
            if response.status >= 400:
                failure = await self._failed(exchange, response, None)
            if failure is not None:
                raise failure
            if exchange.plan.reads:
                refill(response, await response.read())
        except Exception as error:
            if exchange.error is not error:
                exchange.failed(error)
            raise
        finally:
            failure = None
        exchange.running = False
        return response

    async def _failed(self, exchange: Exchange, response: Any, failure: Exception | None) -> Exception | None:
        """Say what an attempt failed with, if it did."""
        if failure is not None:
            return exchange.failed(failure)
        if not exchange.fails(response.status, response.headers):
            return None
        await keep(exchange, response)
        return exchange.failed(ClientResponseError(response), response)


class ClientResponseError(aiohttp.ClientResponseError):
    """The library's own error of a bad status; its text has no URL, for it ends up in histories."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        super().__init__(
            response.request_info,
            response.history,
            status=response.status,
            message=response.reason or "",
            headers=response.headers,
        )

    def __str__(self) -> str:
        return spelled_status(self.status)


def _call_of(request: Any) -> object:
    """Return what is the same object in all that aiohttp does for one call of the session."""
    return request._timer
