"""Redouble with each HTTP client: the preset for HTTP, three attempts, a time limit for the whole call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import httpx
import httpx2
from requests.adapters import HTTPAdapter

import redouble.aiohttp
import redouble.httpx
import redouble.httpx2
import redouble.requests
from comparison import httpx_sender, with_aiohttp_retry, with_urllib3
from comparison.request import Outcome, Request
from redouble import CircuitBreaker, Layer, Retry, presets


def policy(request: Request) -> Layer:
    """Return the policy of a request."""
    if request.breaker is not None:
        return Retry(attempts=1) | CircuitBreaker(failures=request.breaker)
    return presets.http(timeout=request.total)


def send_by_httpx(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by httpx."""
    transport = redouble.httpx.Transport(policy(request), wrapped=below(httpx.HTTPTransport(), request))
    with httpx.Client(transport=transport, timeout=request.total) as client:
        for errors in calls(request):
            with errors:
                httpx_sender.send(client, url, request, outcome)


def send_by_httpx2(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by httpx2."""
    transport = redouble.httpx2.Transport(policy(request), wrapped=below(httpx2.HTTPTransport(), request))
    with httpx2.Client(transport=transport, timeout=request.total) as client:
        for errors in calls(request):
            with errors:
                httpx_sender.send(client, url, request, outcome)


def send_by_requests(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by requests."""
    adapter = redouble.requests.Adapter(policy(request), wrapped=below(HTTPAdapter(), request))
    for errors in calls(request):
        with errors:
            with_urllib3.send_by(adapter, url, request, outcome)


def send_by_aiohttp(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by aiohttp."""
    asyncio.run(_send_by_aiohttp(url, request, outcome))


async def _send_by_aiohttp(url: str, request: Request, outcome: Outcome) -> None:
    retrying = redouble.aiohttp.middleware(presets.http() if request.own_limit else policy(request))
    middlewares: list[Any] = [retrying, reading] if request.read_below else [retrying]
    timeout = aiohttp.ClientTimeout(total=request.total) if request.own_limit else None
    async with aiohttp.ClientSession(middlewares=middlewares, timeout=timeout) as session:
        for errors in calls(request):
            with errors:
                await with_aiohttp_retry.send_by(session, url, request, outcome)


def calls(request: Request) -> Iterator[Any]:
    """Yield a context manager for each call: the error of the last one is raised."""
    for left in reversed(range(request.calls)):
        yield suppressed(not left)


@contextmanager
def suppressed(last: bool) -> Iterator[None]:
    """Suppress an error, unless it is that of the last call."""
    try:
        yield
    except Exception:
        if last:
            raise


def below(transport: Any, request: Request) -> Any:
    """Return the transport that sends; make it read each response if the request asks for that."""
    method = "send" if isinstance(transport, HTTPAdapter) else "handle_request"
    send = getattr(transport, method)

    def reading_send(*args: Any, **options: Any) -> Any:
        response = send(*args, **options)
        if hasattr(response, "read"):
            response.read()
        return response if response.content is not None else None

    if request.read_below:
        setattr(transport, method, reading_send)
    return transport


async def reading(request: Any, handler: Any) -> Any:
    """Send a request and read the response: a middleware of aiohttp."""
    response = await handler(request)
    await response.read()
    return response
