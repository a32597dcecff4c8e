"""Retries for requests: an adapter to mount on a session.

    session = requests.Session()
    session.mount("https://", redouble.requests.Adapter())

The result is what the session itself would have given: a last response of 503 is returned, a last
error is raised. `redouble.report` returns the report of either.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, cast
from urllib.parse import urlsplit

from redouble._clients.client_call import PreviousHop
from redouble._clients.idempotency_key import Keys
from redouble._clients.socket_deadline import LimitedWaits
from redouble._internal.extras import missing_extra
from redouble._layers.layer import Layer
from redouble.http._exchange import Exchange, SuccessRecord, origin, status_text
from redouble.http._request_body import Rewind, classify_body
from redouble.http._sender import PREFETCH_LIMIT, Sender

try:
    import requests
    import urllib3
    from requests.adapters import BaseAdapter, HTTPAdapter
    from requests.utils import prepend_scheme_if_needed, select_proxy
    from urllib3.exceptions import EmptyPoolError

    from redouble.http._requests_response_body import (
        PrefetchedFile,
        ResponseBody,
        RestartableResponse,
        shorten_timeouts,
    )
    from redouble.http._urllib3_sockets import limit_pools
except ModuleNotFoundError as error:
    raise missing_extra("requests", error) from None

__all__ = ["Adapter"]

REDIRECT = "redouble"  # the key of a redirect in the hooks of a request


class Adapter(Sender, BaseAdapter):
    """An adapter that retries requests, for `requests.Session.mount`.

    policy: a `Retry`, any other layer, or a pipeline; `redouble.presets.http()` by default, with one budget
        for each host that all clients of the process share.
    wrapped: the adapter that sends; `requests.adapters.HTTPAdapter()` by default. Pool sizes are its
        options. It must not retry by itself.
    idempotency: "auto" adds a key to requests whose method is not idempotent, one for each call and the same
        in all of its attempts, so that they may be resent; see `redouble.http.Idempotency`.

    Different policies for different services are different adapters, mounted where they belong.
    """

    _base_error, _timeout_error = requests.RequestException, requests.Timeout
    _timeout_errors = (requests.Timeout, EmptyPoolError, urllib3.exceptions.TimeoutError)
    _response_type, _response_name = requests.Response, "a requests.Response"

    def __init__(
        self, policy: Layer | None = None, *, wrapped: BaseAdapter | None = None, idempotency: Keys = None
    ) -> None:
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
        super().__init__("requests", policy, idempotency)

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
        options = {"stream": stream, "timeout": timeout, "verify": verify, "cert": cert, "proxies": proxies}
        response: requests.Response = self._send(request, partial(self._send_once, options))
        return response

    def close(self) -> None:
        """Close the wrapped adapter."""
        self._closed = True
        self._wrapped.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Adapter, **self._options), ()

    def _is_simple(self, request: requests.PreparedRequest) -> bool:
        return isinstance(request.body, bytes | str | None) and REDIRECT not in request.hooks

    def _put_redirect(self, request: requests.PreparedRequest, previous: PreviousHop) -> None:
        """Keep it in the hooks, which the session shares with the next request."""
        cast("Any", request.hooks)[REDIRECT] = previous

    def _take_redirect(self, request: requests.PreparedRequest) -> PreviousHop | None:
        previous: Any = cast("Any", request.hooks).pop(REDIRECT, None)
        if previous is None or previous.request() is request:
            return None  # there is none, or the caller sends the same request again
        response = previous.response()
        by_session = response is not None and response.next is not request  # else the caller sends it
        return previous if by_session else None

    def _host_of(self, request: requests.PreparedRequest) -> str:
        url = urlsplit(request.url or "")
        return origin(url.scheme, url.hostname or "", url.port)

    def _host_key(self, request: requests.PreparedRequest) -> tuple[str, str]:
        return urlsplit(request.url or "")[:2]

    def _body_of(self, request: requests.PreparedRequest) -> Rewind:
        return classify_body(request.body)

    @contextmanager
    def _limited(self, exchange: Exchange, seconds: float) -> Generator[None]:
        deliver, options = exchange.deliver, _options_of(exchange)
        with LimitedWaits(exchange.now, seconds):
            timeout = shorten_timeouts(options["timeout"], exchange.shorten_timeout(seconds))
            exchange.deliver = partial(self._send_once, {**options, "timeout": timeout})
            try:
                yield
            finally:
                exchange.deliver = deliver

    def _send_once(self, options: dict[str, Any], request: requests.PreparedRequest) -> requests.Response:
        if options["proxies"]:
            self._limit_proxy(request, options["proxies"])
        try:
            response = self._wrapped.send(request, **options)
        except EmptyPoolError as error:  # requests does not translate it
            raise requests.ConnectionError(error, request=request) from error
        if not options["stream"] and response.status_code < 400:
            _ = response.content  # a body that fails is a failure of the attempt
        return response

    def _is_read(self, response: requests.Response) -> bool:
        return cast("Any", response)._content is not False

    def _read_result(self, exchange: Exchange, response: requests.Response) -> None:
        if not _options_of(exchange)["stream"] or exchange.plan.reads_bodies:
            _ = response.content

    def _prefetch_limit(self, exchange: Exchange) -> float:
        return PREFETCH_LIMIT if _options_of(exchange)["stream"] else inf

    def _chunks_of(self, response: requests.Response) -> Iterator[bytes]:
        raw: Any = response.raw
        known = isinstance(raw, urllib3.HTTPResponse)  # else made by an adapter without urllib3
        return raw.stream(PREFETCH_LIMIT, decode_content=False) if known else iter(())

    def _release(self, response: requests.Response) -> None:
        if isinstance(response.raw, urllib3.HTTPResponse):  # pragma: no branch  a mock may have made it
            response.raw.release_conn()

    def _replace_body(
        self, exchange: Exchange, response: Any, received: list[bytes], rest: Any, error: Exception | None
    ) -> None:
        raw = response.raw
        if isinstance(raw, urllib3.HTTPResponse):  # pragma: no branch  a mock may have made it
            response.raw = urllib3.HTTPResponse(
                PrefetchedFile(b"".join(received), rest, raw, error),
                headers=raw.headers,
                status=raw.status,
                version=raw.version,
                reason=raw.reason,
                preload_content=False,
                original_response=raw._original_response,
                request_method=exchange.request.method,
            )

    def _status_error(self, exchange: Exchange, response: requests.Response) -> Exception:
        message = status_text(response.status_code)
        return requests.HTTPError(message, request=exchange.request, response=response)

    def _is_in_memory(self, response: requests.Response) -> bool:
        return self._is_read(response)

    def _attach_body(self, call: Exchange | SuccessRecord, response: Any) -> bool:
        response.connection = self  # an auth handler resends through it after a challenge
        failed = isinstance(call, Exchange) and call.failed_finally
        if not (_options_of(call)["stream"] or failed) or type(response) is not requests.Response:
            return False
        response.__class__ = RestartableResponse  # in place: only the class changes
        restartable = cast("RestartableResponse", response)
        restartable._redouble = ResponseBody(restartable, call)
        return True

    def _limit_proxy(self, request: requests.PreparedRequest, proxies: Any) -> None:
        """Limit connections through a proxy too."""
        proxy = select_proxy(request.url or "", proxies)
        if proxy and isinstance(self._wrapped, HTTPAdapter):
            adapter: Any = self._wrapped
            limit_pools(adapter.proxy_manager_for(prepend_scheme_if_needed(proxy, "http")))


def _options_of(call: Exchange | SuccessRecord) -> dict[str, Any]:
    """Return the arguments of the wrapped adapter's ``send`` besides the request."""
    options: dict[str, Any] = call.deliver.args[0]
    return options
