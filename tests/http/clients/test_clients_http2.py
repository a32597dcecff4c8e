"""HTTP/2 with the clients that support it: the same retries, on one connection."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from redouble import Retry
from tests.support.http.clients import HTTPX, TLS, client
from tests.support.http.h2_server import BODY, H2Server


def http2(name: str) -> Any:
    """Return a transport of the library that uses HTTP/2 only."""
    library, _, loop = name.partition("-")
    kind = "AsyncHTTPTransport" if loop else "HTTPTransport"
    return getattr(importlib.import_module(library), kind)(verify=TLS, http1=False, http2=True)


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("stream", [False, True])
def test_retries_reuse_the_connection(name: str, stream: bool) -> None:
    """A retried response is closed, so that its connection serves the next attempt."""
    with H2Server(503, 503, 200) as server, client(name, Retry(backoff=[0] * 2), wrapped=http2(name)) as http:
        seen = http.request("PUT", server.url, body=b"data", stream=stream)
        assert (seen.error, seen.status, seen.content) == (None, 200, BODY)
        assert (seen.report().attempts, seen.response.http_version) == (3, "HTTP/2")
        assert http.get(server.url).status == 200
    assert server.received == [*[("PUT", b"data", 1)] * 3, ("GET", b"", 1)]


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("fault", ["reset", "refused", "cut", "goaway"])
def test_a_broken_stream_is_retried(name: str, fault: str) -> None:
    """Before the response or within its body."""
    with H2Server(fault, 200) as server, client(name, Retry(backoff=[0]), wrapped=http2(name)) as http:
        seen = http.get(server.url)
    assert (seen.error, seen.status, seen.content) == (None, 200, BODY)
    assert seen.report().attempts == len(server.received) == 2


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("fault", ["reset", "cut"])
def test_a_post_on_a_broken_stream_is_not_resent(name: str, fault: str) -> None:
    """It may have been received; the client's own error is raised."""
    with H2Server(fault, 200) as server, client(name, Retry(backoff=[0]), wrapped=http2(name)) as http:
        seen = http.request("POST", server.url, body=b"order")
    assert isinstance(seen.error, importlib.import_module(name.partition("-")[0]).RemoteProtocolError)
    assert (seen.report().reason, seen.report().attempts, len(server.received)) == ("stopped", 1, 1)


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("fault", ["refused", "goaway"])
def test_a_post_that_the_server_refused_to_process_is_resent(name: str, fault: str) -> None:
    """By REFUSED_STREAM, and by GOAWAY with 0 as the last stream, the server promises that it did nothing."""
    with H2Server(fault, 200) as server, client(name, Retry(backoff=[0]), wrapped=http2(name)) as http:
        seen = http.request("POST", server.url, body=b"order")
    assert (seen.error, seen.status, seen.report().attempts) == (None, 200, 2)
    assert [received[:2] for received in server.received] == [("POST", b"order")] * 2


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_refused_body_that_was_read_is_not_resent(name: str, method: str) -> None:
    """It was sent, so that a second request would have an empty body."""
    body = async_iterator if "-" in name else iter
    with H2Server("refused", 200) as server, client(name, Retry(backoff=[0]), wrapped=http2(name)) as http:
        seen = http.request(method, server.url, body=body([b"or", b"der"]))
    assert isinstance(seen.error, importlib.import_module(name.partition("-")[0]).RemoteProtocolError)
    assert seen.report().reason == "not_replayable"
    assert server.received == [(method, b"order", 1)]


async def async_iterator(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize("name", HTTPX)
def test_the_last_failed_response_is_returned(name: str) -> None:
    """Including its body."""
    with H2Server(503) as server, client(name, Retry(attempts=2, backoff=[0]), wrapped=http2(name)) as http:
        seen = http.get(server.url)
    assert (seen.status, seen.content, seen.report().reason) == (503, BODY, "attempts")
