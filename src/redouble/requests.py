"""Retries for requests: an adapter to mount on a session.

    session = requests.Session()
    session.mount("https://", redouble.requests.Adapter())

The result is what the session itself would have given: a last response of 503 is returned, a last
error is raised. `redouble.report` returns the report of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any, cast
from urllib.parse import urlsplit

from redouble._clients.call_record import LazyCallRecord
from redouble._clients.idempotency_key import Keys
from redouble._clients.socket_deadline import limited_waits
from redouble._internal.extras import missing_extra
from redouble._layers.layer import Layer
from redouble._runtime.ambient import ambient
from redouble.http._client import NOW, PolicyBinding
from redouble.http._exchange import Exchange, status_text
from redouble.http._request_body import classify_body

try:
    import requests
    from requests.adapters import BaseAdapter, HTTPAdapter
    from requests.utils import prepend_scheme_if_needed, select_proxy
    from urllib3.exceptions import EmptyPoolError

    from redouble.http._requests_response_body import (
        TIMEOUT_TYPES,
        RestartableResponse,
        discard_unread,
        prefetch,
        shorten_timeouts,
    )
    from redouble.http._urllib3_sockets import limit_pools
except ModuleNotFoundError as error:
    raise missing_extra("requests", error) from None

__all__ = ["Adapter"]


class Adapter(BaseAdapter):
    """An adapter that retries requests, for `requests.Session.mount`.

    policy: a `Retry`, any other layer, or a pipeline; `redouble.presets.http()` by default, with one budget
        for each host that all clients of the process share.
    wrapped: the adapter that sends; `requests.adapters.HTTPAdapter()` by default. Pool sizes are its
        options. It must not retry by itself.
    idempotency: "auto" adds a key to requests whose method is not idempotent, one for each call and the same
        in all of its attempts, so that they may be resent; see `redouble.http.Idempotency`.

    Different policies for different services are different adapters, mounted where they belong.
    """

    def __init__(
        self, policy: Layer | None = None, *, wrapped: BaseAdapter | None = None, idempotency: Keys = None
    ) -> None:
        super().__init__()
        wrapped = HTTPAdapter() if wrapped is None else wrapped
        if not isinstance(wrapped, BaseAdapter):
            raise TypeError(f"wrapped={wrapped!r}: write a requests.adapters.HTTPAdapter()")
        if isinstance(wrapped, Adapter):
            raise ValueError("wrapped is a redouble adapter, so attempts would multiply: leave it out")
        if isinstance(wrapped, HTTPAdapter):
            if wrapped.max_retries.total not in (0, False):
                raise ValueError("wrapped retries by itself, so attempts would multiply: write HTTPAdapter()")
            limit_pools(wrapped.poolmanager)
        self._options: dict[str, Any] = {"policy": policy, "wrapped": wrapped, "idempotency": idempotency}
        self._wrapped = wrapped
        self._binding = PolicyBinding("requests", policy, idempotency, self._attempt, aio=False)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request as often as the policy allows."""
        policy = self._binding.current
        host = urlsplit(request.url or "").netloc.rpartition("@")[2]
        how = (stream, timeout, verify, cert, proxies)
        if not policy.fast_path or ambient.active or not isinstance(request.body, bytes | str | None):
            exchange = policy.begin_exchange(request, classify_body(request.body), host)
            exchange.how = how
            return self._complete(exchange)
        started = NOW()
        try:
            response: Any = self._send_once(request, how)
            if not stream and not policy.plan.fails(response.status_code, response.headers):
                _ = response.content  # a body that fails is a failure of the attempt
        except Exception as error:
            failure: Exception | None = error
            response = None
        else:
            failure = None
            if response.status_code < 400:
                return self._finish_fast(request, host, how, response, started)
        exchange = policy.resume_exchange(request, host, started)
        exchange.how = how
        try:
            return self._complete(exchange, self._failure_of(exchange, response, failure), response)
        finally:
            failure = None  # breaks the reference cycle between this frame and its error

    def close(self) -> None:
        """Close the wrapped adapter."""
        self._binding.current.close()
        self._wrapped.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Adapter, **self._options), ()

    def _finish_fast(
        self, request: Any, host: str, how: Any, response: Any, started: float
    ) -> requests.Response:
        """Stamp a response that succeeded at once with its record."""
        policy, now = self._binding.current, NOW()
        if policy.has_budget:
            (policy.credits.get(host) or policy.credit_for(host, host))(now)
        if not how[0]:
            response.connection, response.__redouble__ = self, LazyCallRecord(policy.plan, started, now)
            return cast("requests.Response", response)
        exchange = policy.resume_exchange(request, host, started)
        exchange.how = how
        return self._finish(exchange, response)

    def _complete(
        self, exchange: Exchange, failure: Exception | None = None, response: Any = None
    ) -> requests.Response:
        try:
            response = exchange.outcome(TIMEOUT_TYPES, failure, response)
        finally:
            failure = None
            if exchange.unread is not None:
                discard_unread(exchange)
        if not isinstance(response, requests.Response):
            raise TypeError(
                f"the policy returned {response!r}: write a layer that returns a requests.Response"
            )
        return self._finish(exchange, response)

    def _finish(self, exchange: Exchange, response: requests.Response) -> requests.Response:
        exchange.finish(response)
        cast("Any", response).connection = self  # an auth handler resends through it after a challenge
        if (exchange.how[0] or exchange.failed_finally) and type(response) is requests.Response:
            response.__class__ = RestartableResponse  # in place: only the class changes
            cast("Any", response)._exchange = exchange
        return response

    def _failure_of(self, exchange: Exchange, response: Any, failure: Exception | None) -> Exception | None:
        """Return the stamped failure of an attempt, or None if it succeeded."""
        if failure is not None:
            return exchange.record_failure(failure)
        if not exchange.is_failure(response.status_code, response.headers):
            return None
        prefetch(exchange, response)
        message = status_text(response.status_code)
        error = requests.HTTPError(message, request=exchange.request, response=response)
        return exchange.record_failure(error, response)

    def _attempt(self, exchange: Exchange) -> requests.Response:
        exchange.begin_attempt()
        if exchange.unread is not None:
            discard_unread(exchange)
        seconds = exchange.seconds_left()
        if seconds < inf:
            exchange.attempt_deadline = exchange.now() + seconds
        failure = None
        try:
            with limited_waits(exchange.now, seconds):
                seconds = seconds if seconds == inf else exchange.shorten_timeout(seconds)
                response = self._send_once(exchange.request, exchange.how, seconds)
                if response.status_code >= 400:
                    failure = self._failure_of(exchange, response, None)
                if failure is not None:
                    raise failure
                if not exchange.how[0] or exchange.plan.reads_bodies:
                    _ = response.content  # a body that fails is a failure of the attempt
        except Exception as error:
            if exchange.error is not error:
                exchange.record_failure(error)
            raise
        finally:
            failure = None
        exchange.in_flight = False
        return response

    def _send_once(
        self, request: requests.PreparedRequest, how: Any, seconds: float = inf
    ) -> requests.Response:
        stream, timeout, verify, cert, proxies = how
        if proxies:
            self._limit_proxy(request, proxies)
        limits = shorten_timeouts(timeout, seconds)
        try:
            return self._wrapped.send(
                request, stream=stream, timeout=limits, verify=verify, cert=cert, proxies=proxies
            )
        except EmptyPoolError as error:  # requests does not translate it
            raise requests.ConnectionError(error, request=request) from error

    def _limit_proxy(self, request: requests.PreparedRequest, proxies: Any) -> None:
        """Limit connections through a proxy too."""
        proxy = select_proxy(request.url or "", proxies)
        if proxy and isinstance(self._wrapped, HTTPAdapter):
            adapter: Any = self._wrapped
            limit_pools(adapter.proxy_manager_for(prepend_scheme_if_needed(proxy, "http")))
