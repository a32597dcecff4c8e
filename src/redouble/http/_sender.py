"""How every HTTP client sends under its policy: the fast path, one attempt, and a body that restarts a call.

`Sender` is for blocking clients and `AsyncSender` for async ones; a test compares the two. The library of a
client supplies the seams of `SenderState`.

Most requests succeed at once and need no decision: they take a fast path, and an exchange is created only
when something fails. The policy gets a bad status as the library's own error; the caller gets the response.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from math import inf
from operator import attrgetter
from types import FrameType
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

from redouble._clients.client_call import PreviousHop
from redouble._clients.idempotency_key import Keys, as_idempotency
from redouble._clients.policy_binding import PolicyBinding
from redouble._drivers.calls import CallWithoutRun
from redouble._engine.report import STAMP
from redouble._layers.layer import Layer
from redouble._layers.retry.retry import Retry
from redouble._runtime.ambient import CREDITED_CALL, ambient
from redouble._runtime.call_stack import EnclosingCall, holds_call, limits, variables_of
from redouble._runtime.clock import SYSTEM, fast_reader
from redouble._runtime.deadline import is_limited
from redouble._telemetry.emit import ContinuingCall
from redouble.http._exchange import NOW, Exchange, IssuedKey, SuccessRecord
from redouble.http._plan import HttpPlan, http_plan
from redouble.http._request_body import Rewind, nothing_to_rewind
from redouble.http._request_options import NO_OPTIONS, RequestOptions

REDIRECTS = (301, 302, 303, 307, 308)
BODILESS = (204, 304)
PREFETCH_LIMIT = 65_536  # bytes of a failed response that are read, to free its connection during the backoff
# Makes a `SuccessRecord` without a Python frame.
new_record: Callable[[type[SuccessRecord], tuple[Any, ...]], SuccessRecord] = cast("Any", tuple).__new__


class SenderState:
    """The non-blocking part of both senders, and the seams that a library fills."""

    _aio: bool
    _base_error: type[Exception] = Exception  # the base class of the library's errors
    _timeout_error: type[Exception]  # of the library
    # The errors of the library that a time limit may cause, besides `TimeoutError`.
    _timeout_errors: tuple[type[Exception], ...]
    _response_type: type[Any]
    _response_name: str  # with its article, for messages
    _attempt: Callable[[Exchange], Any]
    _status_of: Any = attrgetter("status_code")

    # The seams of a library. Those that wait return awaitables in an async client.
    _is_simple: Callable[[Any], bool]  # True if a request has no options, and a body to be resent as it is
    _body_of: Callable[[Any], Rewind]  # returns how the body of a request can be resent, if at all
    _host_of: Callable[[Any], str]  # returns the origin of a request
    _host_key: Any  # returns what identifies the origin of a request at the least cost
    _limited: Callable[[Exchange, float], AbstractContextManager[object]]  # returns the limit of an attempt
    # Makes the library's own error for a bad status, without the URL, which would enter reports.
    _status_error: Callable[[Exchange, Any], Exception]
    # Replaces a body by what was read of it, followed by the rest or the error.
    _replace_body: Callable[[Exchange, Any, list[bytes], Any, Exception | None], None]
    # Makes the body of a response restart the call if it fails before any part of it is delivered, and record
    # its end; returns False if the body is in memory.
    _attach_body: Callable[[Exchange | SuccessRecord, Any], bool]
    _deliver: Callable[[Any], Any]  # sends a request once, if the library passes no such function with it
    _chunks_of: Callable[[Any], Any]  # returns an iterator over the body of a failed response
    _release: Callable[[Any], Any]  # returns the connection of a failed response that was read to its pool
    _read_result: Callable[[Exchange, Any], Any]  # reads a result that the caller or a rule needs as a whole
    # True if a response was read already, below or inside the policy: its connection may be another's by now.
    _is_read: Callable[[Any], bool]
    _discard: Callable[[Any], Any]  # closes a response that is not returned

    def __init__(self, name: str, policy: Layer | None, idempotency: Keys) -> None:
        self._module = f"redouble.{name}"
        self._keys = as_idempotency(idempotency)
        # These survive the reload of a policy that was given by name.
        self._issued_keys: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._closed = False
        self._now = fast_reader(SYSTEM, aio=self._aio)

        def plan_of(policy: Layer | None) -> HttpPlan:
            return http_plan(policy, name, self._attempt, aio=self._aio)

        self._binding = PolicyBinding(policy, plan_of, self._module)

    def _options_of(self, request: Any) -> RequestOptions:  # noqa: ARG002  most libraries have no place for them
        """Return the options of one request."""
        return NO_OPTIONS

    def _is_closed(self, request: Any) -> bool:  # noqa: ARG002  not all of them need it
        """Return True if no attempt may begin any more."""
        return self._closed

    def _keep_redirect(self, call: Exchange | SuccessRecord, run: Any, response: Any) -> None:
        """Keep what the next request needs to continue this call, if the response is a redirect."""
        if self._status_of(response) in REDIRECTS and "location" in response.headers:
            now = call.now if isinstance(call, Exchange) else NOW
            hop = PreviousHop(call.plan, now, call.started, run, ref(call.request), ref(response))
            self._put_redirect(call.request, hop)

    def _put_redirect(self, request: Any, previous: PreviousHop) -> None:
        """Keep a redirect where `_take_redirect` finds it for the next request of the client's call."""

    def _take_redirect(self, request: Any) -> PreviousHop | None:  # noqa: ARG002  not all of them need it
        """Return the redirect that led to this request, if any."""
        return None

    def _client_limit(self, request: Any, deliver: Any) -> float:  # noqa: ARG002  most clients have none
        """Return the client's own limit of the whole call, in seconds."""
        return inf

    def _begin_exchange(self, plan: HttpPlan, request: Any, deliver: Any) -> Exchange:
        """Create the exchange of a request, and add an idempotency key if it needs one."""
        body, options, keys = self._body_of(request), self._options_of(request), self._keys
        plan = plan.variant(options.policy, {})
        if options.key is not None:
            request.headers[keys.header] = options.key
        exchange = Exchange(self, plan, request, body, deliver)
        if (previous := self._take_redirect(request)) is not None:
            exchange.follow(previous)
        plan = plan.resolved(exchange).variant(None, options.options)
        if plan is not exchange.plan:
            exchange.use(plan)
        exchange.idempotent = options.idempotent
        if keys.auto and options.key is None and request.method not in plan.methods:
            exchange.key = self._issue_key(request)
        return exchange

    def _resume_exchange(self, plan: HttpPlan, request: Any, deliver: Any, started: float) -> Exchange:
        """Create the exchange of a request whose first attempt started at ``started`` (read from `NOW`)."""
        elapsed = NOW() - started  # first: the exchange must not begin before the call
        exchange = Exchange(self, plan, request, nothing_to_rewind, deliver)
        exchange.started -= elapsed
        exchange.client_deadline -= elapsed
        exchange.sends, exchange.resend_allowed = 1, False
        return exchange

    def _issue_key(self, request: Any) -> IssuedKey | None:
        """Add a key unless the caller set one; a key of the client is replaced once its call has ended."""
        header, key = self._keys.header, self._issued_keys.get(request)
        if header not in request.headers or (key and key.spent and request.headers[header] == key.text):
            key = self._issued_keys[request] = IssuedKey(self._keys.key())
            request.headers[header] = key.text
        return key

    def _body_length(self, response: Any) -> float:
        """Return how long the body of a response is announced to be; 0 if that is unknown."""
        length: str = response.headers.get("content-length", "")
        return int(length) if length.isdecimal() and len(length) < 20 else 0

    def _prefetch_limit(self, exchange: Exchange) -> float:  # noqa: ARG002  not all of them need it
        """Return how many bytes of a failed response are read."""
        return PREFETCH_LIMIT

    def _is_empty(self, exchange: Exchange, response: Any) -> bool:
        """Return True if the head of a response tells that it has no body, so that its end is the end."""
        return bool(
            exchange.request.method == "HEAD"
            or self._status_of(response) in BODILESS
            or response.headers.get("content-length") == "0"
        )

    def _is_in_memory(self, response: Any) -> bool:  # noqa: ARG002  most libraries read some bodies later
        """Return True if the body of a response is there: nothing of it has to be read."""
        return True

    def _fits(self, response: Any, replacement: Any) -> bool:
        """Return True if a new response can continue one whose head was returned and whose body failed."""
        return bool(self._status_of(replacement) == self._status_of(response))

    def _finish(self, exchange: Exchange, response: Any) -> Any:
        """Stamp the returned response; make its body restartable if an attempt of this call got it."""
        if not isinstance(response, self._response_type):
            exchange.body_ended(None)
            raise TypeError(
                f"the policy returned {response!r}: write a layer that returns {self._response_name}"
            )
        if not (exchange.finish(response) and self._attach_body(exchange, response)):
            exchange.body_ended(None)
        return response

    def _finish_at_once(
        self, plan: HttpPlan, request: Any, deliver: Any, response: Any, started: float
    ) -> Any:
        """Finish a call whose first attempt, made without an exchange, has succeeded."""
        credit, now = None, NOW()
        if plan.budget is not None and not (
            CREDITED_CALL.get() and plan.leaves_credit(self._host_of(request))
        ):
            key = self._host_key(request)
            credit = plan.credits.get(key) or plan.credit_for(key, self._host_of(request))
        record = new_record(SuccessRecord, (self, plan, request, deliver, started, now, credit, None))
        response.__redouble__ = record
        if not self._attach_body(record, response) and credit is not None:
            credit(now)
        return response

    def _continues(self, exchange: Exchange, response: Any, replacement: Any) -> bool:
        """Return True if a new response continues one whose body failed, and share its stamp then."""
        if exchange.failed_finally or not (response is None or self._fits(response, replacement)):
            return False
        if response is not None:  # else the caller has dropped it and reads its body
            vars(response)[STAMP] = vars(replacement)[STAMP]
        return True


class FastCall(CallWithoutRun):
    """A call in its first attempt on the fast path, as the code inside finds it."""

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until the limit of the policy, which the client applies itself."""
        return inf if soft else super().left()


def _read_call(frame: FrameType) -> EnclosingCall | None:
    """Return the call of a frame of `Sender._send` or of its twin, while it makes the first attempt."""
    variables = variables_of(frame)
    if "started" not in variables or "exchange" in variables:
        return None  # the policy makes the attempt
    plan: HttpPlan = variables["plan"]
    return FastCall(cast("Retry", plan.outermost), plan.name, variables["started"], aio=False)


holds_call("_send", _read_call.__code__.co_filename, _read_call)


class Sender(SenderState):
    """Sends the requests of a blocking client."""

    _aio = False

    def _discard(self, response: Any) -> None:
        response.close()

    def _send(self, request: Any, deliver: Any = None, /) -> Any:
        """Send a request as often as the policy allows; ``deliver`` sends it once."""
        plan = self._binding.value or self._binding.current
        deliver = deliver or self._deliver
        limited = ambient.active or (limits.exist and is_limited())
        if limited or not plan.fast_path or self._keys.auto or not self._is_simple(request):
            return self._complete(self._begin_exchange(plan, request, deliver))
        started = NOW()
        try:
            response = deliver(request)
        except Exception as error:
            exchange = self._resume_exchange(plan, request, deliver, started)
            exchange.record_error(error)
        else:
            if (status := self._status_of(response)) < 400:
                response = self._finish_at_once(plan, request, deliver, response, started)
                if status >= 300:
                    self._keep_redirect(response.__redouble__, None, response)
                return response
            exchange = self._resume_exchange(plan, request, deliver, started)
            with suppress(Exception):  # recorded in the exchange
                self._settle(exchange, response)
        return self._complete(exchange)

    def _complete(self, exchange: Exchange) -> Any:
        """Finish a call with its final response."""
        return self._finish(exchange, self._conclude(exchange))

    def _conclude(self, exchange: Exchange) -> Any:
        """Return the final response, continuing after an attempt that was made outside of the policy."""
        try:
            if exchange.error is not None:
                return exchange.hand_over(exchange.begin_again())
            return exchange.hand_over(exchange.answer if exchange.sends else exchange.call(exchange))
        except Exception as error:
            response = exchange.final_response(error)
            if response is not None:
                return response
            if exchange.is_of_library(error):
                raise
            raise exchange.library_copy(error) from error.__cause__
        finally:
            self._close_unread(exchange)

    def _attempt(self, exchange: Exchange) -> Any:
        exchange.begin_attempt()
        if exchange.sends > 1:
            self._prepare_resend(exchange)
        seconds = exchange.seconds_left()
        if seconds == inf:
            return self._deliver_and_settle(exchange)
        if seconds <= 0:
            raise exchange.refuse_to_send()
        exchange.attempt_deadline = exchange.now() + seconds
        try:
            with self._limited(exchange, seconds):
                return self._deliver_and_settle(exchange)
        except Exception as error:
            if exchange.is_out_of_time(error):
                raise exchange.timeout_error() from error
            raise

    def _deliver_and_settle(self, exchange: Exchange) -> Any:
        """Send the request once, and record how that ended."""
        try:
            response = exchange.deliver(exchange.request)
        except Exception as error:
            exchange.record_failure(error)
            raise
        self._settle(exchange, response)
        return response

    def _settle(self, exchange: Exchange, response: Any) -> None:
        """Record a response; raise if it is a failure, or if its body fails where it is needed now."""
        unread = response
        try:
            status = self._status_of(response)
            failed = exchange.plan.fails(status, response.headers)
            judged = not failed and status >= 400 and exchange.plan.judges_statuses
            if (failed or judged) and not self._is_read(response):
                self._prefetch(exchange, response)
            if judged:
                failed = exchange.is_retried(self._status_error(exchange, response))
            if not (failed or self._is_read(response)):
                self._read_result(exchange, response)
            unread = None
        except Exception as error:
            exchange.record_failure(error)
            raise
        finally:
            if unread is not None:  # cancelled or failed while the body was read
                self._discard(unread)
        if failed:
            raise exchange.record_failure(exchange.error or self._status_error(exchange, response), response)
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
        error = exchange.record_error(error)
        exchange.body_failed(error)
        with ContinuingCall():
            replacement = self._conclude(exchange)
        own = exchange.finish(replacement)
        if own and self._continues(exchange, response, replacement):
            return replacement
        if own:
            self._discard(replacement)
        raise exchange.mismatch(error)

    def _close_unread(self, exchange: Exchange) -> None:
        """Close the response of the last attempt if it may be unread and is not handed over to the caller."""
        response, exchange.unread = exchange.unread, None
        if response is not None:
            self._discard(response)

    _prepare_resend = _close_unread  # what has to be done before a request is sent again


class AsyncSender(SenderState):
    """Sends the requests of an async client."""

    _aio = True

    async def _send(self, request: Any, deliver: Any = None, /) -> Any:
        """Send a request as often as the policy allows; ``deliver`` sends it once."""
        plan = self._binding.value or self._binding.current
        deliver = deliver or self._deliver
        limited = ambient.active or (limits.exist and is_limited())
        if limited or not plan.fast_path or self._keys.auto or not self._is_simple(request):
            return await self._complete(self._begin_exchange(plan, request, deliver))
        started = NOW()
        try:
            response = await deliver(request)
        except Exception as error:
            exchange = self._resume_exchange(plan, request, deliver, started)
            exchange.record_error(error)
        else:
            if (status := self._status_of(response)) < 400:
                response = self._finish_at_once(plan, request, deliver, response, started)
                if status >= 300:
                    self._keep_redirect(response.__redouble__, None, response)
                return response
            exchange = self._resume_exchange(plan, request, deliver, started)
            with suppress(Exception):  # recorded in the exchange
                await self._settle(exchange, response)
        return await self._complete(exchange)

    async def _complete(self, exchange: Exchange) -> Any:
        """Finish a call with its final response."""
        return self._finish(exchange, await self._conclude(exchange))

    async def _conclude(self, exchange: Exchange) -> Any:
        """Return the final response, continuing after an attempt that was made outside of the policy."""
        try:
            if exchange.error is not None:
                return exchange.hand_over(await exchange.begin_again())
            return exchange.hand_over(exchange.answer if exchange.sends else await exchange.call(exchange))
        except Exception as error:
            response = exchange.final_response(error)
            if response is not None:
                return response
            if exchange.is_of_library(error):
                raise
            raise exchange.library_copy(error) from error.__cause__  # pragma: no cover  of requests only
        finally:
            await self._close_unread(exchange)

    async def _attempt(self, exchange: Exchange) -> Any:
        exchange.begin_attempt()
        if exchange.sends > 1:
            await self._prepare_resend(exchange)
        seconds = exchange.seconds_left()
        if seconds == inf:
            return await self._deliver_and_settle(exchange)
        if seconds <= 0:
            raise exchange.refuse_to_send()
        exchange.attempt_deadline = exchange.now() + seconds
        try:
            with self._limited(exchange, seconds):
                return await self._deliver_and_settle(exchange)
        except Exception as error:
            if exchange.is_out_of_time(error):
                raise exchange.timeout_error() from error
            raise

    async def _deliver_and_settle(self, exchange: Exchange) -> Any:
        """Send the request once, and record how that ended."""
        try:
            response = await exchange.deliver(exchange.request)
        except Exception as error:
            exchange.record_failure(error)
            raise
        await self._settle(exchange, response)
        return response

    async def _settle(self, exchange: Exchange, response: Any) -> None:
        """Record a response; raise if it is a failure, or if its body fails where it is needed now."""
        unread = response
        try:
            status = self._status_of(response)
            failed = exchange.plan.fails(status, response.headers)
            judged = not failed and status >= 400 and exchange.plan.judges_statuses
            if (failed or judged) and not self._is_read(response):
                await self._prefetch(exchange, response)
            if judged:
                failed = exchange.is_retried(self._status_error(exchange, response))
            if not (failed or self._is_read(response)):
                await self._read_result(exchange, response)
            unread = None
        except Exception as error:
            exchange.record_failure(error)
            raise
        finally:
            if unread is not None:  # cancelled or failed while the body was read
                await self._discard(unread)
        if failed:
            raise exchange.record_failure(exchange.error or self._status_error(exchange, response), response)
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
        error = exchange.record_error(error)
        exchange.body_failed(error)
        with ContinuingCall():
            replacement = await self._conclude(exchange)
        own = exchange.finish(replacement)
        if own and self._continues(exchange, response, replacement):
            return replacement
        if own:
            await self._discard(replacement)
        raise exchange.mismatch(error)

    async def _close_unread(self, exchange: Exchange) -> None:
        """Close the response of the last attempt if it may be unread and is not handed over to the caller."""
        response, exchange.unread = exchange.unread, None
        if response is not None:
            await self._discard(response)

    _prepare_resend = _close_unread  # what has to be done before a request is sent again
