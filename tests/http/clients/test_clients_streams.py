"""A failed body restarts the call only before any part was delivered, however it is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redouble import Reason, Retry, TokenBucket
from tests.support.fakes import Ledger
from tests.support.http.body_readers import ENOUGH, ITERATING, READERS, WHOLES, Reader, reader
from tests.support.http.clients import CLIENTS, Seen
from tests.support.servers import Server

POLICY = Retry(attempts=3, backoff=[0] * 9)
SOON = 0.2  # how long a silent server is listened to
FIRST, SECOND, THIRD = (b'{"ok": true, "step": %d}' % step for step in (1, 2, 3))
EVENTS = b'data: {"n": 0}\n\ndata: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n'

EVERY = pytest.mark.parametrize("read", READERS, ids=str)
EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)
BOTH = pytest.mark.parametrize("whole", [True, False], ids=["whole", "iterated"])

UNFIT = ("readuntil", "iter_chunks")  # for an empty body: in aiohttp itself one fails, the other never ends
# Those that have handed nothing out after 4 bytes, because they wait for more.
PATIENT = ("iter_lines", "iter", "readexactly", "readline", "readuntil", "lines")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def content(seen: Seen) -> bytes:
    return b"".join(seen.pieces)


def expected(read: Reader, body: bytes) -> bytes:
    """Return what a reader has received of a response with this body."""
    if read.way == "readexactly":
        return body[:ENOUGH]
    return body if read.way != "iter_lines" or body.endswith(b"\n") else body + b"\n"


def told(seen: Seen) -> tuple[str | None, int]:
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
def test_a_body_that_breaks_before_its_first_byte_begins_anew(
    server: Server, read: Reader, step: str
) -> None:
    url = server.url(f"{step},200")
    seen = read(url, POLICY, timeout=SOON if "stall" in step else 30)
    assert (seen.outcome, content(seen)) == (200, expected(read, SECOND))
    assert told(seen) == (None, 2)
    assert len(server.ledger(url)) == 2


@EVERY
def test_events_begin_anew_before_the_first(server: Server, read: Reader) -> None:
    url = server.url("sse~cut=0,sse~badchunk=0,sse")
    seen = read(url, POLICY)
    assert (seen.outcome, content(seen)) == (200, expected(read, EVENTS))
    assert told(seen) == (None, 3)


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
def test_who_reads_it_whole_has_had_none_of_it(server: Server, read: Reader, step: str) -> None:
    again = "200~gzip" if "gzip" in step else "200"
    url = server.url(f"{step},503,{again}")
    seen = read(url, POLICY, timeout=SOON if "stall" in step else 30)
    assert (seen.outcome, content(seen)) == (200, THIRD)
    assert told(seen) == (None, 3)
    assert [record.error_text is None for record in seen.report().history] == [False, False, True]


@EVERY_CLIENT
@BOTH
def test_the_headers_are_those_of_the_answer_whose_body_it_is(server: Server, name: str, whole: bool) -> None:
    seen = reader(name, whole=whole)(server.url("200~cut=0~h.etag=old,200~h.etag=new"), POLICY)
    assert content(seen) == SECOND
    assert (seen.headers["etag"], seen.headers["x-attempt"]) == ("new", "2")


@EVERY_CLIENT
def test_an_answer_of_404_may_break_too(server: Server, name: str) -> None:
    seen = reader(name, whole=True)(server.url("404~cut=3,404"), POLICY)
    assert (seen.outcome, content(seen)) == (404, b'{"ok": false, "step": 2}')
    assert told(seen) == (None, 2)


# ------------------------------------------------------------------------- after the first byte


@pytest.mark.quiet
@pytest.mark.parametrize("read", [read for read in ITERATING if read.way not in PATIENT], ids=str)
@pytest.mark.parametrize("step", ["200~stall=4", "200~chunked~stall=4"])
def test_after_the_first_byte_the_error_is_the_callers(server: Server, read: Reader, step: str) -> None:
    url = server.url(f"{step},200")
    seen = read(url, POLICY, timeout=SOON)
    assert content(seen) in (FIRST[:4], FIRST[:3])
    assert told(seen) == (Reason.committed, 1)
    assert [note for note in seen.notes if "redouble" in note] == [
        f"redouble: gave up after 1 attempt in {seen.report().elapsed:.1f} s (items had been handed out)"
    ]
    assert len(server.ledger(url)) == 1


@pytest.mark.quiet
@pytest.mark.parametrize("read", ITERATING, ids=str)
def test_after_an_event_nothing_begins_anew(server: Server, read: Reader) -> None:
    """One of them wants no more than ten bytes, and has them."""
    url = server.url("sse~stall=1,sse")
    seen = read(url, POLICY, timeout=SOON)
    assert content(seen)
    assert EVENTS[:16].startswith(content(seen))
    assert told(seen) == ((None if read.way == "readexactly" else Reason.committed), 1)
    assert len(server.ledger(url)) == 1


@pytest.mark.quiet
@EVERY_CLIENT
def test_what_was_committed_counts_the_attempts_before(server: Server, name: str) -> None:
    seen = Reader(name, {"aiohttp": "iter_chunked", "requests": "iter_content(3)"}.get(name, "iter_bytes"))(
        server.url("503,200~cut=0,200~stall=9,200"), POLICY, timeout=SOON
    )
    assert THIRD[:9].startswith(content(seen))
    assert told(seen) == (Reason.committed, 3)


LETTERS = "abcd"


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, dict[int, bytes]]:
    """Make a script of answers that break, or do not, each of a letter of its own; and their bodies."""
    steps, bodies = list[str](), dict[int, bytes]()
    for number, letter in enumerate(LETTERS[: draw(st.integers(1, 4))], 1):
        size, how = draw(st.integers(1, 40)), draw(st.sampled_from(["", "cut", "rst", "badchunk"]))
        fault = f"~{how}={draw(st.integers(0, size - 1))}" if how else ""
        steps.append(f"200~body={letter * size}{draw(st.sampled_from(['', '~chunked']))}{fault}")
        bodies[number] = letter.encode() * size
    return ",".join(steps), bodies


@given(read=st.sampled_from([read for read in READERS if read.way != "readexactly"]), made=answers())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_handed_out_is_the_beginning_of_one_answer(
    server: Server, read: Reader, made: tuple[str, dict[int, bytes]]
) -> None:
    script, bodies = made
    url = server.url(script)
    seen = read(url, POLICY)
    requests = len(server.ledger(url))
    body = bodies[min(requests, len(bodies))]
    had = content(seen).removesuffix(b"\n")
    assert told(seen)[1] == requests
    if seen.error is None:
        assert had == body
    else:
        assert body.startswith(had)
        assert len(had) < len(body)
        assert not had or told(seen)[0] == Reason.committed


# --------------------------------------------------------------------------------- limits


@EVERY
def test_to_begin_anew_is_an_attempt(server: Server, read: Reader) -> None:
    url = server.url("200~cut=0")
    seen = read(url, POLICY)
    assert isinstance(seen.error, Exception)
    assert content(seen) == b""
    assert told(seen) == (Reason.attempts, 3)
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
def test_to_begin_anew_is_up_to_the_policy(
    server: Server, name: str, whole: bool, policy: Retry, reason: Reason
) -> None:
    url = server.url("200~cut=0,200")
    seen = reader(name, whole=whole)(url, policy)
    assert seen.error is not None
    assert told(seen) == (reason, 1)
    assert len(server.ledger(url)) == 1


@EVERY_CLIENT
@BOTH
def test_to_begin_anew_is_paid_from_the_budget(server: Server, name: str, whole: bool) -> None:
    ledger = Ledger(retries=1)
    seen = reader(name, whole=whole)(server.url("200~cut=0"), Retry(budget=ledger, backoff=[0] * 9))
    assert told(seen) == (Reason.budget, 2)
    assert len(ledger.grants) == 1


@EVERY_CLIENT
@BOTH
@pytest.mark.parametrize(("headers", "requests"), [({}, 1), ({"Idempotency-Key": "k"}, 2)])
def test_a_post_begins_anew_only_with_a_key(
    server: Server, name: str, whole: bool, headers: dict[str, str], requests: int
) -> None:
    url = server.url("200~cut=0,200")
    seen = reader(name, whole=whole)(url, POLICY, "POST", body=b"once", headers=headers)
    assert len(server.ledger(url)) == requests
    if requests == 1:
        assert told(seen) == (Reason.stopped, 1)
        assert seen.error is not None
    else:
        assert (told(seen), content(seen)) == ((None, 2), SECOND)
        assert [entry.body for entry in server.ledger(url)] == [b"once", b"once"]


@EVERY_CLIENT
@BOTH
@pytest.mark.parametrize(("then", "last"), [("404", 2), ("503", 3), ("200~gzip", 2), ("206", 2)])
def test_another_kind_of_answer_cannot_take_its_place(
    server: Server, name: str, whole: bool, then: str, last: int
) -> None:
    """The head was handed out already; only requests, asked without ``stream``, has not done so."""
    url = server.url(f"200~cut=0,{then}")
    seen = reader(name, whole=whole)(url, POLICY)
    fits = name in ("aiohttp", "requests") and then == "200~gzip"  # they decode below us
    if fits or (name == "requests" and whole):
        assert seen.error is None
        return
    assert type(seen.error).__name__ in ("RemoteProtocolError", "ChunkedEncodingError", "ClientPayloadError")
    assert told(seen)[1] == len(server.ledger(url)) == last
    assert told(seen)[0] in (Reason.stopped, Reason.attempts)


# ----------------------------------------------------------------------- nothing to restart


@pytest.mark.parametrize("read", [read for read in READERS if read.way not in UNFIT], ids=str)
@pytest.mark.parametrize(
    ("step", "method"), [("200~body=", "GET"), ("204", "GET"), ("304", "GET"), ("200", "HEAD")]
)
def test_an_empty_body_is_a_whole_one(server: Server, read: Reader, step: str, method: str) -> None:
    url = server.url(step)
    seen = read(url, POLICY, method)
    assert content(seen) == b""
    assert len(server.ledger(url)) == 1
    if read.way == "readexactly":
        assert type(seen.error).__name__ == "IncompleteReadError"
    else:
        assert told(seen) == (None, 1)
