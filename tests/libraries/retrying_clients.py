"""A GET by each HTTP client with Redouble: three attempts without delays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import redouble.aiohttp
import redouble.httpx
import redouble.httpx2
import redouble.requests
from redouble import Retry
from tests.libraries.servers import library

POLICY = Retry(attempts=3, backoff=[0, 0])


def by_requests(url: str, **options: Any) -> int:
    requests = library("requests")
    with requests.Session() as session:
        session.mount("http://", redouble.requests.Adapter(POLICY, **options))
        status: int = session.get(url).status_code
        return status


def by_httpx(url: str, name: str = "httpx") -> int:
    module: Any = {"httpx": redouble.httpx, "httpx2": redouble.httpx2}[name]
    with library(name).Client(transport=module.Transport(POLICY)) as client:
        status: int = client.get(url).status_code
        return status


def by_async_httpx(url: str, name: str = "httpx") -> int:
    module: Any = {"httpx": redouble.httpx, "httpx2": redouble.httpx2}[name]

    async def main() -> int:
        async with library(name).AsyncClient(transport=module.AsyncTransport(POLICY)) as client:
            status: int = (await client.get(url)).status_code
            return status

    return asyncio.run(main())


def by_aiohttp(url: str) -> int:
    async def main() -> int:
        middleware = redouble.aiohttp.middleware(POLICY)
        async with (
            library("aiohttp").ClientSession(middlewares=(middleware,)) as session,
            session.get(url) as response,
        ):
            status: int = response.status
            return status

    return asyncio.run(main())


CLIENTS: dict[str, Callable[[str], int]] = {
    "requests": by_requests,
    "httpx": by_httpx,
    "httpx, async": by_async_httpx,
    "httpx2": lambda url: by_httpx(url, "httpx2"),
    "httpx2, async": lambda url: by_async_httpx(url, "httpx2"),
    "aiohttp": by_aiohttp,
}
