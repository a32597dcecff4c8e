"""httpware: its retry with default options, three attempts. Its time limit for a whole call is async only."""

from __future__ import annotations

import asyncio

import httpx2
from httpware import AsyncClient, AsyncRetry, AsyncTimeout, Client, Retry

from comparison import httpx_sender
from comparison.request import Outcome, Request


def send(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request through it."""
    if request.limited:
        asyncio.run(limited(url, request, outcome))
        return
    with (
        httpx2.Client(timeout=request.total) as inner,
        Client(httpx2_client=inner, middleware=[Retry()]) as client,
    ):
        httpx_sender.send(client, url, request, outcome)


async def limited(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request with a limit."""
    async with AsyncClient(middleware=[AsyncTimeout(timeout=request.total), AsyncRetry()]) as client:
        response = await client.get(url)
        outcome.status = response.status_code
