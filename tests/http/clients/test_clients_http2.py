"""HTTP/2 with the clients that support it: the same retries, on one connection."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from redouble import Retry
from tests.support.http.clients import HTTPX, TLS, client
from tests.support.http.h2_server import BODY, H2Server


def http2(name: str) -> Any:
    """Make the transport that knows beforehand that the server speaks it."""
    library, _, loop = name.partition("-")
    kind = "AsyncHTTPTransport" if loop else "HTTPTransport"
    return getattr(importlib.import_module(library), kind)(verify=TLS, http1=False, http2=True)


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("stream", [False, True])
def test_failures_and_answers_share_a_connection(name: str, stream: bool) -> None:
    """What is retried is closed, so the connection serves the next attempt."""
    with H2Server(503, 503, 200) as server, client(name, Retry(backoff=[0] * 2), wrapped=http2(name)) as http:
        seen = http.request("PUT", server.url, body=b"data", stream=stream)
        assert (seen.error, seen.status, seen.content) == (None, 200, BODY)
        assert (seen.report().attempts, seen.response.http_version) == (3, "HTTP/2")
        assert http.get(server.url).status == 200
    assert server.received == [*[("PUT", b"data", 1)] * 3, ("GET", b"", 1)]


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("fault", ["reset", "refused", "cut", "goaway"])
def test_a_stream_that_breaks_is_begun_anew(name: str, fault: str) -> None:
    """Be it before the answer or within its body."""
    with H2Server(fault, 200) as server, client(name, Retry(backoff=[0]), wrapped=http2(name)) as http:
        seen = http.get(server.url)
    assert (seen.error, seen.status, seen.content) == (None, 200, BODY)
    assert seen.report().attempts == len(server.received) == 2


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("fault", ["reset", "cut"])
def test_a_post_that_breaks_is_not_sent_again(name: str, fault: str) -> None:
    """It may have arrived; the error is the client's own."""
    with H2Server(fault, 200) as server, client(name, Retry(backoff=[0]), wrapped=http2(name)) as http:
        seen = http.request("POST", server.url, body=b"order")
    assert isinstance(seen.error, importlib.import_module(name.partition("-")[0]).RemoteProtocolError)
    assert (seen.report().reason, seen.report().attempts, len(server.received)) == ("stopped", 1, 1)


@pytest.mark.parametrize("name", HTTPX)
def test_a_last_failure_is_returned(name: str) -> None:
    """With its body."""
    with H2Server(503) as server, client(name, Retry(attempts=2, backoff=[0]), wrapped=http2(name)) as http:
        seen = http.get(server.url)
    assert (seen.status, seen.content, seen.report().reason) == (503, BODY, "attempts")
