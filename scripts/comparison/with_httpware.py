"""httpware: its retry as it is, of three attempts. A limit for all of a call is async only."""

from __future__ import annotations

import asyncio

import httpx2
from httpware import AsyncClient, AsyncRetry, AsyncTimeout, Client, Retry

from comparison import by_httpx
from comparison.asked import Asked, Seen


def send(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request through it."""
    if asked.limited:
        asyncio.run(limited(url, asked, seen))
        return
    with (
        httpx2.Client(timeout=asked.total) as inner,
        Client(httpx2_client=inner, middleware=[Retry()]) as client,
    ):
        by_httpx.send(client, url, asked, seen)


async def limited(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request with a limit."""
    async with AsyncClient(middleware=[AsyncTimeout(timeout=asked.total), AsyncRetry()]) as client:
        response = await client.get(url)
        seen.status = response.status_code
