"""Network failures, through every HTTP client: which requests are resent, and which error is raised."""

from __future__ import annotations

import socket
from collections.abc import Generator
from threading import Thread

import pytest

from redouble import Hints, Retry
from tests.support.fakes import Virtual
from tests.support.http.clients import CLIENTS, Client, HttpResult, client
from tests.support.servers import Server, black_hole, refused_port

LONG, SHORT = 30.0, 0.2  # timeouts in seconds: never reached, and always reached

# After these the request may have arrived.
FAULTS = {
    "reset before the head": "rst~late",
    "closed before the head": "close~late",
    "reset within the head": "rsthead=9",
    "closed within the head": "cuthead=9",
    "reset within the headers": "200~rsthead=40",
    "garbage": "garbage",
    "reset within the body": "200~rst=5",
    "closed within the body": "200~cut=5",
    "closed within a chunk": "200~chunked~cut=5",
    "a chunk that is none": "200~chunked~badchunk=5",
    "a body that breaks while it is unpacked": "200~gzip~size=3000~cut=20",
}
WELL = {
    "a body that breaks while it is unpacked": "200~gzip"
}  # encoded like the first response, whose head was delivered
STALLS = {"no answer": "stall", "half a head": "stallhead=9", "half a body": "200~stall=5"}
ALL_FAULTS = [*FAULTS, *(pytest.param(fault, marks=pytest.mark.quiet) for fault in STALLS)]


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(scope="module")
def hole() -> Generator[int]:
    with black_hole() as port:
        yield port


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def plain(name: str, method: str, url: str, timeout: tuple[float, float]) -> HttpResult:
    """Make the same call without redouble."""
    with client(name, bare=True) as http:
        return http.request(method, url, timeout=timeout)


def is_the_client_s_own(seen: HttpResult, expected: HttpResult) -> bool:
    """Return True if an error has exactly the type that the plain client raises."""
    return seen.error is not None and type(seen.error) is type(expected.error)


# --------------------------------------------------- the request may have been received


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_retried_and_the_call_succeeds(name: str, server: Server, fault: str) -> None:
    """Only the report shows the failure."""
    url = server.url(f"{FAULTS[fault]},{WELL.get(fault, '200')}")
    with client(name, Retry(backoff=[0])) as http:
        seen = http.get(url)
    report = seen.report()
    assert (seen.error, seen.status, seen.content) == (None, 200, b'{"ok": true, "step": 2}')
    assert (report.reason, report.attempts, len(server.ledger(url))) == (None, 2, 2)
    assert [record.kind for record in report.history][:1] == ["network"]


@pytest.mark.quiet
@pytest.mark.parametrize("fault", STALLS)
def test_a_timeout_of_the_client_is_retried(name: str, server: Server, fault: str) -> None:
    """The server sends nothing, or only a part of the response."""
    url = server.url(f"{STALLS[fault]},200")
    with client(name, Retry(backoff=[0] * 3)) as http:
        seen = http.get(url, timeout=(LONG, SHORT * 4))
    assert (seen.error, seen.status, seen.report().reason) == (None, 200, None)
    assert len(server.ledger(url)) == seen.report().attempts >= 2
    assert seen.report().history[0].error_type is not None


@pytest.mark.parametrize("fault", ALL_FAULTS)
def test_the_last_error_is_the_client_s_own(name: str, server: Server, fault: str) -> None:
    """It has the type that the plain client raises, with a note and a report."""
    script, timeout = {**FAULTS, **STALLS}[fault], (LONG, SHORT if fault in STALLS else LONG)
    url = server.url(script)
    with client(name, Retry(attempts=2, backoff=[0])) as http:
        seen = http.get(url, timeout=timeout)
    assert is_the_client_s_own(seen, plain(name, "GET", server.url(script), timeout))
    assert (seen.report().reason, seen.report().attempts, len(server.ledger(url))) == ("attempts", 2, 2)
    assert _notes_without_time(seen) == ["redouble: gave up after 2 attempts (attempts exhausted)"]


@pytest.mark.parametrize("fault", ALL_FAULTS)
def test_a_post_that_may_have_been_received_is_not_resent(name: str, server: Server, fault: str) -> None:
    """The client's own error is raised."""
    script, timeout = {**FAULTS, **STALLS}[fault], (LONG, SHORT if fault in STALLS else LONG)
    url = server.url(f"{script},200")
    with client(name, Retry(backoff=[0] * 3)) as http:
        seen = http.request("POST", url, body=b"order", timeout=timeout)
    assert is_the_client_s_own(seen, plain(name, "POST", server.url(script), timeout))
    assert (seen.report().reason, seen.report().attempts) == ("stopped", 1)
    assert [request.body for request in server.ledger(url)] == [b"order"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_post_with_an_idempotency_key_is_resent(name: str, server: Server, fault: str) -> None:
    """The server can recognise the repetition."""
    url = server.url(f"{FAULTS[fault]},{WELL.get(fault, '200')}")
    with client(name, Retry(backoff=[0])) as http:
        seen = http.request("POST", url, body=b"order", headers={"Idempotency-Key": "42"})
    assert (seen.status, seen.report().attempts) == (200, 2)
    received = [(request.body, request.headers["idempotency-key"]) for request in server.ledger(url)]
    assert received == [(b"order", "42")] * 2


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("fault", ["rst~late", "close~late"])
def test_a_reused_connection_does_not_double_the_attempts(
    name: str, server: Server, method: str, fault: str
) -> None:
    """Some clients reconnect silently after an error on a reused connection, once per request."""
    url = server.url(fault)
    with client(name, Retry(attempts=3, backoff=[0] * 2)) as http:
        for _ in range(2):
            assert http.get(server.url("200")).status == 200
        seen = http.request(method, url)
        assert http.get(server.url("200")).report().attempts == 1
    expected = 3 if method == "GET" else 1
    assert (seen.report().attempts, len(server.ledger(url))) == (expected, expected)


# ------------------------------------------------------------- the request was not sent


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("where", ["refused", pytest.param("hole", marks=pytest.mark.quiet)])
def test_an_unsent_request_is_resent_whatever_its_method(
    name: str, hole: int, method: str, where: str
) -> None:
    """Nothing listened on the port; the final error is the client's own."""
    url = f"http://127.0.0.1:{hole if where == 'hole' else refused_port()}/"
    timeout = (SHORT if where == "hole" else LONG, LONG)
    with client(name, Retry(attempts=2, backoff=[0])) as http:
        seen = http.request(method, url, timeout=timeout)
    assert is_the_client_s_own(seen, plain(name, method, url, timeout))
    assert (seen.report().reason, seen.report().attempts) == ("attempts", 2)
    assert _notes_without_time(seen) == ["redouble: gave up after 2 attempts (attempts exhausted)"]


class Late:
    """A server that refuses connections until it is opened; it answers one request."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._thread = Thread(target=self._answer)
        self.received = b""
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def open(self, _: object) -> None:
        self._listener.listen()
        self._thread.start()

    def close(self) -> None:
        self._thread.join()
        self._listener.close()

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while not self.received.endswith(b"order"):
                self.received += connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


def test_a_post_is_received_once_the_server_accepts_connections(name: str) -> None:
    """It is received exactly once."""
    late = Late()
    try:
        with client(name, Retry(attempts=2, backoff=[0], on_retry=late.open)) as http:
            seen = http.request("POST", late.url, body=b"order")
    finally:
        late.close()
    assert (seen.status, seen.content, seen.report().attempts) == (200, b"ok", 2)
    assert late.received.count(b"order") == 1


# --------------------------------------------------- failed responses whose body breaks


@pytest.mark.parametrize("fault", ["cut=5", "rst=5", "cut=5~chunked", "size=200000~cut=150000"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_response_whose_body_breaks_has_a_report(
    name: str, server: Server, fault: str, stream: bool
) -> None:
    """The error of the body is raised, with the type that the plain client raises, and a note."""
    script = f"503~{fault}"
    url = server.url(script)
    with client(name, Retry(attempts=2, backoff=[0])) as http:
        seen = http.get(url, stream=stream, piece=1000)
    with client(name, bare=True) as http:
        expected = http.get(server.url(script), stream=stream, piece=1000)
    assert is_the_client_s_own(seen, expected)
    assert (seen.report().reason, seen.report().attempts, len(server.ledger(url))) == ("attempts", 2, 2)
    assert _notes_without_time(seen) == ["redouble: gave up after 2 attempts (attempts exhausted)"]


BROKEN_STATUSES: list[tuple[str, int, list[float]]] = [
    ("503~ra=7~cut=5,200", 2, [7.0]),
    ("503~ra=7~chunked~cut=5,200", 2, [7.0]),
    ("503~h.x-should-retry=false~cut=5,200", 1, []),
    ("500~cut=5,200", 1, []),
]


@pytest.mark.parametrize(("script", "requests", "waits"), BROKEN_STATUSES)
@pytest.mark.parametrize("stream", [False, True])
def test_status_and_headers_decide_if_the_body_breaks(
    name: str, server: Server, script: str, requests: int, waits: list[float], stream: bool
) -> None:
    """``Retry-After`` and ``x-should-retry`` are known from the head."""
    clock = Virtual()
    url = server.url(script)
    with client(name, Retry(backoff=[0], hints=Hints(spread=0), clock=clock)) as http:
        http.get(url, stream=stream)
    assert ([wait for wait in clock.waits if wait], len(server.ledger(url))) == (waits, requests)


# -------------------------------------------------------------------------------- secrets


def test_neither_note_nor_report_has_secrets(name: str, server: Server) -> None:
    """Some clients write the whole URL into their own error; redouble's note and report do not contain it."""
    asked = "?token=hidden"
    refused = f"http://user:hidden@127.0.0.1:{refused_port()}/{asked}"
    for url in (refused, server.url("rst~late") + asked, server.url("garbage") + asked):
        with client(name, Retry(attempts=2, backoff=[0])) as http:
            seen = http.request("PUT", url, body=b"hidden")
        assert seen.error is not None
        assert "hidden" not in repr((seen.notes, seen.report()))


def _notes_without_time(seen: HttpResult) -> list[str]:
    """Return the notes without the elapsed time."""
    return [f"{note.partition(' in ')[0]} ({note.partition(' (')[2]}" for note in seen.notes]


def test_a_closed_client_raises_its_own_error(name: str, server: Server) -> None:
    """It is a mistake of the caller, and is not retried."""
    with client(name, Retry(backoff=[0] * 3)) as http:
        _close(http)
        seen = http.get(server.url("200"))
    if name == "requests":  # a closed session can be used again
        assert seen.status == 200
    else:
        assert isinstance(seen.error, RuntimeError)


def _close(http: Client) -> None:
    http.run(getattr(http.raw, "aclose", None) or http.raw.close)
