"""stamina around httpx as in its documentation: a retried function that raises for an error status."""

from __future__ import annotations

import httpx
import stamina

from comparison import httpx_sender
from comparison.request import Outcome, Request


def send(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request in a retried function; the body is the caller's and therefore created once."""
    body = httpx_sender.body(request)

    @stamina.retry(on=httpx.HTTPError, attempts=3, timeout=request.total, wait_initial=0.01, wait_jitter=0.01)
    def fetch() -> None:
        if request.iterate:
            httpx_sender.send(client, url, request, outcome)
            return
        response = client.request(request.method, url, **body)
        outcome.status = response.status_code
        response.raise_for_status()
        outcome.received += response.content

    with httpx.Client(timeout=request.total) as client:
        fetch()
