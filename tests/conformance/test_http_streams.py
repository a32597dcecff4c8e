"""Streamed responses over HTTP: retried before their first byte, and never after it, with every client."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from redouble import CircuitBreaker, Layer, Reason, Retry
from tests.support.http.clients import CLIENTS, HttpResult, client
from tests.support.servers import Received, Server, pattern

SILENCE = 0.2  # the read timeout of the client, in seconds
DRIPPED = b"abcdefghij"
CHUNKED = "503~chunked~size=200000~piece=9000"
KEY = {"Idempotency-Key": "k"}


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def policy(**options: Any) -> Retry:
    said: dict[str, Any] = {"attempts": 4, "backoff": [0] * 9}
    return Retry(**said | options)


def streamed(
    name: str, server: Server, script: str, layer: Layer | None = None, method: str = "GET", **options: Any
) -> tuple[HttpResult, list[Received]]:
    """Iterate over the body of a response, and return the result and the received requests."""
    url = server.url(script)
    with client(name, layer or policy(), **options.pop("of_client", {})) as http:
        seen = http.request(method, url, stream=True, **options)
    return seen, server.ledger(url)


def events(seen: HttpResult) -> int:
    return b"".join(seen.pieces).count(b"\n\n")


def check_committed(seen: HttpResult, received: list[Received], attempts: int = 1) -> None:
    assert seen.error is not None
    assert seen.pieces
    assert (seen.report().reason, seen.report().attempts) == (Reason.committed, attempts)
    assert [note for note in seen.notes if "items had been handed out" in note]
    assert len(received) == attempts


# ----------------------------------------------------------------------------- llm-fiber


def test_lf_adr_05_before_any_chunk(name: str, server: Server) -> None:
    """LF-ADR-05: a 503 before any chunk is retried."""
    seen, received = streamed(name, server, "503,sse")
    assert (seen.status, seen.error, events(seen), len(received)) == (200, None, 4, 2)


@pytest.mark.parametrize(
    ("script", "method", "options"),
    [
        pytest.param("sse~rst=1,sse", "GET", {}, id="LF-ADR-05.reset-after-1"),
        pytest.param("sse~stall=1,sse", "GET", {"timeout": SILENCE}, id="LF-ADR-05.silence-after-1"),
        pytest.param("sse~rst=1,sse", "POST", {"headers": KEY}, id="LF-ADR-05.idempotency-key"),
    ],
)
def test_lf_adr_05_after_a_chunk(
    name: str, server: Server, script: str, method: str, options: dict[str, Any]
) -> None:
    """LF-ADR-05: after a chunk an error is raised at once, for every request."""
    seen, received = streamed(name, server, script, method=method, **options)
    check_committed(seen, received)
    assert events(seen) <= 1


# ------------------------------------------------------------------------------ httpware


def test_hw_st_01(name: str, server: Server) -> None:
    """HW-ST-01: a stream is retried like other requests (not in httpware); a final 503 can be read."""
    seen, received = streamed(name, server, "503,200")
    assert (seen.status, len(received)) == (200, 2)
    seen, received = streamed(name, server, "503~body=sorry")
    assert (seen.status, seen.error, len(received)) == (503, None, 4)
    assert b"".join(seen.pieces) == b"sorry"


# -------------------------------------------------------------------------- commit points


@pytest.mark.parametrize("inside", [False, True])
def test_stream_commit_points_first_byte(name: str, server: Server, inside: bool) -> None:
    """stream.commit_points: after the first byte nothing is retried, with a breaker inside or outside."""
    breaker = CircuitBreaker(failures=9)
    layer = policy() | breaker if inside else breaker | policy()
    seen, received = streamed(name, server, "503,sse~cut=2,sse", layer)
    check_committed(seen, received, attempts=2)
    assert breaker.state == "closed"


def test_stream_commit_points_head(name: str, server: Server) -> None:
    """stream.commit_points: a body that breaks before its first byte restarts (in gRPC the head commits)."""
    seen, received = streamed(name, server, "sse~cut=0,200~chunked~cut=0,sse")
    assert (seen.error, events(seen), len(received)) == (None, 4, 3)
    assert seen.report().attempts == 3
    seen, received = streamed(name, server, "sse~cut=0,404")
    assert seen.error is not None
    assert (seen.pieces, len(received)) == ([], 2)


def test_stream_commit_points_mid_way(name: str, server: Server) -> None:
    """stream.commit_points: a break is raised, but a call that reads the whole body is restarted."""
    url = server.url("200~size=9000~cut=4000,200~size=9000")
    with client(name, policy()) as http:
        assert http.get(url).content == pattern(9000)
    seen, received = streamed(name, server, "200~size=9000~cut=4000,200~size=9000", piece=1000)
    check_committed(seen, received)
    assert pattern(9000).startswith(b"".join(seen.pieces))


@pytest.mark.quiet
def test_stream_commit_points_time_after_commit(name: str, server: Server) -> None:
    """stream.commit_points: the limit of an attempt does not cancel it after the commit."""
    layer = policy(attempt_timeout=0.3, attempts=9)
    seen, _ = streamed(name, server, f"200~body={DRIPPED.decode()}~drip=0.06", layer)
    assert (seen.error, b"".join(seen.pieces)) == (None, DRIPPED)


def test_stream_commit_points_one_shot(name: str, server: Server) -> None:
    """stream.commit_points: with a one-shot body the first failure is returned."""

    def pieces() -> Generator[bytes]:
        yield b"a"

    async def apieces() -> Any:
        yield b"a"

    body: Any = apieces() if name not in ("httpx", "httpx2", "requests") else pieces()
    seen, received = streamed(name, server, "503,200", method="PUT", body=body)
    assert (seen.status, len(received), seen.report().reason) == (503, 1, Reason.not_replayable)


@pytest.mark.parametrize("discarded", ["503", "503~size=200000", CHUNKED, "sse~cut=0"])
def test_stream_commit_points_discarded(name: str, server: Server, discarded: str) -> None:
    """stream.commit_points: a discarded response is closed, so a pool of one connection is enough."""
    if "trio" in name and discarded == CHUNKED:
        pytest.skip("httpcore leaves to Trio an iterator that was begun, and Trio complains")
    url = server.url(f"{discarded},{discarded},{discarded},200")
    with client(name, policy(), pool=1) as http:
        assert [http.get(url, stream=True).status for _ in range(2)] == [200, 200]
    assert len(server.ledger(url)) == 5
