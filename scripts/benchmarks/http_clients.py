"""The HTTP clients: bare, with Redouble, and with the other libraries.

Each has three attempts and delays from 0.1 seconds, if it has such options. All other options are the
defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import aiohttp
import aiohttp_retry
import httpware
import httpx
import httpx2
import httpx_retries
import requests
import stamina
import urllib3
from httpware.middleware import resilience
from requests.adapters import BaseAdapter, HTTPAdapter

import redouble.aiohttp
import redouble.httpx
import redouble.httpx2
import redouble.requests
from benchmarks.http_fake_connections import AsyncBackend, Backend, Connector

Get: TypeAlias = Callable[[str], Any]  # URL -> response, or an awaitable of an async client
Variants: TypeAlias = dict[str, Callable[[], Get]]  # each opens one variant

T = TypeVar("T")

BARE = "bare client"
BUSY = (408, 425, 429, 502, 503, 504)

Make: TypeAlias = Callable[[bool, AsyncExitStack], Variants]


@dataclass(frozen=True)
class Client:
    """An HTTP client; ``made`` returns its variants, with connections in memory or not."""

    name: str
    made: Make
    aio: bool


def httpx2_blocking(in_memory: bool, stack: AsyncExitStack) -> Variants:
    """Make clients of httpx2."""

    def transport() -> httpx2.HTTPTransport:
        made = httpx2.HTTPTransport()
        return with_backend(made, Backend()) if in_memory else made

    def client(transport: httpx2.BaseTransport) -> httpx2.Client:
        return stack.enter_context(httpx2.Client(transport=transport))

    def retrying() -> httpware.Client:
        return httpware.Client(httpx2_client=client(transport()), middleware=[resilience.Retry()])

    return {
        BARE: lambda: client(transport()).get,
        "redouble": lambda: client(redouble.httpx2.Transport(wrapped=transport())).get,
        "httpware": lambda: retrying().get,
        "stamina": lambda: around(httpx2.HTTPError, checked(client(transport()).get)),
    }


def httpx2_async(in_memory: bool, stack: AsyncExitStack) -> Variants:
    """Make async clients of httpx2."""

    def transport() -> httpx2.AsyncHTTPTransport:
        made = httpx2.AsyncHTTPTransport()
        return with_backend(made, AsyncBackend()) if in_memory else made

    def client(transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
        made = httpx2.AsyncClient(transport=transport)
        stack.push_async_callback(made.aclose)
        return made

    def retrying() -> httpware.AsyncClient:
        return httpware.AsyncClient(httpx2_client=client(transport()), middleware=[resilience.AsyncRetry()])

    return {
        BARE: lambda: client(transport()).get,
        "redouble": lambda: client(redouble.httpx2.AsyncTransport(wrapped=transport())).get,
        "httpware": lambda: retrying().get,
        "stamina": lambda: around(httpx2.HTTPError, achecked(client(transport()).get)),
    }


def httpx_blocking(in_memory: bool, stack: AsyncExitStack) -> Variants:
    """Make clients of httpx."""

    def transport() -> httpx.HTTPTransport:
        made = httpx.HTTPTransport()
        return with_backend(made, Backend()) if in_memory else made

    def client(transport: httpx.BaseTransport) -> httpx.Client:
        return stack.enter_context(httpx.Client(transport=transport))

    retry = httpx_retries.Retry(total=2, backoff_factor=0.1)
    return {
        BARE: lambda: client(transport()).get,
        "redouble": lambda: client(redouble.httpx.Transport(wrapped=transport())).get,
        "httpx-retries": lambda: client(httpx_retries.RetryTransport(transport(), retry)).get,
        "stamina": lambda: around(httpx.HTTPError, checked(client(transport()).get)),
    }


def httpx_async(in_memory: bool, stack: AsyncExitStack) -> Variants:
    """Make async clients of httpx."""

    def transport() -> httpx.AsyncHTTPTransport:
        made = httpx.AsyncHTTPTransport()
        return with_backend(made, AsyncBackend()) if in_memory else made

    def client(transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
        made = httpx.AsyncClient(transport=transport)
        stack.push_async_callback(made.aclose)
        return made

    retry = httpx_retries.Retry(total=2, backoff_factor=0.1)
    return {
        BARE: lambda: client(transport()).get,
        "redouble": lambda: client(redouble.httpx.AsyncTransport(wrapped=transport())).get,
        "httpx-retries": lambda: client(httpx_retries.RetryTransport(transport(), retry)).get,
        "stamina": lambda: around(httpx.HTTPError, achecked(client(transport()).get)),
    }


def requests_blocking(in_memory: bool, stack: AsyncExitStack) -> Variants:  # noqa: ARG001  its sockets are patched
    """Make sessions of requests."""

    def session(adapter: BaseAdapter) -> requests.Session:
        made = stack.enter_context(requests.Session())
        made.mount("http://", adapter)
        return made

    retry = urllib3.Retry(total=2, backoff_factor=0.1, status_forcelist=BUSY)
    return {
        BARE: lambda: session(HTTPAdapter()).get,
        "redouble": lambda: session(redouble.requests.Adapter()).get,
        "urllib3 Retry": lambda: session(HTTPAdapter(max_retries=retry)).get,
        "stamina": lambda: around(requests.RequestException, checked(session(HTTPAdapter()).get)),
    }


def aiohttp_async(in_memory: bool, stack: AsyncExitStack) -> Variants:
    """Make sessions of aiohttp."""

    def session(*middlewares: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        made = aiohttp.ClientSession(connector=Connector() if in_memory else None, middlewares=middlewares)
        stack.push_async_callback(made.close)
        return made

    def retrying() -> aiohttp_retry.RetryClient:
        options = aiohttp_retry.ExponentialRetry(attempts=3, start_timeout=0.1, max_timeout=5)
        return aiohttp_retry.RetryClient(client_session=session(), retry_options=options)

    return {
        BARE: lambda: read(session()),
        "redouble": lambda: read(session(redouble.aiohttp.middleware())),
        "aiohttp-retry": lambda: read(retrying()),
        "stamina": lambda: around(aiohttp.ClientError, achecked(read(session()))),
    }


CLIENTS = (
    Client("httpx2, blocking", httpx2_blocking, aio=False),
    Client("httpx2, async", httpx2_async, aio=True),
    Client("httpx, blocking", httpx_blocking, aio=False),
    Client("httpx, async", httpx_async, aio=True),
    Client("requests", requests_blocking, aio=False),
    Client("aiohttp", aiohttp_async, aio=True),
)


def with_backend(transport: T, backend: object) -> T:
    """Replace the network backend of a transport of httpx, which has no option for it."""
    cast("Any", transport)._pool._network_backend = backend
    return transport


def read(session: Any) -> Get:
    """Return a function that reads the whole response, as the other clients do."""

    async def get(url: str) -> Any:
        async with session.get(url) as response:
            await response.read()
            return response

    return get


def around(errors: type[Exception], get: Get) -> Get:
    """Retry by stamina, which wraps a function."""
    return stamina.retry(on=errors, attempts=3)(get)


def checked(get: Get) -> Get:
    """Return a function that raises for an error status, so that a retry around it can see it."""

    def got(url: str) -> Any:
        response = get(url)
        response.raise_for_status()
        return response

    return got


def achecked(get: Get) -> Get:
    """Return an async function that raises for an error status."""

    async def got(url: str) -> Any:
        response = await get(url)
        response.raise_for_status()
        return response

    return got
