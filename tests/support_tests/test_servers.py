"""The misbehaving server plays its scripts and records the requests."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

from tests.support.servers import Server, black_hole, pattern, refused_port, value

THREADS = 200
BRIEFLY = 0.05
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


class Client(HTTPConnection):
    """One connection, which is reopened only if the server has announced that it closes it."""

    def __init__(self, server: Server) -> None:
        super().__init__("127.0.0.1", server.port, timeout=30)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self, url: str, method: str = "GET", body: bytes | Iterator[bytes] | None = None, **headers: str
    ) -> HTTPResponse:
        parts = urlsplit(url)
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        if isinstance(body, Iterator):
            sent["Transfer-Encoding"] = "chunked"
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self.request(method, target, body, sent, encode_chunked=isinstance(body, Iterator))
        return self.getresponse()


def test_each_request_plays_the_next_step_and_the_last_one_repeats(server: Server) -> None:
    url = server.url("503*2,429~ra=2,200")
    with Client(server) as client:
        answers = list[tuple[int, str | None, object]]()
        for _ in range(5):
            response = client.ask(url)
            answers.append((response.status, response.headers["X-Attempt"], json.loads(response.read())))
    assert answers == [
        (503, "1", {"ok": False, "step": 1}),
        (503, "2", {"ok": False, "step": 2}),
        (429, "3", {"ok": False, "step": 3}),
        (200, "4", {"ok": True, "step": 4}),
        (200, "5", {"ok": True, "step": 5}),
    ]
    assert [entry.played for entry in server.ledger(url)] == ["503*2", "503*2", "429~ra=2", "200", "200"]


@pytest.mark.parametrize(
    ("step", "name", "expected"),
    [
        ("429~ra=2", "Retry-After", ["2"]),
        ("429~ra=", "Retry-After", [""]),
        (f"429~ra={value(DATE)}", "Retry-After", [DATE]),
        ("429~ra=1~ra=2", "Retry-After", ["1", "2"]),
        (
            "429~ra=%D9%A3",
            "Retry-After",
            ["Ù£"],
        ),  # bytes are sent unchanged; http.client decodes them as Latin-1
        ("429~ra=٣", "Retry-After", ["Ù£"]),
        ("429~rams=1500", "retry-after-ms", ["1500"]),
        (f"200~date={value(DATE)}", "Date", [DATE]),
        ("200~date=none", "Date", None),
        ("302~loc=/s/other/200/", "Location", ["/s/other/200/"]),
        ("200~h.X-Odd=a%2Cb%7Ec", "X-Odd", ["a,b~c"]),
        ("200~h.content-type=text/odd", "Content-Type", ["text/odd"]),
        ("200~h.Set-Cookie=a=1~h.Set-Cookie=b=2", "Set-Cookie", ["a=1", "b=2"]),
        ("200~size=3", "Content-Length", ["3"]),
        ("200~chunked", "Transfer-Encoding", ["chunked"]),
        ("200~chunked", "Content-Length", None),
        ("200~close", "Connection", ["close"]),
        ("200", "Connection", None),
        ("204", "Content-Length", None),
    ],
)
def test_options_set_the_headers(server: Server, step: str, name: str, expected: list[str] | None) -> None:
    with Client(server) as client:
        response = client.ask(server.url(step))
        assert response.headers.get_all(name) == expected
        response.read()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("200~body=a%2Cb %7E/?#é", "a,b ~/?#é".encode()),
        ("200~body=", b""),
        ("200~size=0", b""),
        ("200~size=100", pattern(100)),
        ("200~size=100~chunked", pattern(100)),
        ("200~size=100~chunked~piece=7", pattern(100)),
        ("200~size=0~chunked", b""),
        ("503~body=sorry", b"sorry"),
        ("200~body=ab~drip=0.001", b"ab"),
        ("200~body=abcde~drip=0~piece=2~chunked", b"abcde"),
        ("200~body=ab~driphead=0", b"ab"),
        ("204", b""),
        ("304~body=ignored", b""),
        ("418~body=tea", b"tea"),
        ("799~body=unheard of", b"unheard of"),
    ],
)
def test_options_set_the_body(server: Server, step: str, expected: bytes) -> None:
    with Client(server) as client:
        for _ in range(2):  # on one connection: no byte of the first response may be left over
            assert client.ask(server.url(step)).read() == expected


def test_a_body_can_be_compressed(server: Server) -> None:
    with Client(server) as client:
        response = client.ask(server.url("200~size=1000~gzip"))
        assert response.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(response.read()) == pattern(1000)


def test_the_ledger_records_the_whole_request(server: Server) -> None:
    url = server.url("200")
    before = server.clock()
    with Client(server) as client:
        client.ask(f"{url}v1/things?a=1&b=2", "POST", b"hello", X_Name="Äö", x_other="1").read()
    (entry,) = server.ledger(url)
    assert (entry.number, entry.method, entry.query, entry.tail) == (1, "POST", "a=1&b=2", "/v1/things")
    assert entry.path == urlsplit(url).path + "v1/things"
    assert (entry.headers["x-name"], entry.headers["content-length"]) == ("Äö", "5")
    assert ("X-Name", "Äö") in entry.raw
    assert (entry.body, entry.complete) == (b"hello", True)
    assert before <= entry.at <= server.clock()


def test_a_chunked_request_is_recorded_as_one_body(server: Server) -> None:
    url = server.url("200")
    with Client(server) as client:
        client.ask(url, "PUT", iter([b"ab", b"cde", pattern(100_000)])).read()
    assert (server.ledger(url)[0].body, server.ledger(url)[0].complete) == (b"abcde" + pattern(100_000), True)


def test_each_key_has_its_own_steps_and_can_be_chosen(server: Server) -> None:
    own, other = server.url("503,200", key="a key/of ours"), server.url("503,200")
    with Client(server) as client:
        played = [client.ask(url).read() for url in (own, other, own, own, other)]
    assert [json.loads(body)["step"] for body in played] == [1, 1, 2, 3, 2]
    assert [len(server.ledger(it)) for it in (own, "a key/of ours", other, "unheard of")] == [3, 3, 2, 0]


def test_connections_are_reused_unless_one_side_closes() -> None:
    with Server() as server:
        url = server.url("200*3,200~close,200")
        with Client(server) as client:
            for wish in ("keep-alive", "keep-alive", "close", "keep-alive", "keep-alive"):
                client.ask(url, Connection=wish).read()
            assert [entry.connection for entry in server.ledger(url)] == [1, 1, 1, 2, 3]
            server.wait_until_open(1)
        server.wait_until_open(0)
        assert server.connections == 3


def test_the_server_sends_100_continue(server: Server) -> None:
    url = server.url("200~body=thanks")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        head = f"POST {urlsplit(url).path} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        sock.sendall(head.encode())
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert not server.ledger(url)[0].complete
        sock.sendall(b"hi")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert server.ledger(url)[0].body == b"hi"


def test_two_hundred_threads_share_one_key() -> None:
    with Server() as server:
        url = server.url(f"503*{THREADS // 2},200")
        together = threading.Barrier(THREADS)
        answers = list[tuple[int, str | None]]()

        def ask() -> None:
            with Client(server) as client:
                together.wait()
                for _ in range(2):
                    response = client.ask(url)
                    response.read()
                    answers.append((response.status, response.headers["X-Attempt"]))

        threads = [threading.Thread(target=ask) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.wait_until_open(0)
        assert server.connections == THREADS
        entries = server.ledger(url)
    assert [entry.number for entry in entries] == list(range(1, 2 * THREADS + 1))
    assert sorted(int(number or 0) for _, number in answers) == list(range(1, 2 * THREADS + 1))
    assert all((status == 503) is (int(number or 0) <= THREADS // 2) for status, number in answers)


def test_a_refused_port_refuses() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", refused_port()), timeout=30)


def test_connecting_to_a_black_hole_hangs() -> None:
    with black_hole() as port:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", port), timeout=BRIEFLY)


@pytest.mark.parametrize("step", ["openai", "anthropic"])
@pytest.mark.parametrize(("option", "asked"), [("", True), ("~stream", False), ("", False)])
def test_services_answer_or_stream_as_requested(server: Server, step: str, option: str, asked: bool) -> None:
    streamed = asked or bool(option)
    with Client(server) as client:
        body = json.dumps({"model": "m-1", "stream": asked}).encode()
        response = client.ask(server.url(f"{step}{option}~body=Good day") + "v1/any", "POST", body)
        got = response.read().decode()
    assert response.headers["Content-Type"] == ("text/event-stream" if streamed else "application/json")
    if not streamed:
        answer = json.loads(got)
        text = answer["choices"][0]["message"] if step == "openai" else answer["content"][0]
        assert (answer["model"], "Good day" in text.values()) == ("m-1", True)
        return
    events = [line for line in got.splitlines() if line.startswith("data: ")]
    assert sum('"Good"' in event or '" day"' in event for event in events) == 2
    assert events[-1] == ("data: [DONE]" if step == "openai" else 'data: {"type": "message_stop"}')


@pytest.mark.parametrize(("body", "step"), [(b"no JSON", "openai"), (b"[1]", "anthropic"), (b"", "openai")])
def test_services_answer_requests_without_valid_json(server: Server, body: bytes, step: str) -> None:
    with Client(server) as client:
        got = client.ask(server.url(step), "POST", body).read()
    assert json.loads(got)["model"] == "scripted"
    assert b"Hello from attempt 1" in got


def test_a_path_without_a_script_is_not_found(server: Server) -> None:
    with Client(server) as client:
        assert client.ask(server.base + "/elsewhere").status == 404
