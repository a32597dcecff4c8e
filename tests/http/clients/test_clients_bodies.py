"""Bodies of requests are resent byte for byte, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any

import pytest

from redouble import Retry
from tests.support.http.bodies import (
    BEFORE,
    DATA,
    Unseekable,
    multipart,
    one_shot_bodies,
    real_file,
    resendable_bodies,
    rows,
)
from tests.support.http.clients import CLIENTS, client
from tests.support.http.refused_port import opened_later
from tests.support.servers import Server, refused_port

POLICY = Retry(attempts=3, backoff=[0, 0])
NOTE = "(its body cannot be sent again)"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def close(body: Any) -> None:
    # aiohttp may be closing a file in a thread at this moment: then `close` finds it half closed.
    with suppress(AttributeError, TypeError, ValueError):
        body.close()


def bodies(server: Server, url: str) -> list[bytes]:
    received = server.ledger(url)
    assert all(entry.complete for entry in received)
    return [entry.body for entry in received]


@pytest.mark.parametrize(
    ("name", "kind", "script"),
    [
        (name, kind, script)
        for name, kind in rows(CLIENTS, resendable_bodies)
        for script in ("503*2,200", "429,rst~late,200", "200*2~cut=5,200")
        if (name, kind, script[:3])
        != ("aiohttp", "real file", "200")  # see `test_a_file_that_aiohttp_has_closed_is_not_resent`
    ],
)
def test_a_replayable_body_is_resent_whole(server: Server, name: str, kind: str, script: str) -> None:
    """A file is resent from the position it had at first, which need not be its start."""
    url, body = server.url(script), resendable_bodies(name)[kind]()
    with client(name, POLICY) as http:
        seen = http.request("PUT", url, body=body)
        assert (seen.outcome, seen.report().attempts, seen.report().reason) == (200, 3, None)
        close(body)
    assert bodies(server, url) == [DATA] * 3


@pytest.mark.parametrize(("name", "kind"), rows(CLIENTS, one_shot_bodies))
def test_a_one_shot_body_is_not_resent_after_a_response(server: Server, name: str, kind: str) -> None:
    """The caller receives that response."""
    url, body = server.url("503~body=busy,200"), one_shot_bodies(name)[kind]()
    with client(name, POLICY) as http:
        seen = http.request("PUT", url, body=body)
        assert (seen.status, seen.content, seen.report().attempts) == (503, b"busy", 1)
        assert seen.report().reason == "not_replayable"
        close(body)
    assert bodies(server, url) == [DATA]


@pytest.mark.parametrize(("name", "kind"), rows(CLIENTS, one_shot_bodies))
def test_a_one_shot_body_is_not_resent_after_an_error(server: Server, name: str, kind: str) -> None:
    """The client's own error is raised, with a note about the reason."""
    url, body = server.url("rst~late,200"), one_shot_bodies(name)[kind]()
    with client(name, POLICY) as http, client(name, bare=True) as bare:
        expected = bare.request("PUT", server.url("rst~late"), body=DATA).error
        seen = http.request("PUT", url, body=body)
        assert expected is not None
        assert type(seen.error) is type(expected)
        assert (seen.report().reason, seen.report().attempts) == ("not_replayable", 1)
        assert len(seen.notes) == 1
        assert seen.notes[0].endswith(NOTE)
        close(body)
    assert bodies(server, url) == [DATA]


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize(
    ("name", "kind"), [*rows(CLIENTS, one_shot_bodies), *rows(CLIENTS, resendable_bodies)]
)
def test_an_unsent_request_is_resent_with_any_body(name: str, kind: str, method: str) -> None:
    """Whatever its method, because the connection was refused."""
    body = (one_shot_bodies(name) | resendable_bodies(name))[kind]()
    with client(name, POLICY) as http:
        seen = http.request(method, f"http://127.0.0.1:{refused_port()}/", body=body)
        assert (seen.report().attempts, seen.report().reason) == (3, "attempts")
        close(body)


@pytest.mark.parametrize(("name", "kind"), rows(CLIENTS, one_shot_bodies))
def test_a_one_shot_body_arrives_whole_after_a_refused_connection(
    server: Server, name: str, kind: str
) -> None:
    """The second attempt can connect."""
    url, body = server.url("200"), one_shot_bodies(name)[kind]()
    with (
        opened_later(server.port) as (port, open_up),
        client(name, Retry(attempts=3, backoff=[0, 0], on_retry=lambda _: open_up())) as http,
    ):
        seen = http.request("PUT", url.replace(str(server.port), str(port)), body=body)
        assert (seen.outcome, seen.report().attempts) == (200, 2)
        close(body)
    assert bodies(server, url) == [DATA]


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize(("what", "sent"), [("json", b'{"a":1}'), ("data", b"a=1")])
def test_json_and_forms_are_resent(server: Server, name: str, what: str, sent: bytes) -> None:
    url = server.url("503,rst~late,200")
    form: dict[str, Any] = {what: {"a": 1 if what == "json" else "1"}}
    with client(name, POLICY) as http:
        assert http.request("PUT", url, **form).outcome == 200
    assert [body.replace(b" ", b"") for body in bodies(server, url)] == [sent] * 3


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("body", [b"", None], ids=["empty", "none"])
def test_a_request_without_a_body_is_resent_without_one(
    server: Server, name: str, body: bytes | None
) -> None:
    url = server.url("503,rst~late,200")
    with client(name, POLICY) as http:
        assert http.request("PUT", url, body=body).outcome == 200
    assert bodies(server, url) == [b""] * 3
    assert len({entry.headers.get("content-length") for entry in server.ledger(url)}) == 1


@pytest.mark.parametrize("name", ["httpx2", "requests", "aiohttp"])
def test_a_file_that_was_closed_between_attempts_is_not_resent(server: Server, name: str) -> None:
    """An empty body would be sent."""
    url, body = server.url("503,200"), real_file()
    with client(name, Retry(attempts=3, backoff=[0, 0], on_failure=lambda _: body.close())) as http:
        seen = http.request("PUT", url, body=body)
        assert (seen.status, seen.report().reason) == (503, "not_replayable")
    assert bodies(server, url) == [DATA]


def test_a_file_that_aiohttp_has_closed_is_not_resent(server: Server) -> None:
    """It closes the caller's file when the head arrives, so a response that breaks after that is final."""
    url = server.url("200~cut=5,200")
    with client("aiohttp", POLICY) as http, real_file() as file:
        seen = http.request("PUT", url, body=file)
        assert (seen.outcome, seen.report().reason) == ("ClientPayloadError", "not_replayable")
    assert bodies(server, url) == [DATA]


# ------------------------------------------------------------------------------- multipart


def parts(server: Server, url: str) -> list[list[bytes]]:
    """Return the contents of the files in each form that the server received."""
    found = list[list[bytes]]()
    for entry in server.ledger(url):
        assert entry.complete
        mark = b"--" + entry.headers["content-type"].partition("boundary=")[2].strip('"').encode()
        first, *files, last = entry.body.split(mark)
        assert (first, last) == (b"", b"--\r\n")
        found.append([file.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for file in files])
    return found


@pytest.mark.parametrize("script", ["503*2,200", "rst*2~late,200"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_form_of_bytes_and_files_is_resent_whole(server: Server, name: str, script: str) -> None:
    url, second = server.url(script), BytesIO(DATA[:7])
    with client(name, POLICY) as http, BytesIO(DATA) as first:
        form = http.run(multipart(name, first, b"bytes", second))
        assert http.request("PUT", url, **form).outcome == 200
    assert parts(server, url) == [[DATA, b"bytes", DATA[:7]]] * 3
    assert len({entry.body for entry in server.ledger(url)}) == 1


@pytest.mark.parametrize("name", ["aiohttp", "requests"])
def test_a_form_resends_a_file_from_its_first_position(server: Server, name: str) -> None:
    """Both httpx libraries send a file from its start, with and without redouble's transport."""
    url = server.url("503*2,200")
    with client(name, POLICY) as http, real_file() as file:
        assert file.tell() == len(BEFORE)
        form = http.run(multipart(name, file))
        assert http.request("PUT", url, **form).outcome == 200
    assert parts(server, url) == [[DATA]] * 3


@pytest.mark.parametrize("script", ["503,200", "rst~late,200"])
@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "requests"])
def test_a_form_with_one_unseekable_file_is_not_resent(server: Server, name: str, script: str) -> None:
    """Although all other parts could be resent."""
    url = server.url(script)
    with client(name, POLICY) as http:
        form = http.run(multipart(name, b"bytes", Unseekable(), BytesIO(DATA)))
        seen = http.request("PUT", url, **form)
        assert (seen.report().reason, seen.report().attempts) == ("not_replayable", 1)
    assert parts(server, url) == [[b"bytes", DATA, DATA]]


def test_requests_resends_a_form_with_an_unseekable_file(server: Server) -> None:
    """It reads the whole form into memory."""
    url = server.url("503,rst~late,200")
    with client("requests", POLICY) as http:
        assert http.request("PUT", url, files={"f": Unseekable()}).outcome == 200
    assert parts(server, url) == [[DATA]] * 3
