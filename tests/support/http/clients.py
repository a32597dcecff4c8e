"""One blocking interface to each of the HTTP clients.

    with client("aiohttp", Retry(attempts=2)) as http:
        seen = http.request("GET", url)
        assert (seen.status, seen.report().attempts) == (200, 2)

The event loop of an async client runs on a thread as long as the client is open, so that connections are
pooled between calls, and closed at once.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import aiohttp
import requests
from anyio.from_thread import start_blocking_portal
from requests.adapters import HTTPAdapter

import redouble.aiohttp
import redouble.requests
from redouble import Layer
from redouble._clients.idempotency_key import Keys
from tests.support.http.calls import Aiohttp, AsyncHttpx, Client, HttpResult, Httpx, Requests

__all__ = [
    "ASYNC_CLIENTS",
    "CLIENTS",
    "HTTPX",
    "SYNC_CLIENTS",
    "TLS",
    "Client",
    "HttpResult",
    "client",
    "is_async",
]

SYNC_CLIENTS = ("httpx", "httpx2", "requests")
ASYNC_CLIENTS = ("httpx-asyncio", "httpx-trio", "httpx2-asyncio", "httpx2-trio", "aiohttp")
CLIENTS = SYNC_CLIENTS + ASYNC_CLIENTS
HTTPX = tuple(name for name in CLIENTS if name.startswith("httpx"))


def is_async(name: str) -> bool:
    """Return True if the client is for async code."""
    return "-" in name or name == "aiohttp"


TLS = ssl.SSLContext(
    ssl.PROTOCOL_TLS_CLIENT
)  # shared, because loading all certificates takes longer than most tests


@contextmanager
def client(
    name: str,
    policy: Layer | None = None,
    *,
    idempotency: Keys = None,
    wrapped: Any = None,
    pool: int | None = None,
    bare: bool = False,
    **options: Any,
) -> Generator[Client]:
    """Open one of `CLIENTS` with a policy, and close it in the end.

    wrapped: the transport or adapter that redouble's wraps.
    pool: the most connections at a time; further calls wait.
    bare: without redouble, for comparison.
    options: of the library's client; for requests, attributes of the session.
    """
    library, _, loop = name.partition("-")
    ours: dict[str, Any] = {"policy": policy, "idempotency": idempotency}
    if library == "requests":
        with requests.Session() as session:
            yield _opened(Requests(name), _with_adapter(session, ours, wrapped, pool, bare, options))
    elif library == "aiohttp":
        with start_blocking_portal("asyncio") as portal:
            make = _session(ours, pool, bare, options)
            with portal.wrap_async_context_manager(portal.call(make)) as session:
                yield _opened(Aiohttp(name, portal), session)
    elif not loop:
        with _httpx_client(library, "", ours, wrapped, pool, bare, options) as raw:
            yield _opened(Httpx(name), raw)
    else:
        with start_blocking_portal(loop) as portal:
            raw = _httpx_client(library, "Async", ours, wrapped, pool, bare, options)
            with portal.wrap_async_context_manager(raw):
                yield _opened(AsyncHttpx(name, portal), raw)


def _opened(found: Client, raw: Any) -> Client:
    found.raw = raw
    return found


def _httpx_client(
    library: str, colour: str, ours: Any, wrapped: Any, pool: int | None, bare: bool, options: Any
) -> Any:
    theirs: Any = importlib.import_module(library)
    if wrapped is None:
        limits = theirs.Limits(max_connections=pool)
        wrapped = getattr(theirs, f"{colour}HTTPTransport")(verify=TLS, limits=limits)
    transport = wrapped
    if not bare:
        our: Any = importlib.import_module(f"redouble.{library}")
        transport = getattr(our, f"{colour}Transport")(**ours, wrapped=wrapped)
    return getattr(theirs, f"{colour}Client")(transport=transport, trust_env=False, **options)


def _with_adapter(
    session: requests.Session, ours: Any, wrapped: Any, pool: int | None, bare: bool, options: Any
) -> requests.Session:
    session.trust_env = False
    if pool is not None:
        wrapped = HTTPAdapter(pool_maxsize=pool, pool_block=True)
    if not bare:
        wrapped = redouble.requests.Adapter(**ours, wrapped=wrapped)
    if wrapped is not None:
        session.mount("http://", wrapped)
    for name, value in options.items():
        setattr(session, name, value)
    return session


def _session(
    ours: Any, pool: int | None, bare: bool, options: Any
) -> Callable[[], Awaitable[aiohttp.ClientSession]]:
    async def make() -> aiohttp.ClientSession:
        given: dict[str, Any] = {"cookie_jar": aiohttp.CookieJar(unsafe=True), **options}
        if pool is not None:
            given["connector"] = aiohttp.TCPConnector(limit=pool)
        if not bare:
            given["middlewares"] = [redouble.aiohttp.middleware(**ours), *given.get("middlewares", ())]
        return aiohttp.ClientSession(**given)

    return make
