"""A call over HTTP keeps its time limits, in blocking code too, whatever the server does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import aiohttp
import httpcore2
import httpx
import httpx2
import pytest
import requests
import urllib3
from requests.adapters import BaseAdapter

import redouble.httpx2
import redouble.requests
from redouble import CircuitBreaker, Layer, Reason, Retry, Timeout
from redouble.errors import AttemptTimeout, DeadlineExceeded
from redouble.testing import virtual_time
from tests.support.fakes import in_colour
from tests.support.http.body_readers import reader
from tests.support.http.clients import CLIENTS, Client, HttpResult, client
from tests.support.servers import Server, black_hole

SHORT = 0.2  # the limit, in seconds
LONG = 3.0  # the read timeout of the client, in seconds
NONE = [0] * 9  # no delays

TIMEOUTS: dict[str, tuple[type[Exception], ...]] = {
    "httpx": (httpx.TimeoutException,),
    "httpx2": (httpx2.TimeoutException,),
    "aiohttp": (aiohttp.ServerTimeoutError,),
    "requests": (requests.Timeout,),
}

# Each limit with the number of attempts, if every attempt lasts until it is cancelled, the reason, the limit
# in the report, and the text of the error.
LIMITS: dict[str, tuple[Layer, int, Reason, str, str]] = {
    "timeout": (Retry(backoff=NONE, timeout=SHORT), 1, Reason.timeout, "total", "the call's timeout"),
    "attempt_timeout": (
        Retry(backoff=NONE, attempts=2, attempt_timeout=SHORT),
        2,
        Reason.attempts,
        "attempt",
        "took longer than 0.2 s",
    ),
    "Timeout inside": (
        Retry(backoff=NONE, attempts=2) | Timeout(SHORT),
        2,
        Reason.attempts,
        "attempt",
        "took longer than 0.2 s",
    ),
    "Timeout outside": (
        Timeout(SHORT) | Retry(backoff=NONE),
        1,
        Reason.timeout,
        "deadline",
        "took longer than 0.2 s",
    ),
    "deadline": (Retry(backoff=NONE), 1, Reason.timeout, "deadline", ": the deadline"),
}

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)
EVERY_KIND = pytest.mark.parametrize("name", [name for name in CLIENTS if name.partition("-")[0] != "httpx"])
EVERY_LIMIT = pytest.mark.parametrize("limit", LIMITS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def timed(http: Client, limit: str, url: str, method: str = "GET", **options: Any) -> HttpResult:
    """Make a call within a limit; the client's own timeout is longer."""
    within = SHORT if limit == "deadline" else None
    return http.request(method, url, timeout=LONG, within=within, **options)


def check(name: str, limit: str, seen: HttpResult) -> None:
    _, attempts, *told, text = LIMITS[limit]
    assert isinstance(seen.error, TIMEOUTS[name.partition("-")[0]])
    assert isinstance(seen.error, DeadlineExceeded | AttemptTimeout)
    assert text in str(seen.error)
    assert [seen.report().reason, seen.report().limit, seen.report().attempts] == [*told, attempts]


# ------------------------------------------------------------------------------ time limits of attempts


@pytest.mark.quiet
@EVERY_KIND
@EVERY_LIMIT
@pytest.mark.parametrize("script", ["stall", "200~driphead=0.02", "200~stall=9", "200~size=150~drip=0.02"])
def test_a_silent_or_dripping_server_does_not_extend_the_limit(
    server: Server, name: str, limit: str, script: str
) -> None:
    """The client itself would wait much longer for a silent server, and to the end for a dripping one."""
    url = server.url(script)
    with client(name, LIMITS[limit][0]) as http:
        check(name, limit, timed(http, limit, url))
    assert (
        len(server.ledger(url)) <= LIMITS[limit][1]
    )  # an attempt may be cancelled before its request arrives


@pytest.mark.quiet
@EVERY_KIND
@EVERY_LIMIT
def test_the_limit_includes_the_first_byte_of_the_body(server: Server, name: str, limit: str) -> None:
    url = server.url("200~stall=0")
    with client(name, LIMITS[limit][0]) as http:
        seen = timed(http, limit, url, stream=True)
    assert seen.status == 200
    check(name, limit, seen)


@pytest.mark.quiet
@EVERY_KIND
@EVERY_LIMIT
def test_the_limits_end_with_the_first_byte(server: Server, name: str, limit: str) -> None:
    """The body takes twice the limit, and is received completely."""
    with client(name, LIMITS[limit][0]) as http:
        seen = timed(http, limit, server.url("200~size=24~drip=0.02"), stream=True)
    assert (seen.outcome, len(seen.content or b"")) == (200, 24)


@pytest.mark.quiet
@pytest.mark.parametrize("name", ["httpx2", "httpx2-asyncio", "requests", "aiohttp"])
@EVERY_LIMIT
def test_the_limit_applies_while_the_body_is_sent(server: Server, name: str, limit: str) -> None:
    """The server does not read it. Not on Trio, which warns about an unfinished generator of httpx."""
    url = server.url("200~early~stallhead=0")
    body = b"x" * 20_000_000
    with client(name, LIMITS[limit][0]) as http:
        seen = timed(http, limit, url, "PUT", body=BytesIO(body) if name == "aiohttp" else body)
    check(name, limit, seen)
    assert not any(entry.complete for entry in server.ledger(url))


@pytest.mark.quiet
@EVERY_KIND
@EVERY_LIMIT
def test_the_limit_applies_while_connecting(name: str, limit: str) -> None:
    with black_hole() as port, client(name, LIMITS[limit][0]) as http:
        check(name, limit, timed(http, limit, f"http://127.0.0.1:{port}/"))


@pytest.mark.quiet
@EVERY_CLIENT
def test_the_limit_applies_while_waiting_for_the_pool(server: Server, name: str) -> None:
    """The only connection is in use by a response that is being read."""
    with client(name, Retry(backoff=NONE, timeout=SHORT), pool=1) as http:
        response = http.run(_head, http, server.url("200~stall=3"))
        try:
            check(name, "timeout", timed(http, "timeout", server.url("200")))
        finally:
            http.run(response.aclose if name.startswith("httpx") and "-" in name else response.close)


def _head(http: Client, url: str) -> Any:
    """Return a response whose body is unread; in async code, an awaitable of it."""
    if http.name == "requests":
        return http.raw.get(url, stream=True)
    return (
        http.raw.get(url) if http.name == "aiohttp" else http.raw.send(httpx_request(http, url), stream=True)
    )


def httpx_request(http: Client, url: str) -> Any:
    return http.raw.build_request("GET", url)


@EVERY_CLIENT
def test_after_the_deadline_nothing_is_sent(server: Server, name: str) -> None:
    url = server.url("200")
    with client(name, Retry()) as http:
        seen = http.get(url, within=0)
    assert isinstance(seen.error, redouble.errors.DeadlineExceeded)
    assert isinstance(seen.error, TIMEOUTS[name.partition("-")[0]])
    assert server.ledger(url) == []


@EVERY_CLIENT
def test_a_call_within_its_limits_succeeds(server: Server, name: str) -> None:
    with client(name, Retry(timeout=LONG, attempt_timeout=LONG)) as http:
        seen = http.get(server.url("200"), within=LONG, timeout=LONG)
    assert (seen.outcome, seen.report().limit) == (200, None)


# ---------------------------------------------------------------- timeouts passed to the client

REQUEST_TIMEOUT: Any = {"connect": 1.0, "read": None, "write": 20.0, "pool": 8.0}
EXPECTED = [  # the total is 10 s; an attempt takes 3 s, and the delay is 1 s
    {"connect": 1.0, "read": 10.0, "write": 10.0, "pool": 8.0},
    {"connect": 1.0, "read": 6.0, "write": 6.0, "pool": 6.0},
    {"connect": 1.0, "read": 2.0, "write": 2.0, "pool": 2.0},
]


class Slow(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport that records the timeouts it is given, and fails after 3 seconds."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.received: list[dict[str, float]] = []
        self.mappings: list[dict[str, float]] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.received.append({**request.extensions["timeout"]})
        self.mappings.append(request.extensions["timeout"])
        self.clock.advance(3)
        raise httpx2.ConnectError("no")

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)


@pytest.mark.parametrize("colour", ["sync", "thread", "asyncio"])
@pytest.mark.parametrize("limit", ["timeout", "deadline"])
def test_the_timeouts_of_the_client_shrink_to_the_time_left(colour: str, limit: str) -> None:
    """They never grow, and afterwards the request has its own timeouts again.

    So has the mapping of each attempt, by which httpcore reads a body later.
    """
    request = httpx2.Request("GET", "http://there/", extensions={"timeout": REQUEST_TIMEOUT})
    policy = Retry(backoff=[1] * 9, timeout=10 if limit == "timeout" else None)
    received, mappings = list[Any](), list[Any]()

    def blocking() -> None:
        with virtual_time() as clock, redouble.deadline(10 if limit == "deadline" else 99):
            slow = Slow(clock)
            with pytest.raises(httpx2.ConnectError):
                redouble.httpx2.Transport(policy, wrapped=slow).handle_request(request)
            received.extend(slow.received)
            mappings.extend(slow.mappings)

    async def waiting() -> None:
        with virtual_time() as clock, redouble.deadline(10 if limit == "deadline" else 99):
            slow = Slow(clock)
            with pytest.raises(httpx2.ConnectError):
                await redouble.httpx2.AsyncTransport(policy, wrapped=slow).handle_async_request(request)
            received.extend(slow.received)
            mappings.extend(slow.mappings)

    in_colour(colour, blocking, waiting)
    # An async attempt is cancelled while it reads.
    own = {} if colour != "asyncio" else {"read": REQUEST_TIMEOUT["read"]}
    assert received == [pytest.approx({**limits, **own}, abs=0.05) for limits in EXPECTED]
    assert request.extensions == {"timeout": REQUEST_TIMEOUT}
    assert mappings == [REQUEST_TIMEOUT] * len(EXPECTED)


class TimedStream(httpcore2.AsyncMockStream):
    """A connection that records the timeout of each read."""

    timeouts: list[float | None]

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        self.timeouts.append(timeout)
        return await super().read(max_bytes, timeout)


class TimedBackend(httpcore2.AsyncMockBackend):
    """A network backend with such connections."""

    def __init__(self, buffer: list[bytes]) -> None:
        super().__init__(buffer)
        self.timeouts: list[float | None] = []

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        stream = TimedStream(list(self._buffer))
        stream.timeouts = self.timeouts
        return stream


def test_the_rest_of_a_failed_body_is_read_by_the_timeout_of_the_client() -> None:
    """The attempt has begun to read a body too large to prefetch; its limit ends with it."""
    head = b"HTTP/1.1 503 Unavailable\r\ntransfer-encoding: chunked\r\n\r\n"
    backend = TimedBackend([head, b"11170\r\n" + b"x" * 70_000 + b"\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n"])

    async def main() -> None:
        wrapped: Any = httpx2.AsyncHTTPTransport()
        wrapped._pool._network_backend = backend
        transport = redouble.httpx2.AsyncTransport(Retry(attempts=1, timeout=1), wrapped=wrapped)
        async with (
            httpx2.AsyncClient(transport=transport, timeout=30) as session,
            session.stream("GET", "http://there/") as response,
        ):
            assert sum([len(chunk) async for chunk in response.aiter_raw()]) == 70_003

    asyncio.run(main())
    assert backend.timeouts[-2:] == [30, 30]


class SlowAdapter(BaseAdapter):
    """Such an adapter for requests."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self.clock = clock
        self.received: list[Any] = []

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        self.received.append(options["timeout"])
        self.clock.advance(3)
        raise requests.ConnectionError("no")

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (None, [(10, 10), (6, 6), (2, 2)]),
        (5, [(5, 5), (5, 5), (2, 2)]),
        ((1, None), [(1, 10), (1, 6), (1, 2)]),
        (urllib3.Timeout(connect=1, read=4), [(1, 4), (1, 4), (1, 2)]),
        (urllib3.Timeout(total=7), [(7, 7), (6, 6), (2, 2)]),
    ],
    ids=["none", "one", "two", "urllib3's", "urllib3's total"],
)
def test_the_timeouts_of_requests_shrink_to_the_time_left(timeout: Any, expected: list[Any]) -> None:
    with virtual_time() as clock, requests.Session() as session:
        slow = SlowAdapter(clock)
        session.mount("http://", redouble.requests.Adapter(Retry(backoff=[1] * 9, timeout=10), wrapped=slow))
        with pytest.raises(requests.ConnectionError):
            session.get("http://there/", timeout=timeout)
    assert slow.received == [pytest.approx(limits, abs=0.05) for limits in expected]


@pytest.mark.quiet
@EVERY_CLIENT
def test_a_restart_counts_for_the_same_limit(server: Server, name: str) -> None:
    """A body breaks, and the server does not respond to the next attempt."""
    url = server.url("200~cut=0,stall")
    with client(name, Retry(backoff=NONE, timeout=SHORT)) as http:
        seen = reader(name, whole=False).read_with(http, url, timeout=LONG)
    assert isinstance(seen.error, TIMEOUTS[name.partition("-")[0]])
    assert seen.report().reason == Reason.timeout
    assert len(server.ledger(url)) == 2


@pytest.mark.quiet
@EVERY_KIND
def test_a_breaker_sees_an_attempt_that_its_client_ends(server: Server, name: str) -> None:
    """Therefore `check` does not object to it: the client ends the attempt, and nothing is cancelled."""
    breaker = CircuitBreaker(failures=2)
    policy = Retry(attempts=2, backoff=NONE, attempt_timeout=0.1) | breaker
    warning = "CircuitBreaker inside the limit of an attempt"
    assert [text for text in policy.check() if text.startswith(warning)]
    with client(name, policy) as http:
        http.request("GET", server.url("stall"), timeout=LONG)
    assert breaker.state == "open"
    assert not [text for text in policy.check() if text.startswith(warning)]
