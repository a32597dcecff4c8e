"""Redouble under each of its clients: the preset for HTTP, of three attempts, with a limit for the call."""

from __future__ import annotations

import asyncio

import aiohttp
import httpx
import httpx2

import redouble.aiohttp
import redouble.httpx
import redouble.httpx2
import redouble.requests
from comparison import by_httpx, with_aiohttp_retry, with_urllib3
from comparison.asked import Asked, Seen
from redouble import Retry, presets


def policy(asked: Asked) -> Retry:
    """Make the policy."""
    return presets.http(timeout=asked.total)


def send_by_httpx(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request by httpx."""
    with httpx.Client(transport=redouble.httpx.Transport(policy(asked)), timeout=asked.total) as client:
        by_httpx.send(client, url, asked, seen)


def send_by_httpx2(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request by httpx2."""
    with httpx2.Client(transport=redouble.httpx2.Transport(policy(asked)), timeout=asked.total) as client:
        by_httpx.send(client, url, asked, seen)


def send_by_requests(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request by requests."""
    with_urllib3.send_by(redouble.requests.Adapter(policy(asked)), url, asked, seen)


def send_by_aiohttp(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request by aiohttp."""
    asyncio.run(_send_by_aiohttp(url, asked, seen))


async def _send_by_aiohttp(url: str, asked: Asked, seen: Seen) -> None:
    async with aiohttp.ClientSession(middlewares=[redouble.aiohttp.middleware(policy(asked))]) as session:
        await with_aiohttp_retry.send_by(session, url, asked, seen)
