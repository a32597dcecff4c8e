"""aiohttp-retry: its client with three attempts, its default statuses and methods, and errors of aiohttp."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp_retry import ExponentialRetry, RetryClient

from comparison.request import Outcome, Request, async_pieces


def send(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request through it."""
    asyncio.run(_send(url, request, outcome))


async def _send(url: str, request: Request, outcome: Outcome) -> None:
    retry = ExponentialRetry(attempts=3, start_timeout=0.01, exceptions={aiohttp.ClientError})
    timeout = aiohttp.ClientTimeout(total=request.total)
    async with RetryClient(retry_options=retry, timeout=timeout) as client:
        await send_by(client, url, request, outcome)


async def send_by(client: Any, url: str, request: Request, outcome: Outcome) -> None:
    """Send a request through a client."""
    async with client.request(request.method, url, data=body(request)) as response:
        outcome.status = response.status
        if not request.iterate:
            outcome.received += await response.read()
            return
        async for piece in response.content.iter_any():
            outcome.received += piece


def body(request: Request) -> Any:
    """Return the body as aiohttp expects it."""
    if request.body == "generator":
        return async_pieces()
    source = request.source()
    if not request.is_form:
        return source
    form = aiohttp.FormData()
    form.add_field("file", source, filename="name")
    return form
