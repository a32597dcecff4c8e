"""The faults of the misbehaving server, byte by byte; at the end of its ``with`` it always stops."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.support.servers import Server, pattern

BRIEFLY = 0.05
LONG = 600  # seconds; the limit of every wait
WAITING = (
    "stall",
    "200~stall=3",
    "200~stallhead=3",
    f"200~drip={LONG}",
    f"200~driphead={LONG}",
    "sse~stall=1",
)
CHUNKED = b"PUT /s/k/200~close/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def request(url: str, body: bytes = b"", *lines: str) -> bytes:
    length = () if lines else (f"Content-Length: {len(body)}",)
    head = "\r\n".join((f"POST {urlsplit(url).path} HTTP/1.1", "Host: here", *length, *lines))
    return head.encode() + b"\r\n\r\n" + body


def everything(sock: socket.socket, last: bytes | None = None) -> tuple[bytes, str]:
    """Return all received bytes and how they ended: ``end``, ``reset`` or, after ``last``, ``silence``."""
    data = bytearray()
    try:
        while True:
            if last is not None and data.endswith(last):
                sock.settimeout(BRIEFLY)
            part = sock.recv(1 << 16)
            if not part:
                return bytes(data), "end"
            data += part
    except ConnectionResetError:
        return bytes(data), "reset"
    except TimeoutError:
        return bytes(data), "silence"


def answered(
    server: Server, script: str, body: bytes = b"", last: bytes | None = None
) -> tuple[str, bytes, str]:
    """Send one request, and return the head, the received part of the body, and how it ended."""
    with connected(server) as sock:
        sock.sendall(request(server.url(script), body))
        data, end = everything(sock, last)
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest, end


@pytest.mark.parametrize(
    ("step", "body", "end"),
    [
        ("200~body=abcdefgh~cut=3", b"abc", "end"),
        ("200~body=abcdefgh~cut=0", b"", "end"),
        ("200~body=abcdefgh~rst=3", b"abc", "reset"),
        ("200~body=abcdefgh~rst=0", b"", "reset"),
        ("200~body=abcdefgh~stall=3", b"abc", "silence"),
        ("503~body=abcdefgh~cut=3", b"abc", "end"),
        ("200~body=abcdefgh~chunked~cut=7", b"5\r\nabcde\r\n2\r\nfg\r\n", "end"),
        ("200~body=abcdefgh~chunked~cut=8", b"5\r\nabcde\r\n3\r\nfgh\r\n", "end"),
        ("200~body=abcdefgh~chunked~cut=0", b"", "end"),
        ("200~body=abcdefgh~chunked~piece=2~rst=3", b"2\r\nab\r\n1\r\nc\r\n", "reset"),
        ("200~body=abcdefgh~chunked~stall=2", b"2\r\nab\r\n", "silence"),
        ("200~body=abcdefgh~badchunk=2", b"2\r\nab\r\nthis is not the size of a chunk\r\n", "end"),
        ("200~body=abcdefgh~badchunk=0", b"this is not the size of a chunk\r\n", "end"),
        ("200~body=abcdefgh~drip=0~rst=3", b"abc", "reset"),
        (f"200~body=ab~drip={LONG}", b"", "silence"),
        ("200~body=ab~close", b"ab", "end"),
        ("200~body=ab~close~chunked", b"2\r\nab\r\n0\r\n\r\n", "end"),
        ("200~size=1000000~cut=999999", pattern(999_999), "end"),
        ("204~rst=3", b"", "reset"),
        ("sse~cut=0", b"", "end"),
        ("sse~rst=0", b"", "reset"),
        ("sse~stall=0", b"", "silence"),
        ("sse~cut=1", b'10\r\ndata: {"n": 0}\n\n\r\n', "end"),
        ("sse~rst=1", b'10\r\ndata: {"n": 0}\n\n\r\n', "reset"),
        ("sse~stall=1~drip=0", b'10\r\ndata: {"n": 0}\n\n\r\n', "silence"),
        ("sse~events=1~cut=2", b'10\r\ndata: {"n": 0}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n', "end"),
        ("sse~end=0~close", b"0\r\n\r\n", "end"),
        ("sse~end=1~close", b'10\r\ndata: {"n": 0}\n\n\r\n0\r\n\r\n', "end"),
        ("sse~cut=1~piece=9", b'9\r\ndata: {"n\r\n7\r\n": 0}\n\n\r\n', "end"),
        ("sse~events=0~close", b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", "end"),
    ],
)
def test_a_body_breaks_at_the_given_byte(server: Server, step: str, body: bytes, end: str) -> None:
    head, got, ended = answered(server, step, last=b"\r\n\r\n" + body if end == "silence" else None)
    assert head.startswith(f"HTTP/1.1 {step[:3] if step[0].isdigit() else 200} ")
    assert ended == end
    assert got == body or (end == "reset" and body.startswith(got))  # a reset may overtake data in flight


@pytest.mark.parametrize(
    ("step", "announced"),
    [
        ("200~body=abcdefgh~cut=3", "8"),
        ("200~body=abcdefgh~rst=7", "8"),
        ("200~body=abcdefgh~rst=8", "9"),  # longer than the body, or there would be no fault
        ("200~body=abcdefgh~cut=20", "21"),
    ],
)
def test_a_broken_body_has_its_full_content_length(server: Server, step: str, announced: str) -> None:
    head, _, _ = answered(server, step)
    assert f"\r\nContent-Length: {announced}" in head


@pytest.mark.parametrize(
    ("step", "head", "end"),
    [
        ("rsthead=0", "", "reset"),
        ("rsthead", "", "reset"),
        ("rsthead=9", "HTTP/1.1 ", "reset"),
        ("503~rsthead=12", "HTTP/1.1 503", "reset"),
        ("503~rsthead=12~driphead=0", "HTTP/1.1 503", "reset"),
        ("cuthead=9", "HTTP/1.1 ", "end"),
        ("stallhead=9", "HTTP/1.1 ", "silence"),
        (f"200~driphead={LONG}", "", "silence"),
        ("rst", "", "reset"),
        ("rst~late", "", "reset"),
        ("close", "", "end"),
        ("close~late", "", "end"),
        ("stall", "", "silence"),
        ("garbage", "\x00ÿþ this is no HTTP \x16\x03\x01", "end"),
    ],
)
def test_a_response_may_break_in_its_head_or_before(server: Server, step: str, head: str, end: str) -> None:
    last = head.encode() if end == "silence" else None
    got, body, ended = answered(server, step, b"hello", last)
    assert (body, ended) == (b"", end)
    assert got == head or (end == "reset" and head.startswith(got))  # a reset may overtake data in flight


@pytest.mark.parametrize(
    ("step", "body"),
    [
        ("rst", b""),
        ("close", b""),
        ("200~early", b""),
        ("rst~late", b"hello"),
        ("close~late", b"hello"),
        ("200", b"hello"),
        ("garbage", b"hello"),
    ],
)
def test_the_body_of_a_request_is_read_unless_the_step_forbids(
    server: Server, step: str, body: bytes
) -> None:
    url = server.url(f"{step}~close" if step == "200" else step)
    with connected(server) as sock:
        sock.sendall(request(url, b"hello"))
        everything(sock)
    (entry,) = server.ledger(url)
    assert (entry.body, entry.complete) == (body, bool(body))


@pytest.mark.parametrize(("step", "framing"), [("200~size=7", "Content-Length: 7"), ("sse", "chunked")])
def test_a_head_request_gets_no_body(server: Server, step: str, framing: str) -> None:
    with connected(server) as sock:
        sock.sendall(request(server.url(f"{step}~close"), b"").replace(b"POST", b"HEAD", 1))
        answer, end = everything(sock)
    assert framing.encode() in answer
    assert (answer[-4:], end) == (b"\r\n\r\n", "end")


@pytest.mark.parametrize("step", ["200~close", "200~cut=3", "close", "garbage", "200~badchunk=1"])
def test_a_connection_closed_by_the_server_stays_half_open(step: str) -> None:
    with Server() as server:
        with connected(server) as sock:
            sock.sendall(request(server.url(step)))
            for _ in range(3):
                assert everything(sock)[1] == "end"
                sock.sendall(b"late")
            assert server.open == 1
        server.wait_until_open(0)


def test_an_early_response_is_sent_before_the_body_is_read(server: Server) -> None:
    url = server.url("503~early~body=enough")
    with connected(server) as sock:
        sock.sendall(request(url, b"", "Transfer-Encoding: chunked"))
        answer, end = everything(sock)
        sock.sendall(b"5\r\nhello\r\n0\r\n\r\n")  # no reset: late data is discarded
    assert (answer.partition(b"\r\n\r\n")[2], end) == (b"enough", "end")
    assert b"\r\nConnection: close\r\n" in answer


def test_the_first_connections_can_be_reset_at_once() -> None:
    with Server(refuse_first=2) as server:
        url = server.url("200~close~body=at last")
        ends = list[str]()
        for _ in range(3):
            try:
                with connected(server) as sock:  # the reset may arrive before this returns
                    sock.sendall(request(url))
                    ends.append(everything(sock)[1])
            except (ConnectionResetError, BrokenPipeError):
                ends.append("reset")
        assert ends == ["reset", "reset", "end"]
        assert (server.connections, len(server.ledger(url))) == (3, 1)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"GET /s/k/200/ HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET /s/k/200/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"\r\n\r\nGET /s/k/200~close/ HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /s/k/200/ HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /s/k/200~close HTTP/1.1\r\n\r\n", b"200"),
        (CHUNKED + b"2;odd=1\r\nab\r\n0\r\nTrailer: 1\r\n\r\n", b"200"),
        (CHUNKED + b"-5\r\n", b"400"),
        (CHUNKED + b"2\r\nabc\r\n", b"400"),
    ],
)
def test_an_invalid_request_is_rejected(server: Server, sent: bytes, status: bytes) -> None:
    with connected(server) as sock:
        sock.sendall(sent)
        answer, end = everything(sock)
    assert (answer[9:12], end) == (status, "end")


def test_a_truncated_request_is_recorded_as_incomplete() -> None:
    with Server() as server:
        url = server.url("200")
        with connected(server) as sock:
            sock.sendall(request(url, b"half", "Content-Length: 8"))
            server.wait_for(url, 1)
        server.wait_until_open(0)
    (entry,) = server.ledger(url)
    assert (entry.body, entry.complete) == (b"half", False)


def test_pipelined_requests_are_answered(server: Server) -> None:
    url = server.url("200~body=a,200~body=b~drip=0.001,200~body=c~close")
    with connected(server) as sock:
        sock.sendall(request(url, b"1") + request(url, b"2") + request(url, b"3"))
        answer, _ = everything(sock)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert [entry.body for entry in server.ledger(url)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("step", WAITING)
def test_a_stalled_response_ends_when_the_client_disconnects(step: str) -> None:
    with Server() as server:
        url = server.url(step)
        with connected(server) as sock:
            sock.sendall(request(url))
            server.wait_for(url, 1)
            assert server.open == 1
        server.wait_until_open(0)


def test_a_busy_server_stops_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with ExitStack() as clients:
        with Server() as server:
            socks = [clients.enter_context(connected(server)) for _ in range(2 * len(WAITING) + 4)]
            asked = [*map(server.url, WAITING * 2), server.url("200~size=90000000"), server.url("200")]
            for sock, url in zip(
                socks, asked, strict=False
            ):  # the last two: a response too large to be sent at once, and a complete one
                sock.sendall(request(url))
            socks[-1].sendall(request(server.url("200"), b"half", "Content-Length: 8"))  # socks[-2] is idle
            for url in asked:
                server.wait_for(url, 1)
            server.wait_until_open(len(socks))
        assert server.open == 0
        assert set(threading.enumerate()) == before
