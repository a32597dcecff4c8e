"""stamina around httpx, as its documentation shows it: a function that raises for a bad status."""

from __future__ import annotations

import httpx
import stamina

from comparison import by_httpx
from comparison.asked import Asked, Seen


def send(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request in a function that is retried; the body is the caller's, and so made once."""
    body = by_httpx.body(asked)

    @stamina.retry(on=httpx.HTTPError, attempts=3, timeout=asked.total, wait_initial=0.01, wait_jitter=0.01)
    def fetch() -> None:
        if asked.iterate:
            by_httpx.send(client, url, asked, seen)
            return
        response = client.request(asked.method, url, **body)
        seen.status = response.status_code
        response.raise_for_status()
        seen.received += response.content

    with httpx.Client(timeout=asked.total) as client:
        fetch()
