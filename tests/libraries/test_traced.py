"""Instrumentation libraries: the spans of a call with three attempts, as docs/how-to/http-clients.md says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.libraries.retrying_clients import CLIENTS
from tests.support.servers import Server

ATTEMPTS, CALL = (503, 503, 200), (200,)

# The library of the spans and their statuses: of each attempt, or of the whole call.
SPANS: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "opentelemetry": {
        "requests": {"requests": CALL},
        "httpx": {"httpx": ATTEMPTS},
        "httpx, async": {"httpx": ATTEMPTS},
    },
    "sentry": {
        "requests": {"http.client": ATTEMPTS},
        "httpx": {"http.client": CALL},
        "httpx, async": {"http.client": CALL},
        "httpx2": {"http.client": CALL},
        "httpx2, async": {"http.client": CALL},
        "aiohttp": {"http.client": CALL},
    },
    "ddtrace": {
        "requests": {"requests": CALL, "urllib3": ATTEMPTS},
        "httpx": {"httpx": CALL},
        "httpx, async": {"httpx": CALL},
        "aiohttp": {"aiohttp_client": CALL},
    },
}


@pytest.mark.parametrize("name", SPANS)
def test_the_spans_of_a_call(name: str) -> None:
    with Server() as server:
        urls = [server.url("503*2,200") for _ in CLIENTS]
        command = [sys.executable, "-W", "ignore", "-m", "tests.libraries.traced", name, *urls]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603  ours
        assert [len(server.ledger(url)) for url in urls] == [3] * len(urls)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for client, spans in json.loads(ran.stdout.splitlines()[-1]).items():
        for library, status in spans:
            statuses = found.setdefault(client, {})
            statuses[library] = (*statuses.get(library, ()), status)
    assert found == SPANS[name]
