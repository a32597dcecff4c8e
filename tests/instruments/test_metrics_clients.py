"""Requests of real HTTP clients are counted once each, by the status of the response."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redouble import Retry
from redouble.instruments import memory
from tests.support.http.clients import CLIENTS, client
from tests.support.instruments.counts import NAME, counts
from tests.support.servers import Server

POLICY = Retry(backoff=[0, 0], attempts=3, name=NAME)
WELL: dict[str, float] = {"calls true": 1, "attempts none ok": 1}


def lost(reason: str, **more: float) -> dict[str, float]:
    return {"calls false": 1, f"given_up {reason}": 1} | {key.replace("_", " "): n for key, n in more.items()}


ROWS: list[tuple[str, dict[str, float]]] = [
    ("200", WELL),
    ("404", WELL),
    ("503,200", WELL | {"attempts server failed": 1, "retries http_5xx": 1}),
    ("429,200", WELL | {"attempts throttled failed": 1, "retries rate_limit": 1}),
    ("rst,200", WELL | {"attempts network failed": 1, "retries network": 1}),
    (
        "503",
        lost("attempts", attempts_server_failed=3, errors_503=1) | {"retries http_5xx": 2},
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_counted_once(server: Server, name: str, stream: bool) -> None:
    seen: dict[str, dict[str, float]] = {}
    with client(name, POLICY) as http:
        for script, _ in ROWS:
            with memory.instrument() as metrics:
                http.get(server.url(script), stream=stream)
            seen[script] = counts(metrics)
    assert seen == dict(ROWS)


@pytest.mark.parametrize("name", CLIENTS)
def test_no_part_of_an_address_is_a_label(server: Server, name: str) -> None:
    with client(name, Retry(backoff=[0], attempts=2)) as http, memory.instrument() as metrics:
        http.get(server.url("503,200") + "?token=hunter2")
        http.get(server.url("rst") + "?token=hunter2")
    found = str(metrics.series())
    assert metrics.counter("calls") == 2
    assert not [secret for secret in ("hunter", "127.0.0.1", "503,200", "http:") if secret in found]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_broken_body_does_not_count_as_another_call(server: Server, name: str) -> None:
    with client(name, POLICY) as http, memory.instrument() as metrics:
        assert http.get(server.url("200~size=9~cut=3,200")).status == 200
    found = counts(metrics)
    assert metrics.counter("calls", ok="true") == 1 == metrics.counter("calls"), found
    assert metrics.counter("attempts") == 2, found
    assert metrics.counter("retries") == 1, found
