"""Recorders and mocks of HTTP: each sees every attempt, or what docs/how-to/testing.md says."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import redouble.requests
from tests.libraries.retrying_clients import CLIENTS, POLICY, by_aiohttp, by_requests
from tests.libraries.servers import library
from tests.support.servers import Server

MOCKED = "http://shop.test/orders"
STATUSES = (503, 503, 200)


HTTPX = {name: CLIENTS[name] for name in ("httpx", "httpx, async")}


@pytest.fixture(scope="module")
def scripted() -> Generator[Server]:
    with Server() as running:
        yield running


# ------------------------------------------------------------------------------- vcrpy


@pytest.mark.parametrize("name", CLIENTS)
def test_vcrpy_records_every_attempt_and_plays_it_back(scripted: Server, tmp_path: Path, name: str) -> None:
    """With aiohttp it stands above our middleware, so it records the call, and plays back its result."""
    url, cassette = scripted.url("503*2,200"), str(tmp_path / "cassette.yaml")
    with library("vcr").use_cassette(cassette) as recorded:
        assert CLIENTS[name](url) == 200
    assert len(scripted.ledger(url)) == 3
    assert len(recorded.requests) == (1 if name == "aiohttp" else 3)
    with library("vcr").use_cassette(cassette, record_mode="none") as played:
        assert CLIENTS[name](url) == 200
    assert played.all_played
    assert len(scripted.ledger(url)) == 3  # nothing goes to the network


def test_vcrpy_records_an_adapter_that_has_connections_already(scripted: Server, tmp_path: Path) -> None:
    """Before the cassette, in it, and after it."""
    cassette = str(tmp_path / "cassette.yaml")
    with library("requests").Session() as session:
        session.mount("http://", redouble.requests.Adapter(POLICY))
        assert session.get(scripted.url("503,200")).status_code == 200
        for _ in range(2):
            url = scripted.url("503,200~size=5000")
            with library("vcr").use_cassette(cassette, record_mode="all") as recorded:
                response = session.get(url, stream=True)
                assert len(b"".join(response.iter_content(500))) == 5000
            assert [entry.uri for entry in recorded.requests[-2:]] == [url, url]
            assert session.get(scripted.url("503,200")).status_code == 200


# -------------------------------------------------------------- responses, requests-mock


@pytest.mark.parametrize("stream", [False, True])
def test_responses_sees_every_attempt(stream: bool) -> None:
    with library("responses").RequestsMock() as mocked, library("requests").Session() as session:
        session.mount("http://", redouble.requests.Adapter(POLICY))
        for status in STATUSES:
            mocked.get(MOCKED, status=status, body="x" * 5000)
        response = session.get(MOCKED, stream=stream)
        assert (response.status_code, len(response.content), len(mocked.calls)) == (200, 5000, 3)


def test_responses_may_raise_errors() -> None:
    with library("responses").RequestsMock() as mocked:
        mocked.get(MOCKED, body=library("requests").ConnectionError("reset"))
        mocked.get(MOCKED, status=200)
        assert (by_requests(MOCKED), len(mocked.calls)) == (200, 2)


def test_requests_mock_replaces_the_adapter_unless_the_adapter_sends_through_it() -> None:
    requests_mock, replies = library("requests_mock"), [{"status_code": status} for status in STATUSES]
    with requests_mock.Mocker() as mocked:
        mocked.get(MOCKED, replies)
        assert (by_requests(MOCKED), mocked.call_count) == (503, 1)
    wrapped = requests_mock.Adapter()
    wrapped.register_uri("GET", MOCKED, replies)
    assert (by_requests(MOCKED, wrapped=wrapped), wrapped.call_count) == (200, 3)


# ----------------------------------------------------------------- respx, pytest-httpx


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize(("using", "seen"), [("httpcore", (200, 3)), ("httpx", (503, 1))])
def test_respx_sees_every_attempt(name: str, using: str, seen: tuple[int, int]) -> None:
    """But ``using="httpx"`` replaces the transport of the client."""
    with library("respx").mock(using=using) as mocked:
        route = mocked.get(MOCKED)
        route.side_effect = [library("httpx").Response(status) for status in STATUSES]
        assert (HTTPX[name](MOCKED), route.call_count) == seen


@pytest.mark.parametrize("name", HTTPX)
def test_pytest_httpx_sees_every_attempt(name: str, httpx_mock: Any) -> None:
    for status in STATUSES:
        httpx_mock.add_response(url=MOCKED, status_code=status)
    assert (HTTPX[name](MOCKED), len(httpx_mock.get_requests())) == (200, 3)


# ------------------------------------------------------------------------- aioresponses


def test_aioresponses_replaces_the_request_with_its_middlewares() -> None:
    """So there is one attempt."""

    def response(*args: Any, **options: Any) -> Any:
        # aioresponses does not pass what aiohttp 3.14 requires.
        return library("aiohttp").ClientResponse(*args, stream_writer=Mock(output_size=0), **options)

    with library("aioresponses").aioresponses() as mocked:
        for status in STATUSES:
            mocked.get(MOCKED, status=status, response_class=response)
        assert by_aiohttp(MOCKED) == 503
        assert [len(calls) for calls in mocked.requests.values()] == [1]
