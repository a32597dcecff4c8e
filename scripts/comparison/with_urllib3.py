"""urllib3's Retry, mounted on a session of requests: three attempts, and the usual statuses."""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from comparison.asked import Asked, Seen


def send(url: str, asked: Asked, seen: Seen) -> None:
    """Send a request through it."""
    retry = Retry(total=2, backoff_factor=0.01, status_forcelist=[429, 502, 503, 504])
    send_by(HTTPAdapter(max_retries=retry), url, asked, seen)


def send_by(adapter: Any, url: str, asked: Asked, seen: Seen) -> None:
    """Send a request through an adapter."""
    with requests.Session() as session:
        session.mount("http://", adapter)
        source = asked.source()
        body: dict[str, Any] = {"files": {"file": ("name", source)}} if asked.parts else {"data": source}
        with session.request(
            asked.method, url, **body, stream=asked.iterate, timeout=asked.total
        ) as response:
            seen.status = response.status_code
            for piece in response.iter_content(None) if asked.iterate else [response.content]:
                seen.received += piece
