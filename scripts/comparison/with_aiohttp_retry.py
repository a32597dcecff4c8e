"""aiohttp-retry: its client, with three attempts, its own statuses and methods, and errors of aiohttp."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp_retry import ExponentialRetry, RetryClient

from comparison.asked import Asked, Seen, async_pieces


def send(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request through it."""
    asyncio.run(_send(url, asked, seen))


async def _send(url: str, asked: Asked, seen: Seen) -> None:
    retry = ExponentialRetry(attempts=3, start_timeout=0.01, exceptions={aiohttp.ClientError})
    timeout = aiohttp.ClientTimeout(total=asked.total)
    async with RetryClient(retry_options=retry, timeout=timeout) as client:
        await send_by(client, url, asked, seen)


async def send_by(client: Any, url: str, asked: Asked, seen: Seen) -> None:
    """Send a request through a client."""
    async with client.request(asked.method, url, data=body(asked)) as response:
        seen.status = response.status
        if not asked.iterate:
            seen.received += await response.read()
            return
        async for piece in response.content.iter_any():
            seen.received += piece


def body(asked: Asked) -> Any:
    """Spell the body as aiohttp wants it."""
    if asked.body == "generator":
        return async_pieces()
    source = asked.source()
    if not asked.parts:
        return source
    form = aiohttp.FormData()
    form.add_field("file", source, filename="name")
    return form
