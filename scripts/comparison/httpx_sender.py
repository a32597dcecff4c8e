"""Sending a request by a blocking client of httpx or httpx2, with any transport."""

from __future__ import annotations

from typing import Any

from comparison.request import Outcome, Request


def send(client: Any, url: str, request: Request, outcome: Outcome) -> None:
    """Send a request, and record the response as it arrives."""
    if request.iterate:
        with client.stream(request.method, url) as response:
            outcome.status = response.status_code
            for piece in response.iter_raw():
                outcome.received += piece
        return
    response = client.request(request.method, url, **body(request))
    outcome.status = response.status_code
    outcome.received += response.content


def body(request: Request) -> dict[str, Any]:
    """Return the body as keyword arguments of httpx."""
    source = request.source()
    if source is None:
        return {}
    return {"files": {"file": ("name", source)}} if request.is_form else {"content": source}
