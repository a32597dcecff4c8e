"""Uploads that go wrong halfway, and bodies that look as if they could be sent again."""

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


def anew(name: str, body: bytes = LARGE) -> Any:
    return replayable(partial(async_pieces, body) if is_async(name) else partial(pieces, body))


def walked(name: str, body: bytes = LARGE) -> Any:
    return async_pieces(body) if is_async(name) else pieces(body)


@pytest.mark.parametrize("script", ["503~early,200", "rst,200", "close,200", "rst~late,200"])
@pytest.mark.parametrize("kind", ["bytes", "function"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_large_body_that_was_cut_off_is_sent_again_whole(
    server: Server, name: str, kind: str, script: str
) -> None:
    url = server.url(script)
    with client(name, POLICY) as http:
        seen = http.request("PUT", url, body=LARGE if kind == "bytes" else anew(name))
        assert (seen.outcome, seen.report().attempts) == (200, 2)
    assert (server.ledger(url)[-1].body == LARGE) is True  # no comparison of a megabyte to be shown


@pytest.mark.parametrize("script", ["503~early,200", "rst,200", "close,200"])
@pytest.mark.parametrize("name", CLIENTS)
def test_the_rest_of_an_iterator_is_not_sent(server: Server, name: str, script: str) -> None:
    """Some of it went into the connection that broke."""
    url = server.url(script)
    with client(name, POLICY) as http:
        seen = http.request("PUT", url, body=walked(name))
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
def test_what_was_not_asked_for_was_not_sent(server: Server, script: str) -> None:
    """Without "100 Continue" an iterator has not been begun, so it can be sent after all."""
    url = server.url(script)
    with client("aiohttp", POLICY) as http:
        assert http.request("PUT", url, body=apieces(), expect100=True).outcome == 200
    assert [entry.body for entry in server.ledger(url)] == [b"", DATA]


# --------------------------------------------------------- what only looks like a re-iterable


@pytest.mark.parametrize(
    ("name", "open_file"),
    [
        *((name, anyio.open_file) for name in HTTPX if "-" in name),
        *((name, trio.open_file) for name in HTTPX if name.endswith("trio")),
    ],
)
def test_an_async_file_is_not_sent_empty(
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
def test_the_body_of_an_answer_is_passed_on_once(server: Server, library: str, bare: bool) -> None:
    """It can be iterated, but it is gone then; and the request that it answers is not made again for it."""
    source, url = server.url("200~body=upstream"), server.url("503,200")
    with client(library, POLICY) as http, client(library, bare=bare) as other:
        with other.raw.stream("GET", source) as answer:
            seen = http.request("PUT", url, body=answer.stream)
        assert (seen.status, seen.report().reason) == (503, "not_replayable")
    assert [entry.body for entry in server.ledger(url)] == [b"upstream"]
    assert len(server.ledger(source)) == 1


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_a_stream_of_ones_own_class_is_sent_once(server: Server, library: str) -> None:
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


# ----------------------------------------------------------------------------- whatever comes

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
def test_what_is_answered_well_was_received_whole(
    server: Server, name: str, steps: list[str], size: int, kind: str, start: int, method: str
) -> None:
    """Whatever has happened before: no body is empty, cut off or begun in its middle."""
    body = pattern(size)
    file = BytesIO(bytes(start) + body)
    file.seek(start)
    made = {"bytes": body, "function": anew(name, body), "iterator": walked(name, body), "file": file}
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
