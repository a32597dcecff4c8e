"""Redouble with each HTTP client: the preset for HTTP, three attempts, a time limit for the whole call."""

from __future__ import annotations

import asyncio

import aiohttp
import httpx
import httpx2

import redouble.aiohttp
import redouble.httpx
import redouble.httpx2
import redouble.requests
from comparison import httpx_sender, with_aiohttp_retry, with_urllib3
from comparison.request import Outcome, Request
from redouble import Retry, presets


def policy(request: Request) -> Retry:
    """Return the policy of a request."""
    return presets.http(timeout=request.total)


def send_by_httpx(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by httpx."""
    with httpx.Client(transport=redouble.httpx.Transport(policy(request)), timeout=request.total) as client:
        httpx_sender.send(client, url, request, outcome)


def send_by_httpx2(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by httpx2."""
    with httpx2.Client(transport=redouble.httpx2.Transport(policy(request)), timeout=request.total) as client:
        httpx_sender.send(client, url, request, outcome)


def send_by_requests(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by requests."""
    with_urllib3.send_by(redouble.requests.Adapter(policy(request)), url, request, outcome)


def send_by_aiohttp(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request by aiohttp."""
    asyncio.run(_send_by_aiohttp(url, request, outcome))


async def _send_by_aiohttp(url: str, request: Request, outcome: Outcome) -> None:
    retrying = redouble.aiohttp.middleware(presets.http() if request.own_limit else policy(request))
    timeout = aiohttp.ClientTimeout(total=request.total) if request.own_limit else None
    async with aiohttp.ClientSession(middlewares=[retrying], timeout=timeout) as session:
        await with_aiohttp_retry.send_by(session, url, request, outcome)
