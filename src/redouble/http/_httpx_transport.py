"""The transports of httpx and httpx2: one implementation, parametrised by `HttpxLibrary`.

Only the transport of a client is replaced. It sends a request as often as the policy allows. The policy gets
a bad status as the library's own `HTTPStatusError`; the caller gets the response. Most requests succeed at
once and need no decision: they take a fast path, and an exchange is created only when something fails.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, ClassVar

from anyio import move_on_after  # unlike asyncio's timeout, it waits for the shielded clean-up of httpcore

from redouble._clients.call_record import LazyCallRecord
from redouble._clients.idempotency_key import Keys
from redouble._clients.socket_deadline import ShortenedTimeout, limited_waits
from redouble._layers.layer import Layer
from redouble._runtime.ambient import ambient
from redouble.http._client import EXTENSION, NO_OPTIONS, NOW, ClientPolicy, PolicyBinding
from redouble.http._exchange import Exchange, status_text
from redouble.http._httpcore_sockets import limit_async_sockets, limit_sockets, reject_retries
from redouble.http._httpx_library import HttpxLibrary
from redouble.http._request_body import RESENDABLE

__all__ = ["AsyncSender", "HttpxLibrary", "Sender", "TransportState", "shorten_timeouts"]


TIMEOUT_NAMES = ("connect", "read", "write", "pool")


def shorten_timeouts(extensions: Any, seconds: float) -> Any:
    """Return request extensions with the client's timeouts shortened to ``seconds``."""
    timeouts: dict[str, float | None] = extensions.get("timeout") or {}
    return {
        **extensions,
        "timeout": {name: ShortenedTimeout(timeouts.get(name), seconds) for name in TIMEOUT_NAMES},
    }


class TransportState:
    """The non-blocking part of both transports."""

    _library: ClassVar[HttpxLibrary]
    _attempt: Callable[[Exchange], Any]

    def __init__(self, policy: Layer | None, wrapped: Any, idempotency: Keys, *, aio: bool) -> None:
        library, a = self._library.module, "Async" if aio else ""
        if wrapped is None:
            wrapped = getattr(library, f"{a}HTTPTransport")()
        if not isinstance(wrapped, getattr(library, f"{a}BaseTransport")):
            name, other = library.__name__, "" if aio else "Async"
            raise TypeError(
                f"wrapped={wrapped!r}: write an {name}.{a}HTTPTransport(); "
                f"for {other}Client use {other}Transport"
            )
        reject_retries(wrapped)
        if isinstance(wrapped, TransportState):
            raise ValueError("wrapped is a redouble transport, so attempts would multiply: leave it out")
        self._wrapped = wrapped
        self._binding = PolicyBinding(self._library.name, policy, idempotency, self._attempt, aio=aio)

    @property
    def _policy(self) -> ClientPolicy:
        return self._binding.current

    def _begin_exchange(self, request: Any) -> Exchange:
        """Create the exchange of a request before anything is sent."""
        stream, library = request.stream, self._library
        if not isinstance(request, library.module.Request):
            other = type(request).__module__.partition(".")[0]
            raise TypeError(
                f"redouble.{library.name} is under a client of {other}: use redouble.{other} there"
            )
        source = RESENDABLE if type(stream) is library.ByteStream else library.classify_stream(stream)
        options = request.extensions.get(EXTENSION, NO_OPTIONS)
        return self._policy.begin_exchange(request, source, request.url.netloc.decode("ascii"), options)

    def _status_error(self, exchange: Exchange, response: Any) -> Exception:
        """Make the library's own error for a bad status, without the URL, which would enter reports."""
        message = status_text(response.status_code)
        error = self._library.HTTPStatusError(message, request=exchange.request, response=response)
        return exchange.record_failure(error, response)

    def _finish(self, exchange: Exchange, response: Any, body_type: Any) -> Any:
        """Stamp the response with its record and make its body restartable."""
        if not isinstance(response, self._library.module.Response):
            name = self._library.name
            raise TypeError(
                f"the policy returned {response!r}: write a layer that returns an {name}.Response"
            )
        exchange.finish(response)
        if exchange.failed_finally or exchange.plan.reads_bodies:
            self._library.reset(response)
        if type(response.stream) is not self._library.ByteStream:  # otherwise the body is in memory
            body = body_type(self._policy, exchange.request, response)
            body._known_exchange = exchange
        return response

    def _finish_fast(self, request: Any, response: Any, started: float, body_type: Any) -> Any:
        """Stamp a response that succeeded at once, and make its body restartable."""
        policy, now = self._policy, NOW()
        if policy.has_budget:
            url = request.url
            key = (url.raw_host, url.port)
            (policy.credits.get(key) or policy.credit_for(key, url.netloc.decode("ascii")))(now)
        response.__redouble__ = LazyCallRecord(policy.plan, started, now)
        if type(response.stream) is not self._library.ByteStream:
            body_type(policy, request, response, started)
        return response


class Sender(TransportState):
    """The transport of a blocking client."""

    def __init__(self, policy: Layer | None, wrapped: Any, idempotency: Keys) -> None:
        super().__init__(policy, wrapped, idempotency, aio=False)
        limit_sockets(self._wrapped)

    def handle_request(self, request: Any) -> Any:
        """Send a request as often as the policy allows."""
        policy = self._policy
        in_memory = type(request.stream) is self._library.ByteStream
        if not policy.fast_path or not in_memory or EXTENSION in request.extensions or ambient.active:
            return self._complete(self._begin_exchange(request))
        started = NOW()
        try:
            response = self._wrapped.handle_request(request)
        except Exception as error:
            failure: Exception | None = error
            response = None
        else:
            failure = None
            if response.status_code < 400:
                return self._finish_fast(request, response, started, self._library.RestartableBody)
        exchange = policy.resume_exchange(request, request.url.netloc.decode("ascii"), started)
        try:
            return self._complete(exchange, self._failure_of(exchange, response, failure), response)
        finally:
            failure = None  # breaks the reference cycle between this frame and its error

    def close(self) -> None:
        """Close the wrapped transport."""
        self._policy.close()
        self._wrapped.close()

    def _failure_of(self, exchange: Exchange, response: Any, failure: Exception | None) -> Exception | None:
        """Return the stamped failure of an attempt, or None if it succeeded."""
        if failure is not None:
            return exchange.record_failure(failure)
        if not exchange.is_failure(response.status_code, response.headers):
            return None
        self._library.prefetch(exchange, response)
        return self._status_error(exchange, response)

    def _complete(self, exchange: Exchange, failure: Exception | None = None, response: Any = None) -> Any:
        try:
            response = exchange.outcome(self._library.timeout_types, failure, response)
        finally:
            failure = None
            if exchange.unread is not None:
                self._discard(exchange)
        return self._finish(exchange, response, self._library.RestartableBody)

    def _attempt(self, exchange: Exchange) -> Any:
        exchange.begin_attempt()
        if exchange.unread is not None:
            self._discard(exchange)
        seconds = exchange.seconds_left()
        if seconds == inf:
            return self._send(exchange)
        request = exchange.request
        original = request.extensions
        exchange.attempt_deadline = exchange.now() + seconds
        with limited_waits(exchange.now, seconds):
            request.extensions = shorten_timeouts(original, exchange.shorten_timeout(seconds))
            try:
                return self._send(exchange)
            finally:
                request.extensions = original

    def _send(self, exchange: Exchange) -> Any:
        response = failure = unread = None
        try:
            response = unread = self._wrapped.handle_request(exchange.request)
            if response.status_code >= 400:
                failure = self._failure_of(exchange, response, None)
            if failure is None and exchange.plan.reads_bodies:
                self._library.read_all(response)
            unread = None
            if failure is not None:
                raise failure
        except Exception as error:
            if exchange.error is not error:
                exchange.record_failure(error)
            raise
        finally:
            failure = None
            if unread is not None:  # cancelled or failed while the body was read
                self._library.discard(unread)
        exchange.in_flight = False
        return response

    def _discard(self, exchange: Exchange) -> None:
        response, exchange.unread = exchange.unread, None
        response.close()


class AsyncSender(TransportState):
    """The transport of an async client."""

    def __init__(self, policy: Layer | None, wrapped: Any, idempotency: Keys) -> None:
        super().__init__(policy, wrapped, idempotency, aio=True)
        limit_async_sockets(self._wrapped)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request as often as the policy allows."""
        policy = self._policy
        in_memory = type(request.stream) is self._library.ByteStream
        if not policy.fast_path or not in_memory or EXTENSION in request.extensions or ambient.active:
            return await self._complete(self._begin_exchange(request))
        started = NOW()
        try:
            response = await self._wrapped.handle_async_request(request)
        except Exception as error:
            failure: Exception | None = error
            response = None
        else:
            failure = None
            if response.status_code < 400:
                return self._finish_fast(request, response, started, self._library.AsyncRestartableBody)
        exchange = policy.resume_exchange(request, request.url.netloc.decode("ascii"), started)
        try:
            return await self._complete(
                exchange, await self._failure_of(exchange, response, failure), response
            )
        finally:
            failure = None  # breaks the reference cycle between this frame and its error

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        self._policy.close()
        await self._wrapped.aclose()

    async def _failure_of(
        self, exchange: Exchange, response: Any, failure: Exception | None
    ) -> Exception | None:
        """Return the stamped failure of an attempt, or None if it succeeded."""
        if failure is not None:
            return exchange.record_failure(failure)
        if not exchange.is_failure(response.status_code, response.headers):
            return None
        await self._library.aprefetch(exchange, response)
        return self._status_error(exchange, response)

    async def _complete(
        self, exchange: Exchange, failure: Exception | None = None, response: Any = None
    ) -> Any:
        try:
            response = await exchange.aoutcome(self._library.timeout_types, failure, response)
        finally:
            failure = None
            if exchange.unread is not None:
                await self._discard(exchange)
        return self._finish(exchange, response, self._library.AsyncRestartableBody)

    async def _attempt(self, exchange: Exchange) -> Any:
        exchange.begin_attempt()
        if exchange.unread is not None:
            await self._discard(exchange)
        seconds = exchange.seconds_left()
        if seconds == inf:
            return await self._send(exchange)
        request = exchange.request
        original = request.extensions
        exchange.attempt_deadline = exchange.now() + seconds
        with limited_waits(exchange.now, seconds):
            request.extensions = shorten_timeouts(original, exchange.shorten_timeout(seconds))
            try:
                with move_on_after(max(0.0, seconds - exchange.slack / 2)):
                    return await self._send(exchange)
            finally:
                request.extensions = original
        raise exchange.record_failure(self._library.module.ReadTimeout("the time of the attempt was up"))

    async def _send(self, exchange: Exchange) -> Any:
        response = failure = unread = None
        try:
            response = unread = await self._wrapped.handle_async_request(exchange.request)
            if response.status_code >= 400:
                failure = await self._failure_of(exchange, response, None)
            if failure is None and exchange.plan.reads_bodies:
                await self._library.aread_all(response)
            unread = None
            if failure is not None:
                raise failure
        except Exception as error:
            if exchange.error is not error:
                exchange.record_failure(error)
            raise
        finally:
            failure = None
            if unread is not None:  # cancelled or failed while the body was read
                await self._library.adiscard(unread)
        exchange.in_flight = False
        return response

    async def _discard(self, exchange: Exchange) -> None:
        response, exchange.unread = exchange.unread, None
        await response.aclose()
