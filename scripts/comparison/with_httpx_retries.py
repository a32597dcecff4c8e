"""httpx-retries: its transport, with three attempts. ``total_timeout`` is what it has for all of a call."""

from __future__ import annotations

import httpx
from httpx_retries import Retry, RetryTransport

from comparison import by_httpx
from comparison.asked import Asked, Seen


def send(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request through it."""
    retry = Retry(total=2, backoff_factor=0.01, total_timeout=asked.total)
    with httpx.Client(transport=RetryTransport(retry=retry), timeout=asked.total) as client:
        by_httpx.send(client, url, asked, seen)
