"""How every HTTP client sends under its policy: the fast path, one attempt, and a body that restarts a call.

`Sender` is for blocking clients and `AsyncSender` for async ones; a test compares the two. The library of a
client supplies the abstract methods.

Most requests succeed at once and need no decision: they take a fast path, and an exchange is created only
when something fails. The policy gets a bad status as the library's own error; the caller gets the response.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, suppress
from math import inf
from operator import attrgetter
from typing import Any, ClassVar

from redouble._clients.client_call import SuccessRecord
from redouble._clients.idempotency_key import Keys
from redouble._engine.report import STAMP
from redouble._layers.layer import Layer
from redouble._runtime.ambient import ambient
from redouble._telemetry.emit import continuing_call
from redouble.http._client import NOW, ClientPolicy, bind_policy
from redouble.http._exchange import Exchange, TimeoutTypes

__all__ = ["PREFETCH_LIMIT", "AsyncSender", "FirstSuccess", "Sender", "SenderState", "content_length"]


PREFETCH_LIMIT = 65_536  # bytes of a failed response that are read, to free its connection during the backoff


class FirstSuccess(SuccessRecord):
    """The stamp of a response that a first attempt got without an exchange: one is made if its body fails."""

    __slots__ = ("how", "policy", "request", "sender")

    def __init__(
        self, sender: SenderState, policy: ClientPolicy, request: Any, how: Any, started: float, ended: float
    ) -> None:
        self.sender, self.policy, self.request, self.how = sender, policy, request, how
        self.plan, self.started, self.ended = policy.plan, started, ended

    def exchange(self) -> Exchange:
        """Create the exchange of the request."""
        return self.sender._resume_exchange(self.policy, self.request, self.how, self.started)


class SenderState(ABC):
    """The non-blocking part of both senders, and the seams that do not wait."""

    _aio: ClassVar[bool]
    _timeout_types: TimeoutTypes
    _response_type: type[Any]
    _response_name: str  # with its article, for messages
    _attempt: Callable[[Exchange], Any]
    _status_of: Any = attrgetter("status_code")

    def __init__(self, name: str, policy: Layer | None, idempotency: Keys) -> None:
        self._binding = bind_policy(name, policy, idempotency, self._attempt, aio=self._aio)

    @abstractmethod
    def _is_simple(self, request: Any) -> bool:
        """Return True if a request has no options, and a body that can be resent as it is."""

    @abstractmethod
    def _host_of(self, request: Any) -> str:
        """Return the host and port of a request, as in its URL."""

    @abstractmethod
    def _begin_exchange(self, policy: ClientPolicy, request: Any, how: Any) -> Exchange:
        """Create the exchange of a request before anything is sent."""

    def _resume_exchange(self, policy: ClientPolicy, request: Any, how: Any, started: float) -> Exchange:
        """Create the exchange of a request whose first attempt was made without one."""
        return policy.resume_exchange(request, self._host_of(request), how, started)

    def _credit(self, policy: ClientPolicy, request: Any, now: float) -> None:
        """Credit a success to the budget of the request's host."""
        host = self._host_of(request)
        (policy.credits.get(host) or policy.credit_for(host, host))(now)

    @abstractmethod
    def _limited(self, exchange: Exchange, seconds: float) -> AbstractContextManager[object]:
        """Return the time limit of an attempt."""

    def _body_length(self, response: Any) -> float:
        """Return how long the body of a response is announced to be; 0 if that is unknown."""
        return content_length(response.headers)

    def _prefetch_limit(self, exchange: Exchange) -> float:  # noqa: ARG002  not all of them need it
        """Return how many bytes of a failed response are read."""
        return PREFETCH_LIMIT

    @abstractmethod
    def _replace_body(
        self, exchange: Exchange, response: Any, received: list[bytes], rest: Any, error: Exception | None
    ) -> None:
        """Replace a body by what was read of it, followed by the error or the rest."""

    @abstractmethod
    def _status_error(self, exchange: Exchange, response: Any) -> Exception:
        """Make the library's own error for a bad status, without the URL, which would enter reports."""

    @abstractmethod
    def _attach_body(self, call: Exchange | FirstSuccess, response: Any) -> None:
        """Make the body of a response restart the call if it fails before any part of it is delivered."""

    def _fits(self, response: Any, replacement: Any) -> bool:
        """Return True if a new response can continue one whose head was returned and whose body failed."""
        return bool(self._status_of(replacement) == self._status_of(response))

    def _raised(self, exchange: Exchange, error: Exception) -> None:  # noqa: B027  most clients need nothing
        """Handle the error that a call raises."""

    def _finish(self, exchange: Exchange, response: Any) -> Any:
        """Stamp the returned response; make its body restartable if an attempt of this call got it."""
        if not isinstance(response, self._response_type):
            raise TypeError(
                f"the policy returned {response!r}: write a layer that returns {self._response_name}"
            )
        if exchange.finish(response):
            self._attach_body(exchange, response)
        return response

    def _finish_at_once(
        self, policy: ClientPolicy, request: Any, how: Any, response: Any, started: float
    ) -> Any:
        """Finish a call whose first attempt, made without an exchange, has succeeded."""
        now = NOW()
        if policy.has_budget:
            self._credit(policy, request, now)
        response.__redouble__ = record = FirstSuccess(self, policy, request, how, started, now)
        self._attach_body(record, response)
        return response

    def _continues(self, exchange: Exchange, response: Any, replacement: Any) -> bool:
        """Return True if a new response continues one whose body failed, and share its stamp then."""
        if exchange.failed_finally or not (response is None or self._fits(response, replacement)):
            return False
        if response is not None:  # else the caller has dropped it and reads its body
            vars(response)[STAMP] = vars(replacement)[STAMP]
        return True


class Sender(SenderState):
    """Sends the requests of a blocking client."""

    _aio = False

    @abstractmethod
    def _deliver(self, request: Any, how: Any) -> Any:
        """Send a request once; ``how`` has further arguments of the library's own function."""

    @abstractmethod
    def _chunks_of(self, response: Any) -> Iterator[bytes]:
        """Return an iterator over the body of a failed response."""

    @abstractmethod
    def _release(self, response: Any) -> None:
        """Return the connection of a failed response, whose body was read, to its pool."""

    @abstractmethod
    def _read_result(self, exchange: Exchange, response: Any) -> None:
        """Read the body of a result, if the caller or a rule needs it as a whole."""

    def _discard(self, response: Any) -> None:
        """Close a response that is not returned."""
        response.close()

    def _prepare_resend(self, exchange: Exchange) -> None:
        """Prepare a request to be sent again."""
        self._close_unread(exchange)

    def _send(self, request: Any, how: Any = None, /) -> Any:
        """Send a request as often as the policy allows."""
        policy = self._binding.value or self._binding.current
        if not policy.fast_path or ambient.active or not self._is_simple(request):
            return self._complete(self._begin_exchange(policy, request, how))
        started = NOW()
        try:
            response = self._deliver(request, how)
        except Exception as error:
            exchange = self._resume_exchange(policy, request, how, started)
            exchange.record_failure(error)
            response = None
        else:
            if self._status_of(response) < 400:
                return self._finish_at_once(policy, request, how, response, started)
            exchange = self._resume_exchange(policy, request, how, started)
            with suppress(Exception):  # recorded in the exchange
                self._settle(exchange, response)
        return self._complete(exchange, response)

    def _complete(self, exchange: Exchange, response: Any = None) -> Any:
        """Return the final response, continuing from the result of a first attempt if there was one."""
        try:
            if exchange.error is not None:
                response = exchange.begin_again()
            elif response is None:
                response = exchange.call(exchange)
        except Exception as error:
            response = exchange.final_response(error, self._timeout_types)
            if response is None:
                self._raised(exchange, error)
                raise
        finally:
            self._close_unread(exchange)
        return self._finish(exchange, response)

    def _attempt(self, exchange: Exchange) -> Any:
        exchange.begin_attempt()
        if exchange.sends > 1:
            self._prepare_resend(exchange)
        seconds = exchange.seconds_left()
        if seconds == inf:
            return self._deliver_recorded(exchange)
        exchange.attempt_deadline = exchange.now() + seconds
        with self._limited(exchange, seconds):
            return self._deliver_recorded(exchange)

    def _deliver_recorded(self, exchange: Exchange) -> Any:
        try:
            response = self._deliver(exchange.request, exchange.how)
        except Exception as error:
            exchange.record_failure(error)
            raise
        self._settle(exchange, response)
        return response

    def _settle(self, exchange: Exchange, response: Any) -> None:
        """Record a response; raise if it is a failure, or if its body fails where it is needed now."""
        unread = response
        try:
            failed = exchange.plan.fails(self._status_of(response), response.headers)
            if failed:
                self._prefetch(exchange, response)
            else:
                self._read_result(exchange, response)
            unread = None
        except Exception as error:
            exchange.record_failure(error)
            raise
        finally:
            if unread is not None:  # cancelled or failed while the body was read
                self._discard(unread)
        if failed:
            raise exchange.record_failure(self._status_error(exchange, response), response)
        exchange.record_success(response)

    def _prefetch(self, exchange: Exchange, response: Any) -> None:
        """Read the body of a failed response if it is small, to free its connection during the backoff."""
        limit = self._prefetch_limit(exchange)
        if self._body_length(response) > limit:
            exchange.unread = response
            return
        received: list[bytes] = []
        size, failure = 0, None
        chunks = self._chunks_of(response)
        try:
            for chunk in chunks:
                received.append(chunk)
                size += len(chunk)
                if size > limit:
                    exchange.unread = response
                    break
        except Exception as error:  # raised when the caller reads the body; the status decides
            failure = error
        if exchange.unread is None:
            self._release(response)
        self._replace_body(exchange, response, received, chunks, failure)

    def _restart(self, exchange: Exchange, error: Exception, response: Any) -> Any:
        """Continue a call after a body failed before any part of it was delivered; return the new response.

        The head was returned already, so that only a response that fits it may continue a failed one.
        """
        exchange.record_failure(error)
        try:
            with continuing_call():
                replacement = exchange.begin_again()
        except Exception as failed:
            replacement = exchange.final_response(failed, self._timeout_types)
            if replacement is None:
                raise
        finally:
            self._close_unread(exchange)
        own = exchange.finish(replacement)
        if own and self._continues(exchange, response, replacement):
            return replacement
        if own:
            self._discard(replacement)
        raise exchange.mismatch(error)

    def _close_unread(self, exchange: Exchange) -> None:
        response, exchange.unread = exchange.unread, None
        if response is not None:
            self._discard(response)


class AsyncSender(SenderState):
    """Sends the requests of an async client."""

    _aio = True

    @abstractmethod
    def _deliver(self, request: Any, how: Any) -> Awaitable[Any]:
        """Send a request once; ``how`` has further arguments of the library's own function."""

    @abstractmethod
    def _chunks_of(self, response: Any) -> AsyncIterator[bytes]:
        """Return an iterator over the body of a failed response."""

    @abstractmethod
    async def _release(self, response: Any) -> None:
        """Return the connection of a failed response, whose body was read, to its pool."""

    @abstractmethod
    async def _read_result(self, exchange: Exchange, response: Any) -> None:
        """Read the body of a result, if the caller or a rule needs it as a whole."""

    @abstractmethod
    async def _discard(self, response: Any) -> None:
        """Close a response that is not returned."""

    async def _prepare_resend(self, exchange: Exchange) -> None:
        """Prepare a request to be sent again."""
        await self._close_unread(exchange)

    async def _send(self, request: Any, how: Any = None, /) -> Any:
        """Send a request as often as the policy allows."""
        policy = self._binding.value or self._binding.current
        if not policy.fast_path or ambient.active or not self._is_simple(request):
            return await self._complete(self._begin_exchange(policy, request, how))
        started = NOW()
        try:
            response = await self._deliver(request, how)
        except Exception as error:
            exchange = self._resume_exchange(policy, request, how, started)
            exchange.record_failure(error)
            response = None
        else:
            if self._status_of(response) < 400:
                return self._finish_at_once(policy, request, how, response, started)
            exchange = self._resume_exchange(policy, request, how, started)
            with suppress(Exception):  # recorded in the exchange
                await self._settle(exchange, response)
        return await self._complete(exchange, response)

    async def _complete(self, exchange: Exchange, response: Any = None) -> Any:
        """Return the final response, continuing from the result of a first attempt if there was one."""
        try:
            if exchange.error is not None:
                response = await exchange.begin_again()
            elif response is None:
                response = await exchange.call(exchange)
        except Exception as error:
            response = exchange.final_response(error, self._timeout_types)
            if response is None:
                self._raised(exchange, error)
                raise
        finally:
            await self._close_unread(exchange)
        return self._finish(exchange, response)

    async def _attempt(self, exchange: Exchange) -> Any:
        exchange.begin_attempt()
        if exchange.sends > 1:
            await self._prepare_resend(exchange)
        seconds = exchange.seconds_left()
        if seconds == inf:
            return await self._deliver_recorded(exchange)
        exchange.attempt_deadline = exchange.now() + seconds
        with self._limited(exchange, seconds):
            return await self._deliver_recorded(exchange)

    async def _deliver_recorded(self, exchange: Exchange) -> Any:
        try:
            response = await self._deliver(exchange.request, exchange.how)
        except Exception as error:
            exchange.record_failure(error)
            raise
        await self._settle(exchange, response)
        return response

    async def _settle(self, exchange: Exchange, response: Any) -> None:
        """Record a response; raise if it is a failure, or if its body fails where it is needed now."""
        unread = response
        try:
            failed = exchange.plan.fails(self._status_of(response), response.headers)
            if failed:
                await self._prefetch(exchange, response)
            else:
                await self._read_result(exchange, response)
            unread = None
        except Exception as error:
            exchange.record_failure(error)
            raise
        finally:
            if unread is not None:  # cancelled or failed while the body was read
                await self._discard(unread)
        if failed:
            raise exchange.record_failure(self._status_error(exchange, response), response)
        exchange.record_success(response)

    async def _prefetch(self, exchange: Exchange, response: Any) -> None:
        """Read the body of a failed response if it is small, to free its connection during the backoff."""
        limit = self._prefetch_limit(exchange)
        if self._body_length(response) > limit:
            exchange.unread = response
            return
        received: list[bytes] = []
        size, failure = 0, None
        chunks = self._chunks_of(response)
        try:
            async for chunk in chunks:
                received.append(chunk)
                size += len(chunk)
                if size > limit:
                    exchange.unread = response
                    break
        except Exception as error:  # raised when the caller reads the body; the status decides
            failure = error
        if exchange.unread is None:
            await self._release(response)
        self._replace_body(exchange, response, received, chunks, failure)

    async def _restart(self, exchange: Exchange, error: Exception, response: Any) -> Any:
        """Continue a call after a body failed before any part of it was delivered; return the new response.

        The head was returned already, so that only a response that fits it may continue a failed one.
        """
        exchange.record_failure(error)
        try:
            with continuing_call():
                replacement = await exchange.begin_again()
        except Exception as failed:
            replacement = exchange.final_response(failed, self._timeout_types)
            if replacement is None:
                raise
        finally:
            await self._close_unread(exchange)
        own = exchange.finish(replacement)
        if own and self._continues(exchange, response, replacement):
            return replacement
        if own:
            await self._discard(replacement)
        raise exchange.mismatch(error)

    async def _close_unread(self, exchange: Exchange) -> None:
        response, exchange.unread = exchange.unread, None
        if response is not None:
            await self._discard(response)


def content_length(headers: Any) -> int:
    """Return the Content-Length header as a number, or 0."""
    length: str = headers.get("content-length", "")
    return int(length) if length.isdecimal() and len(length) < 20 else 0
