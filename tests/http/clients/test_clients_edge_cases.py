"""Rare cases of the clients: odd policies, interruptions, pickling, proxies, late readers."""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3 import connection
from urllib3.exceptions import EmptyPoolError

import redouble.aiohttp
import redouble.httpx
import redouble.httpx2
import redouble.requests
from redouble import Fallback, Retry, errors, http, report
from redouble._clients.library_error import library_error_class
from redouble._clients.socket_deadline import SOCKET_DEADLINE
from redouble.http import _urllib3_sockets
from tests.support.servers import Server

POLICY = Retry(backoff=[0] * 5, attempts=2)
LOOKED_AT = Retry(until=lambda response: True, backoff=[0])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def session(*args: Any, **options: Any) -> requests.Session:
    made = requests.Session()
    made.trust_env = False
    made.mount("http://", redouble.requests.Adapter(*args, **options))
    return made


async def with_aiohttp(url: str, policy: Any, read: Callable[[Any], Any]) -> Any:
    middleware = redouble.aiohttp.middleware(policy)
    async with aiohttp.ClientSession(middlewares=[middleware]) as made, made.get(url) as response:
        return await read(response)


# ------------------------------------------------------------------------------- policies


def test_a_policy_must_return_a_response(server: Server) -> None:
    odd = Fallback(value="x", on=Exception) | POLICY
    url = server.url("503")
    with (
        httpx2.Client(transport=redouble.httpx2.Transport(odd)) as client,
        pytest.raises(TypeError, match=r"the policy returned 'x': write a layer that returns an httpx2.R"),
    ):
        client.get(url)
    with session(odd) as made, pytest.raises(TypeError, match="the policy returned 'x'"):
        made.get(url)
    with pytest.raises(TypeError, match="the policy returned 'x'"):
        asyncio.run(with_aiohttp(url, odd, lambda response: response.read()))


def test_a_response_that_a_rule_inspected_can_be_read(server: Server) -> None:
    with httpx2.Client(transport=redouble.httpx2.Transport(LOOKED_AT)) as client:
        with client.stream("GET", server.url("200~body=abc")) as response:
            assert b"".join(response.iter_raw()) == b"abc"
        assert client.get(server.url("200~body=abc")).elapsed

    async def main() -> None:
        async with httpx2.AsyncClient(transport=redouble.httpx2.AsyncTransport(LOOKED_AT)) as client:
            assert (await client.get(server.url("200~body=abc"))).content == b"abc"

    asyncio.run(main())
    found = asyncio.run(
        with_aiohttp(server.url("200~body=abc"), LOOKED_AT, lambda response: response.content.read())
    )
    assert found == b"abc"


def test_wrapping_a_failed_response_in_an_error_closes_it(server: Server) -> None:
    wrapping = Retry(attempts=1, wrap=True)
    with session(wrapping) as made, pytest.raises(errors.AttemptsExhausted):
        made.get(server.url("503~size=200000"), stream=True)
    server.wait_until_open(0)


def test_a_client_closed_during_a_delay_sends_no_more(server: Server) -> None:
    urls = [server.url("503,200") for _ in range(4)]

    closing_client = Retry(backoff=[0], on_retry=lambda _: client.close())
    with httpx2.Client(transport=redouble.httpx2.Transport(closing_client)) as client:
        assert client.get(urls[0]).status_code == 503
    with session(Retry(backoff=[0], on_retry=lambda _: made.close())) as made:
        assert made.get(urls[1]).status_code == 503

    async def main() -> None:
        closing: list[Any] = []
        policy = Retry(backoff=[0.001], on_retry=lambda _: closing.append(asyncio.ensure_future(close())))
        async with httpx2.AsyncClient(transport=redouble.httpx2.AsyncTransport(policy)) as client:
            close = client.aclose
            assert (await client.get(urls[2])).status_code == 503
        async with aiohttp.ClientSession(middlewares=[redouble.aiohttp.middleware(policy)]) as made:
            close = made.close
            assert (await made.get(urls[3])).status == 503
        await asyncio.gather(*closing)

    asyncio.run(main())
    assert [len(server.ledger(url)) for url in urls] == [1, 1, 1, 1]


def test_a_transport_around_another_one_of_redouble_is_refused() -> None:
    with pytest.raises(ValueError, match="attempts would multiply"):
        redouble.httpx2.Transport(wrapped=redouble.httpx2.Transport())
    with pytest.raises(ValueError, match="attempts would multiply"):
        redouble.requests.Adapter(wrapped=redouble.requests.Adapter())


def test_a_transport_under_a_client_of_the_other_library_raises() -> None:
    with pytest.raises(TypeError, match=r"redouble.httpx2 is under a client of httpx: use redouble.httpx"):
        redouble.httpx2.Transport().handle_request(cast("Any", httpx.Request("GET", "http://h/")))


@pytest.mark.parametrize(("ours", "library"), [(redouble.httpx, httpx), (redouble.httpx2, httpx2)])
def test_a_transport_of_the_other_colour_is_refused(ours: Any, library: Any) -> None:
    with pytest.raises(TypeError, match="wrapped="):
        ours.Transport(wrapped=library.AsyncHTTPTransport())
    with pytest.raises(TypeError, match="wrapped="):
        ours.AsyncTransport(wrapped=library.HTTPTransport())


def test_http_rule_without_parentheses_raises() -> None:
    with pytest.raises(TypeError, match=r"write on=redouble.http.rule\(\)"):
        http.rule(cast("Any", ValueError()))  # as the engine would call it with ``on=http.rule``


def test_a_rule_without_errors_has_no_opinion_on_them() -> None:
    assert http.rule(errors=())(ConnectionError()) is None


def test_an_error_whose_str_raises_is_shown() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail() -> None:
        raise Odd

    seen: list[str] = []
    with pytest.raises(Odd):
        Retry(on=Odd, attempts=1, on_failure=lambda event: seen.append(repr(event))).call(fail)
    assert "Odd(<no text>)" in seen[0]


# --------------------------------------------------------------------------------- readers


class Broken(httpx2.SyncByteStream):
    """A body that raises KeyboardInterrupt."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        raise KeyboardInterrupt
        yield b""

    def close(self) -> None:
        self.closed = True


def test_keyboard_interrupt_while_a_body_is_prefetched_closes_it() -> None:
    body = Broken()
    wrapped = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=body))
    transport = redouble.httpx2.Transport(LOOKED_AT, wrapped=wrapped)
    with httpx2.Client(transport=transport) as client, pytest.raises(KeyboardInterrupt):
        client.get("http://h/")
    assert body.closed


class Twice(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that can be iterated any number of times."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"abc"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"abc"


def test_a_second_iteration_of_a_body_is_left_to_the_library() -> None:
    wrapped = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=Twice()))
    transport = redouble.httpx2.Transport(wrapped=wrapped)
    body: Any = transport.handle_request(httpx2.Request("GET", "http://h/")).stream
    assert [b"".join(body), b"".join(body)] == [b"abc", b"abc"]

    async def main() -> None:
        transport = redouble.httpx2.AsyncTransport(wrapped=wrapped)
        response = await transport.handle_async_request(httpx2.Request("GET", "http://h/"))
        body: Any = response.stream
        for _ in range(2):
            assert [piece async for piece in body] == [b"abc"]

    asyncio.run(main())


def test_a_response_in_memory_keeps_its_stream() -> None:
    """There is nothing left to receive, so the transport does not wrap the stream."""
    response = httpx2.Response(200, content=b"abc")
    wrapped = httpx2.MockTransport(lambda _: response)
    answer = redouble.httpx2.Transport(wrapped=wrapped).handle_request(httpx2.Request("GET", "http://h/"))
    assert type(answer.stream) is httpx2.ByteStream
    call_report = report(answer)
    assert call_report is not None
    assert (answer.read(), call_report.attempts) == (b"abc", 1)


def test_reading_after_the_response_was_dropped_raises(server: Server) -> None:
    with httpx2.Client(transport=redouble.httpx2.Transport(POLICY)) as client:
        request = client.build_request("GET", server.url("200~size=200000"))
        response = client.send(request, stream=True)
        read, stream = response.read, cast("Any", response.stream)
        del response
        gc.collect()
        with pytest.raises(httpx2.StreamClosed):
            read()
        stream.close()


def test_an_unread_response_can_be_pickled(server: Server) -> None:
    transport, url = redouble.httpx2.Transport(POLICY), server.url("200")
    with httpx2.Client(transport=transport) as client, client.stream("GET", url) as response:
        copy: httpx2.Response = pickle.loads(pickle.dumps(response))
    with pytest.raises(httpx2.StreamClosed):
        copy.read()
    call_report = report(copy)
    assert call_report is not None
    assert call_report.attempts == 1

    async def main() -> None:
        client = httpx2.AsyncClient(transport=redouble.httpx2.AsyncTransport(POLICY))
        async with client, client.stream("GET", url) as response:
            copy = pickle.loads(pickle.dumps(response))
        with pytest.raises(httpx2.StreamClosed):
            await copy.aread()

    asyncio.run(main())


def test_reading_a_closed_aiohttp_response_does_not_resend_the_request(server: Server) -> None:
    url = server.url("200~size=300000")

    async def main() -> None:
        async with aiohttp.ClientSession(middlewares=[redouble.aiohttp.middleware(POLICY)]) as made:
            response = await made.get(url)
            response.close()
            with pytest.raises(aiohttp.ClientConnectionError):
                await response.content.read()

    asyncio.run(main())
    assert len(server.ledger(url)) == 1


def test_the_raw_body_of_a_large_failed_response_is_complete(server: Server) -> None:
    with session(POLICY) as made:
        response = made.get(server.url("503~size=200000~chunked~piece=9000"), stream=True)
        assert len(response.raw.read()) == 200_000


# -------------------------------------------------------------------------------- requests


def test_a_session_can_be_pickled(server: Server) -> None:
    with session(idempotency="auto") as made:
        copy = pickle.loads(pickle.dumps(made))
    with copy:
        assert copy.get(server.url("503,200")).status_code == 200


def test_a_deadline_error_of_a_client_is_unpickled_as_the_base_error() -> None:
    error: Any = library_error_class((errors.DeadlineExceeded, requests.Timeout), __name__)("late")
    error.request, error.report = lambda: "not picklable", None
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (errors.DeadlineExceeded, "late")
    assert not hasattr(copy, "request")


def test_connections_to_a_proxy_are_limited_too(server: Server) -> None:
    adapter = HTTPAdapter()
    with session(POLICY, wrapped=adapter) as made:
        made.get("http://example.test/", proxies={"http": server.base})
        made.get(server.url("200"), proxies={"https": server.base})
    (manager,) = adapter.proxy_manager.values()
    assert manager.pool_classes_by_scheme["http"] is _urllib3_sockets.LimitedPool


def test_custom_pool_classes_are_left_alone() -> None:
    manager = urllib3.PoolManager()
    own: Any = {"http": urllib3.HTTPConnectionPool, "https": urllib3.HTTPConnectionPool}
    manager.pool_classes_by_scheme = own
    _urllib3_sockets.limit_pools(manager)
    assert manager.pool_classes_by_scheme is own


def test_after_the_deadline_the_pool_is_not_waited_for() -> None:
    pool = _urllib3_sockets.LimitedPool("h")
    token = SOCKET_DEADLINE.set((0.0, lambda: 1.0))
    try:
        with pytest.raises(EmptyPoolError):
            pool._get_conn()
    finally:
        SOCKET_DEADLINE.reset(token)


def test_tls_sockets_and_the_tunnel_request_of_a_proxy_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a network: the tunnel is requested on a limited socket, TLS starts on the bare one."""
    seen: list[object] = []

    class Sock:
        _io_refs = 0

        def gettimeout(self) -> None:
            return None

    def connect(self: Any) -> None:
        self.sock = bare
        self._tunnel()
        seen.append(self.sock)

    def tunnel(self: Any) -> None:
        seen.append(self.sock)

    bare = Sock()
    monkeypatch.setattr(connection.HTTPSConnection, "connect", connect)
    monkeypatch.setattr(connection.HTTPSConnection, "_tunnel", tunnel, raising=False)
    made: Any = _urllib3_sockets.HTTPSConnection("h")
    made.connect()
    assert [type(sock).__name__ for sock in (*seen, made.sock)] == ["LimitedSocket", "Sock", "LimitedSocket"]


def test_a_stand_in_for_a_socket_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no count of references to itself, which the wrapper needs."""
    stand_in = object()

    def connect(made: Any) -> None:
        made.sock = stand_in

    monkeypatch.setattr(connection.HTTPConnection, "connect", connect)
    made: Any = _urllib3_sockets.HTTPConnection("h")
    made.connect()
    assert made.sock is stand_in


def test_connections_that_another_library_puts_into_urllib3s_pools_are_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vcrpy does while it records: also by an adapter that exists already."""
    seen: list[str] = []

    class Recording(connection.HTTPConnection):
        def putrequest(self, method: str, url: str, *args: Any, **options: Any) -> None:
            seen.append(method)
            super().putrequest(method, url, *args, **options)

    adapter = redouble.requests.Adapter(Retry(backoff=[0, 0]))
    with requests.Session() as session:
        session.mount("http://", adapter)
        with monkeypatch.context() as patched:
            patched.setattr(urllib3.HTTPConnectionPool, "ConnectionCls", Recording)
            assert session.get(server.url("503*2,200~close")).status_code == 200
            pool = cast("Any", adapter)._wrapped.poolmanager.connection_from_url(server.url("200"))
            assert pool.ConnectionCls.__name__ == "Recording"
        assert pool.ConnectionCls is _urllib3_sockets.HTTPConnection
        assert seen == ["GET"] * 3
