"""Retries for requests: an adapter to mount on a session.

    session = requests.Session()
    session.mount("https://", redouble.requests.Adapter())

What comes out is what the session would have given: a last answer of 503 is returned, a last error is raised.
`redouble.report` tells the story of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any, cast
from urllib.parse import urlsplit

from redouble._clients.call_record import LazyCallRecord
from redouble._clients.idempotency import Keys
from redouble._clients.socket_deadline import limited_waits
from redouble._internal.extras import missing_extra
from redouble._layers.layer import Layer
from redouble._runtime.ambient import ambient
from redouble.http._client import NOW, PolicyBinding
from redouble.http._exchange import Exchange, spelled_status
from redouble.http._request_body import content_of

try:
    import requests
    from requests.adapters import BaseAdapter, HTTPAdapter
    from requests.utils import prepend_scheme_if_needed, select_proxy
    from urllib3.exceptions import EmptyPoolError

    from redouble.http._requests_response import LATE, RestartableResponse, discard, keep, shorter
    from redouble.http._urllib3_sockets import limit_pools
except ModuleNotFoundError as error:
    raise missing_extra("requests", error) from None

__all__ = ["Adapter"]


class Adapter(BaseAdapter):
    """An adapter that sends requests again, for `requests.Session.mount`.

    policy: a `Retry`, any other layer, or a pipeline; `redouble.presets.http()` unless given, with one budget
        for each host that all clients of the process share.
    wrapped: the adapter that sends, `requests.adapters.HTTPAdapter()` unless given; sizes of pools are its
        options. It must not retry by itself.
    idempotency: "auto" gives requests of other methods than the idempotent ones a key, one for each call and
        the same in all of its attempts, so that they may be sent again; see `redouble.http.Idempotency`.

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
            raise ValueError("wrapped is an adapter of ours, so attempts would multiply: leave it out")
        if isinstance(wrapped, HTTPAdapter):
            if wrapped.max_retries.total not in (0, False):
                raise ValueError("wrapped retries by itself, so attempts would multiply: write HTTPAdapter()")
            limit_pools(wrapped.poolmanager)
        self._said: dict[str, Any] = {"policy": policy, "wrapped": wrapped, "idempotency": idempotency}
        self._wrapped = wrapped
        self._going = PolicyBinding("requests", policy, idempotency, self._attempt, aio=False)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request, as often as the policy says."""
        terms = self._going.terms
        host = urlsplit(request.url or "").netloc.rpartition("@")[2]
        how = (stream, timeout, verify, cert, proxies)
        if not terms.quick or ambient.active or not isinstance(request.body, bytes | str | None):
            exchange = terms.exchange(request, content_of(request.body), host)
            exchange.how = how
            return self._concluded(exchange)
        started = NOW()
        try:
            response: Any = self._sent(request, how)
            if not stream and not terms.plan.fails(response.status_code, response.headers):
                _ = response.content  # a body that breaks is a failure of the attempt
        except Exception as error:
            failure: Exception | None = error
            response = None
        else:
            failure = None
            if response.status_code < 400:
                return self._answered(request, host, how, response, started)
        exchange = terms.resumed(request, host, started)
        exchange.how = how
        try:
            return self._concluded(exchange, self._failed(exchange, response, failure), response)
        finally:
            failure = None  # or this frame and its error would keep each other alive

    def close(self) -> None:
        """Close the adapter that is wrapped."""
        self._going.terms.close()
        self._wrapped.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Adapter, **self._said), ()

    def _answered(
        self, request: Any, host: str, how: Any, response: Any, started: float
    ) -> requests.Response:
        """Leave the story on an answer about which there was nothing to decide."""
        terms, now = self._going.terms, NOW()
        if terms.credited:
            (terms.credits.get(host) or terms.credit_for(host, host))(now)
        if not how[0]:
            response.connection, response.__redouble__ = self, LazyCallRecord(terms.plan, started, now)
            return cast("requests.Response", response)
        exchange = terms.resumed(request, host, started)
        exchange.how = how
        return self._handed_out(exchange, response)

    def _concluded(
        self, exchange: Exchange, failure: Exception | None = None, response: Any = None
    ) -> requests.Response:
        try:
            response = exchange.outcome(LATE, failure, response)
        finally:
            failure = None
            if exchange.unread is not None:
                discard(exchange)
        if not isinstance(response, requests.Response):
            raise TypeError(f"the policy returned {response!r}: write a layer that gives a requests.Response")
        return self._handed_out(exchange, response)

    def _handed_out(self, exchange: Exchange, response: requests.Response) -> requests.Response:
        exchange.ended(response)
        cast("Any", response).connection = self  # by which an auth that was challenged sends once more
        if (exchange.how[0] or exchange.final) and type(response) is requests.Response:
            response.__class__ = RestartableResponse  # the same, but its body begins anew should it break
            cast("Any", response)._exchange = exchange
        return response

    def _failed(self, exchange: Exchange, response: Any, failure: Exception | None) -> Exception | None:
        """Say what an attempt failed with, if it did."""
        if failure is not None:
            return exchange.failed(failure)
        if not exchange.fails(response.status_code, response.headers):
            return None
        keep(exchange, response)
        message = spelled_status(response.status_code)
        error = requests.HTTPError(message, request=exchange.request, response=response)
        return exchange.failed(error, response)

    def _attempt(self, exchange: Exchange) -> requests.Response:
        exchange.begins()
        if exchange.unread is not None:
            discard(exchange)
        rest = exchange.left()
        if rest < inf:
            exchange.ends = exchange.now() + rest
        failure = None
        try:
            with limited_waits(exchange.now, rest):
                rest = rest if rest == inf else exchange.hurry(rest)
                response = self._sent(exchange.request, exchange.how, rest)
                if response.status_code >= 400:
                    failure = self._failed(exchange, response, None)
                if failure is not None:
                    raise failure
                if not exchange.how[0] or exchange.plan.reads:
                    _ = response.content  # a body that breaks is a failure of the attempt
        except Exception as error:
            if exchange.error is not error:
                exchange.failed(error)
            raise
        finally:
            failure = None
        exchange.running = False
        return response

    def _sent(self, request: requests.PreparedRequest, how: Any, rest: float = inf) -> requests.Response:
        stream, timeout, verify, cert, proxies = how
        if proxies:
            self._limit_proxy(request, proxies)
        limits = shorter(timeout, rest)
        try:
            return self._wrapped.send(
                request, stream=stream, timeout=limits, verify=verify, cert=cert, proxies=proxies
            )
        except EmptyPoolError as error:  # for which requests has no word of its own
            raise requests.ConnectionError(error, request=request) from error

    def _limit_proxy(self, request: requests.PreparedRequest, proxies: Any) -> None:
        """See to it that connections through a proxy are limited too."""
        proxy = select_proxy(request.url or "", proxies)
        if proxy and isinstance(self._wrapped, HTTPAdapter):
            known: Any = self._wrapped
            limit_pools(known.proxy_manager_for(prepend_scheme_if_needed(proxy, "http")))
