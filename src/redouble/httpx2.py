"""Retries for httpx2: a transport to put under a client.

    client = httpx2.Client(transport=redouble.httpx2.Transport())
    client = httpx2.AsyncClient(transport=redouble.httpx2.AsyncTransport(policy))

The result is what the client itself would have given: a last response of 503 is returned, a last
`ConnectError` is raised. `redouble.report` returns the report of either.
"""

from __future__ import annotations

from redouble._internal.extras import missing_extra

try:
    import httpx2

    from redouble.http._httpx_transport import AsyncHttpxSender, HttpxLibrary, HttpxSender
except ModuleNotFoundError as error:
    raise missing_extra("httpx2", error) from None

__all__ = ["AsyncTransport", "Transport"]

_LIBRARY = HttpxLibrary(httpx2, __name__)


class Transport(HttpxSender[httpx2.BaseTransport], httpx2.BaseTransport):
    """A transport that retries requests, for `httpx2.Client(transport=...)`.

    policy: a `Retry`, any other layer, or a pipeline; `redouble.presets.http()` by default, with one budget
        for each host that all clients of the process share.
    wrapped: the transport that sends; `httpx2.HTTPTransport()` by default. Client options such as
        ``verify``, ``http2``, ``proxy`` and ``limits`` are its options.
    idempotency: "auto" adds a key to requests whose method is not idempotent, one for each call and the same
        in all of its attempts, so that they may be resent; see `redouble.http.Idempotency`.

    For one request: ``client.get(url, extensions={"redouble": {"attempts": 2}})``; ``None`` is no retries.
    """

    _library = _LIBRARY


class AsyncTransport(AsyncHttpxSender[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport):
    """The same for `httpx2.AsyncClient(transport=...)`, on asyncio and on Trio."""

    _library = _LIBRARY
