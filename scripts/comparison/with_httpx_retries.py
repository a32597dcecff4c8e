"""httpx-retries: its transport with three attempts; ``total_timeout`` is its time limit for a whole call."""

from __future__ import annotations

import httpx
from httpx_retries import Retry, RetryTransport

from comparison import httpx_sender
from comparison.request import Outcome, Request


def send(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request through it."""
    retry = Retry(total=2, backoff_factor=0.01, total_timeout=request.total)
    with httpx.Client(transport=RetryTransport(retry=retry), timeout=request.total) as client:
        httpx_sender.send(client, url, request, outcome)
