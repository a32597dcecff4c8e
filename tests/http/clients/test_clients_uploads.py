"""Uploads that break halfway, and bodies that only look replayable."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Retry
from redouble.http import replayable
from tests.support.http.bodies import DATA, apieces
from tests.support.http.clients import CLIENTS, HTTPX, client, is_async
from tests.support.servers import Server, pattern

POLICY = Retry(attempts=3, backoff=[0, 0])
LARGE = pattern(1 << 20)
PIECE = 65_536

# On Trio httpx leaves the generator of a body that could not be written to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def pieces(body: bytes = LARGE) -> Iterator[bytes]:
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


async def async_pieces(body: bytes = LARGE) -> AsyncIterator[bytes]:
    for piece in pieces(body):
        yield piece


def replayable_body(name: str, body: bytes = LARGE) -> Any:
    return replayable(partial(async_pieces, body) if is_async(name) else partial(pieces, body))


def one_shot_body(name: str, body: bytes = LARGE) -> Any:
    return async_pieces(body) if is_async(name) else pieces(body)


@pytest.mark.parametrize("script", ["503~early,200", "rst,200", "close,200", "rst~late,200"])
@pytest.mark.parametrize("kind", ["bytes", "function"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_large_body_that_was_cut_off_is_resent_whole(
    server: Server, name: str, kind: str, script: str
) -> None:
    while True:
        url = server.url(script)
        with client(name, POLICY) as http:
            seen = http.request("PUT", url, body=LARGE if kind == "bytes" else replayable_body(name))
        # Once in some hundred resets aiohttp reads from a connection that it has closed already.
        if (name, seen.outcome) != ("aiohttp", "AttributeError"):
            break
    assert (seen.outcome, seen.report().attempts) == (200, 2)
    assert (server.ledger(url)[-1].body == LARGE) is True  # so that pytest does not print a megabyte


@pytest.mark.parametrize("script", ["503~early,200", "rst,200", "close,200"])
@pytest.mark.parametrize("name", CLIENTS)
def test_an_iterator_that_was_begun_is_not_resent(server: Server, name: str, script: str) -> None:
    """A part of it was written to the connection that broke."""
    url = server.url(script)
    with client(name, POLICY) as http:
        seen = http.request("PUT", url, body=one_shot_body(name))
        assert (seen.report().attempts, seen.report().reason) == (1, "not_replayable")
        assert seen.outcome != 200
    assert len(server.ledger(url)) == 1


@pytest.mark.parametrize("name", ["httpx", "httpx2", "requests", "aiohttp"])
def test_a_large_file_is_rewound_after_it_was_cut_off(server: Server, name: str) -> None:
    url = server.url("rst,503~early,200")
    with client(name, POLICY) as http, BytesIO(LARGE) as file:
        assert http.request("PUT", url, body=file).outcome == 200
    assert (server.ledger(url)[-1].body == LARGE) is True


# --------------------------------------------------------------------------- 100 Continue


@pytest.mark.parametrize("script", ["503~early,200", "rst,200", "503,200"])
@pytest.mark.parametrize("body", ["bytes", "function"])
def test_aiohttp_waits_for_100_continue_in_each_attempt(server: Server, body: str, script: str) -> None:
    url = server.url(script)
    with client("aiohttp", POLICY) as http:
        what = DATA if body == "bytes" else replayable(apieces)
        seen = http.request("PUT", url, body=what, expect100=True)
        assert (seen.outcome, seen.report().attempts) == (200, 2)
    assert [entry.headers["expect"] for entry in server.ledger(url)] == ["100-continue"] * 2
    assert server.ledger(url)[-1].body == DATA


@pytest.mark.parametrize("script", ["503~early,200", "rst,200"])
def test_an_iterator_is_resent_if_the_server_did_not_continue(server: Server, script: str) -> None:
    """Without "100 Continue" the iterator has not been begun."""
    url = server.url(script)
    with client("aiohttp", POLICY) as http:
        assert http.request("PUT", url, body=apieces(), expect100=True).outcome == 200
    assert [entry.body for entry in server.ledger(url)] == [b"", DATA]


# ------------------------------------------------------- bodies that only look replayable


@pytest.mark.parametrize(
    ("name", "open_file"),
    [
        *((name, anyio.open_file) for name in HTTPX if "-" in name),
        *((name, trio.open_file) for name in HTTPX if name.endswith("trio")),
    ],
)
def test_an_async_file_is_not_resent(
    server: Server, name: str, open_file: Callable[..., Awaitable[Any]], tmp_path: Path
) -> None:
    path = tmp_path / "body"
    path.write_bytes(DATA)

    async def opened() -> Any:
        return await open_file(path, "rb")

    url = server.url("503,200")
    with client(name, POLICY) as http:
        file = http.run(opened)
        seen = http.request("PUT", url, body=file)
        http.run(file.aclose)
        assert (seen.status, seen.report().reason) == (503, "not_replayable")
    assert [entry.body for entry in server.ledger(url)] == [DATA]


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_the_stream_of_another_response_is_sent_once(server: Server, library: str, bare: bool) -> None:
    """It is iterable only once, and the request for it is not repeated."""
    source, url = server.url("200~body=upstream"), server.url("503,200")
    with client(library, POLICY) as http, client(library, bare=bare) as other:
        with other.raw.stream("GET", source) as answer:
            seen = http.request("PUT", url, body=answer.stream)
        assert (seen.status, seen.report().reason) == (503, "not_replayable")
    assert [entry.body for entry in server.ledger(url)] == [b"upstream"]
    assert len(server.ledger(source)) == 1


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_a_user_defined_stream_is_sent_once(server: Server, library: str) -> None:
    """A second iteration may yield anything."""
    theirs: Any = importlib.import_module(library)

    class Own(theirs.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield DATA

    url = server.url("503,200")
    with client(library, POLICY) as http:
        headers = {"content-length": str(len(DATA)), "host": "127.0.0.1"}
        request = theirs.Request("PUT", url, stream=Own(), headers=headers)
        assert http.raw.send(request).status_code == 503
    assert [entry.body for entry in server.ledger(url)] == [DATA]


# ---------------------------------------------------------------------------- property test

STEPS = ("503", "429", "rst", "rst~late", "close", "503~early", "200~cut=3", "rsthead=9", "500")


@pytest.mark.parametrize("name", ["httpx", "httpx2-asyncio", "requests", "aiohttp"])
@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=3),
    size=st.integers(1, 300) | st.just(200_000),
    kind=st.sampled_from(["bytes", "file", "function", "iterator"]),
    start=st.integers(0, 20),
    method=st.sampled_from(["PUT", "POST"]),
)
def test_a_successful_request_was_received_whole(
    server: Server, name: str, steps: list[str], size: int, kind: str, start: int, method: str
) -> None:
    """After any failures: no body is empty, truncated, or without its beginning."""
    body = pattern(size)
    file = BytesIO(bytes(start) + body)
    file.seek(start)
    made = {
        "bytes": body,
        "function": replayable_body(name, body),
        "iterator": one_shot_body(name, body),
        "file": file,
    }
    rewindable = name in ("requests", "aiohttp")
    url = server.url(",".join([*steps, "200"]))
    with client(name, Retry(attempts=4, backoff=[0] * 3)) as http:
        seen = http.request(method, url, body=made[kind if kind != "file" or rewindable else "bytes"])
        tries = seen.report().attempts
    received = server.wait_for(url, 1)
    assert tries == len(received)
    assert tries == 1 or method == "PUT"
    assert tries == 1 or kind != "iterator"
    for entry in received:
        assert (entry.body == body) is True or not entry.complete
        assert entry.complete or not entry.played.startswith("200")
