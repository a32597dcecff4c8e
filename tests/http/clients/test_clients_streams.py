"""A broken body restarts the call only before any part was delivered, however it is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redouble import Reason, Retry, TokenBucket
from tests.support.fakes import Ledger
from tests.support.http.body_readers import EXACT_SIZE, ITERATING, READERS, WHOLES, Reader, reader
from tests.support.http.clients import CLIENTS, HttpResult
from tests.support.servers import Server

POLICY = Retry(attempts=3, backoff=[0] * 9)
SOON = 0.2  # read timeout for a silent server, in seconds
FIRST, SECOND, THIRD = (b'{"ok": true, "step": %d}' % step for step in (1, 2, 3))
EVENTS = b'data: {"n": 0}\n\ndata: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n'

EVERY = pytest.mark.parametrize("read", READERS, ids=str)
EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)
BOTH = pytest.mark.parametrize("whole", [True, False], ids=["whole", "iterated"])

UNFIT = (
    "readuntil",
    "iter_chunks",
)  # with an empty body: in aiohttp itself the first raises, the second never ends
# Readers that have delivered nothing after 4 bytes, because they wait for more.
PATIENT = ("iter_lines", "iter", "readexactly", "readline", "readuntil", "lines")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def content(seen: HttpResult) -> bytes:
    return b"".join(seen.pieces)


def expected(read: Reader, body: bytes) -> bytes:
    """Return what a reader delivers of a response with this body."""
    if read.way == "readexactly":
        return body[:EXACT_SIZE]
    return body if read.way != "iter_lines" or body.endswith(b"\n") else body + b"\n"


def reason_and_attempts(seen: HttpResult) -> tuple[str | None, int]:
    return seen.report().reason, seen.report().attempts


# ------------------------------------------------------------------------- before the first byte


@EVERY
@pytest.mark.parametrize(
    "step",
    [
        "200~cut=0",
        "200~rst=0",
        "200~chunked~cut=0",
        "200~badchunk=0",
        pytest.param("200~stall=0", marks=pytest.mark.quiet),
    ],
)
def test_a_body_that_breaks_before_its_first_byte_restarts_the_call(
    server: Server, read: Reader, step: str
) -> None:
    url = server.url(f"{step},200")
    seen = read(url, POLICY, timeout=SOON if "stall" in step else 30)
    assert (seen.outcome, content(seen)) == (200, expected(read, SECOND))
    assert reason_and_attempts(seen) == (None, 2)
    assert len(server.ledger(url)) == 2


@EVERY
def test_an_event_stream_that_breaks_before_its_first_event_restarts(server: Server, read: Reader) -> None:
    url = server.url("sse~cut=0,sse~badchunk=0,sse")
    seen = read(url, POLICY)
    assert (seen.outcome, content(seen)) == (200, expected(read, EVENTS))
    assert reason_and_attempts(seen) == (None, 3)


@pytest.mark.parametrize("read", WHOLES, ids=str)
@pytest.mark.parametrize(
    "step",
    [
        "200~cut=9",
        "200~rst=9",
        "200~chunked~cut=9",
        "200~badchunk=9",
        pytest.param("200~stall=9", marks=pytest.mark.quiet),
        "200~gzip~cut=9",
        "sse~cut=1",
    ],
)
def test_a_body_read_as_a_whole_restarts_wherever_it_breaks(server: Server, read: Reader, step: str) -> None:
    again = "200~gzip" if "gzip" in step else "200"
    url = server.url(f"{step},503,{again}")
    seen = read(url, POLICY, timeout=SOON if "stall" in step else 30)
    assert (seen.outcome, content(seen)) == (200, THIRD)
    assert reason_and_attempts(seen) == (None, 3)
    assert [record.error_text is None for record in seen.report().history] == [False, False, True]


@EVERY_CLIENT
@BOTH
def test_after_a_restart_the_headers_are_those_of_the_new_response(
    server: Server, name: str, whole: bool
) -> None:
    seen = reader(name, whole=whole)(server.url("200~cut=0~h.etag=old,200~h.etag=new"), POLICY)
    assert content(seen) == SECOND
    assert (seen.headers["etag"], seen.headers["x-attempt"]) == ("new", "2")


@EVERY_CLIENT
def test_a_broken_404_response_restarts_too(server: Server, name: str) -> None:
    seen = reader(name, whole=True)(server.url("404~cut=3,404"), POLICY)
    assert (seen.outcome, content(seen)) == (404, b'{"ok": false, "step": 2}')
    assert reason_and_attempts(seen) == (None, 2)


# ------------------------------------------------------------------------- after the first byte


@pytest.mark.quiet
@pytest.mark.parametrize("read", [read for read in ITERATING if read.way not in PATIENT], ids=str)
@pytest.mark.parametrize("step", ["200~stall=4", "200~chunked~stall=4"])
def test_after_the_first_byte_the_error_is_raised(server: Server, read: Reader, step: str) -> None:
    url = server.url(f"{step},200")
    seen = read(url, POLICY, timeout=SOON)
    assert content(seen) in (FIRST[:4], FIRST[:3])
    assert reason_and_attempts(seen) == (Reason.committed, 1)
    assert [note for note in seen.notes if "redouble" in note] == [
        f"redouble: gave up after 1 attempt in {seen.report().elapsed:.1f} s (items had been handed out)"
    ]
    assert len(server.ledger(url)) == 1


@pytest.mark.quiet
@pytest.mark.parametrize("read", ITERATING, ids=str)
def test_after_the_first_event_nothing_restarts(server: Server, read: Reader) -> None:
    """``readexactly`` succeeds: it needs ten bytes, and has received them."""
    url = server.url("sse~stall=1,sse")
    seen = read(url, POLICY, timeout=SOON)
    assert content(seen)
    assert EVENTS[:16].startswith(content(seen))
    assert reason_and_attempts(seen) == ((None if read.way == "readexactly" else Reason.committed), 1)
    assert len(server.ledger(url)) == 1


@pytest.mark.quiet
@EVERY_CLIENT
def test_the_report_of_a_committed_call_counts_earlier_attempts(server: Server, name: str) -> None:
    seen = Reader(name, {"aiohttp": "iter_chunked", "requests": "iter_content(3)"}.get(name, "iter_bytes"))(
        server.url("503,200~cut=0,200~stall=9,200"), POLICY, timeout=SOON
    )
    assert THIRD[:9].startswith(content(seen))
    assert reason_and_attempts(seen) == (Reason.committed, 3)


LETTERS = "abcd"


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, dict[int, bytes]]:
    """Draw a script of responses that may break, each with a body of one letter, and these bodies."""
    steps, bodies = list[str](), dict[int, bytes]()
    for number, letter in enumerate(LETTERS[: draw(st.integers(1, 4))], 1):
        size, how = draw(st.integers(1, 40)), draw(st.sampled_from(["", "cut", "rst", "badchunk"]))
        fault = f"~{how}={draw(st.integers(0, size - 1))}" if how else ""
        steps.append(f"200~body={letter * size}{draw(st.sampled_from(['', '~chunked']))}{fault}")
        bodies[number] = letter.encode() * size
    return ",".join(steps), bodies


@given(read=st.sampled_from([read for read in READERS if read.way != "readexactly"]), made=answers())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_delivered_bytes_are_the_beginning_of_one_response(
    server: Server, read: Reader, made: tuple[str, dict[int, bytes]]
) -> None:
    script, bodies = made
    url = server.url(script)
    seen = read(url, POLICY)
    requests = len(server.ledger(url))
    body = bodies[min(requests, len(bodies))]
    had = content(seen).removesuffix(b"\n")
    assert reason_and_attempts(seen)[1] == requests
    if seen.error is None:
        assert had == body
    else:
        assert body.startswith(had)
        assert len(had) < len(body)
        assert not had or reason_and_attempts(seen)[0] == Reason.committed


# --------------------------------------------------------------------------------- limits


@EVERY
def test_a_restart_is_an_attempt(server: Server, read: Reader) -> None:
    url = server.url("200~cut=0")
    seen = read(url, POLICY)
    assert isinstance(seen.error, Exception)
    assert content(seen) == b""
    assert reason_and_attempts(seen) == (Reason.attempts, 3)
    assert [note for note in seen.notes if "after 3 attempts" in note]
    assert len(server.ledger(url)) == 3


@EVERY_CLIENT
@BOTH
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Retry(attempts=1), Reason.attempts),
        (Retry(budget=TokenBucket(0), backoff=[0]), Reason.budget),
        (Retry(on=lambda error: False), Reason.stopped),
        (Retry(backoff=[]), Reason.backoff_ended),
        (Retry(backoff=[9], timeout=5), Reason.timeout),
        (Retry(backoff=[9], give_up_after=5), Reason.timeout),
    ],
    ids=["attempts", "budget", "rule", "backoff", "timeout", "patience"],
)
def test_the_policy_decides_about_restarts(
    server: Server, name: str, whole: bool, policy: Retry, reason: Reason
) -> None:
    url = server.url("200~cut=0,200")
    seen = reader(name, whole=whole)(url, policy)
    assert seen.error is not None
    assert reason_and_attempts(seen) == (reason, 1)
    assert len(server.ledger(url)) == 1


@EVERY_CLIENT
@BOTH
def test_a_restart_spends_a_grant(server: Server, name: str, whole: bool) -> None:
    ledger = Ledger(retries=1)
    seen = reader(name, whole=whole)(server.url("200~cut=0"), Retry(budget=ledger, backoff=[0] * 9))
    assert reason_and_attempts(seen) == (Reason.budget, 2)
    assert len(ledger.grants) == 1


@EVERY_CLIENT
@BOTH
@pytest.mark.parametrize(("headers", "requests"), [({}, 1), ({"Idempotency-Key": "k"}, 2)])
def test_a_post_restarts_only_with_an_idempotency_key(
    server: Server, name: str, whole: bool, headers: dict[str, str], requests: int
) -> None:
    url = server.url("200~cut=0,200")
    seen = reader(name, whole=whole)(url, POLICY, "POST", body=b"once", headers=headers)
    assert len(server.ledger(url)) == requests
    if requests == 1:
        assert reason_and_attempts(seen) == (Reason.stopped, 1)
        assert seen.error is not None
    else:
        assert (reason_and_attempts(seen), content(seen)) == ((None, 2), SECOND)
        assert [entry.body for entry in server.ledger(url)] == [b"once", b"once"]


@EVERY_CLIENT
@BOTH
@pytest.mark.parametrize(("then", "last"), [("404", 2), ("503", 3), ("200~gzip", 2), ("206", 2)])
def test_a_response_that_does_not_fit_the_delivered_head_raises(
    server: Server, name: str, whole: bool, then: str, last: int
) -> None:
    """Only requests without ``stream`` has not delivered a head yet, and accepts it."""
    url = server.url(f"200~cut=0,{then}")
    seen = reader(name, whole=whole)(url, POLICY)
    fits = name in ("aiohttp", "requests") and then == "200~gzip"  # they decode below redouble
    if fits or (name == "requests" and whole):
        assert seen.error is None
        return
    assert type(seen.error).__name__ in ("RemoteProtocolError", "ChunkedEncodingError", "ClientPayloadError")
    assert reason_and_attempts(seen)[1] == len(server.ledger(url)) == last
    assert reason_and_attempts(seen)[0] in (Reason.stopped, Reason.attempts)


# ----------------------------------------------------------------------- nothing to restart


@pytest.mark.parametrize("read", [read for read in READERS if read.way not in UNFIT], ids=str)
@pytest.mark.parametrize(
    ("step", "method"), [("200~body=", "GET"), ("204", "GET"), ("304", "GET"), ("200", "HEAD")]
)
def test_an_empty_body_is_complete(server: Server, read: Reader, step: str, method: str) -> None:
    url = server.url(step)
    seen = read(url, POLICY, method)
    assert content(seen) == b""
    assert len(server.ledger(url)) == 1
    if read.way == "readexactly":
        assert type(seen.error).__name__ == "IncompleteReadError"
    else:
        assert reason_and_attempts(seen) == (None, 1)
