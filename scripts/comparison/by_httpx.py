"""Sending by a blocking client of httpx or httpx2, whatever is under it."""

from __future__ import annotations

from typing import Any

from comparison.asked import Asked, Seen


def send(client: Any, url: str, asked: Asked, seen: Seen) -> None:
    """Send a request, and note what the caller gets, as it comes."""
    if asked.iterate:
        with client.stream(asked.method, url) as response:
            seen.status = response.status_code
            for piece in response.iter_raw():
                seen.received += piece
        return
    response = client.request(asked.method, url, **body(asked))
    seen.status = response.status_code
    seen.received += response.content


def body(asked: Asked) -> dict[str, Any]:
    """Spell the body as httpx wants it."""
    source = asked.source()
    if source is None:
        return {}
    return {"files": {"file": ("name", source)}} if asked.parts else {"content": source}
