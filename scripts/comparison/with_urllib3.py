"""urllib3's Retry, mounted on a session of requests: three attempts, and the usual statuses."""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from comparison.request import Outcome, Request


def send(url: str, request: Request, outcome: Outcome) -> None:
    """Send a request through it."""
    retry = Retry(total=2, backoff_factor=0.01, status_forcelist=[429, 502, 503, 504])
    send_by(HTTPAdapter(max_retries=retry), url, request, outcome)


def send_by(adapter: Any, url: str, request: Request, outcome: Outcome) -> None:
    """Send a request through an adapter."""
    with requests.Session() as session:
        session.mount("http://", adapter)
        source = request.source()
        body: dict[str, Any] = {"files": {"file": ("name", source)}} if request.is_form else {"data": source}
        with session.request(
            request.method, url, **body, stream=request.iterate, timeout=request.total
        ) as response:
            outcome.status = response.status_code
            for piece in response.iter_content(None) if request.iterate else [response.content]:
                outcome.received += piece
