"""A response belongs to the attempt that got it: no body is read twice, and no other response is touched."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import aiohttp
import pytest
from requests.adapters import HTTPAdapter

import redouble.aiohttp
from redouble import Fallback, Layer, Retry, report
from tests.support.http.clients import CLIENTS, HTTPX, SYNC_CLIENTS, TLS, Client, client, is_async
from tests.support.servers import Server, pattern

RETRY = Retry(attempts=2, backoff=[0])
SIZES = (9, 100_000)  # the body of a failure of the first size is prefetched, one of the second is not
WITH_RESPONSE = [name for name in CLIENTS if name != "aiohttp"]  # whose error has no response

SIZED = pytest.mark.parametrize("size", SIZES)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def library(name: str) -> Any:
    return importlib.import_module(name.partition("-")[0])


# ----------------------------------------------------- responses of the same call, read meanwhile


@pytest.mark.parametrize("name", WITH_RESPONSE)
@SIZED
@STREAMED
def test_a_fallback_may_return_the_response_of_the_last_attempt(
    server: Server, name: str, size: int, stream: bool
) -> None:
    def last(error: Any) -> Any:
        return error.response

    with client(name, Fallback(last) | RETRY) as http:
        seen = http.get(server.url(f"503~size={size}"), stream=stream, piece=1000)
    assert (seen.status, seen.content) == (503, pattern(size))
    assert (seen.report().reason, seen.report().attempts) == ("attempts", 2)


@pytest.mark.parametrize("name", SYNC_CLIENTS)
@SIZED
@STREAMED
def test_a_rule_may_read_the_body_of_a_failure(server: Server, name: str, size: int, stream: bool) -> None:
    """In blocking code. The body is in memory then, and its connection may be another request's."""
    bodies: list[bytes] = []

    def rule(error: Any) -> bool:
        bodies.append(error.response.content if name == "requests" else error.response.read())
        return True

    with client(name, Retry(on=rule, attempts=2, backoff=[0])) as http:
        seen = http.get(server.url(f"503~size={size}"), stream=stream, piece=1000)
    assert [*bodies, seen.content] == [pattern(size)] * 3


def reading_transport(name: str) -> dict[str, Any]:
    """Return the options of a client with a transport of the user's that reads each body, as for a log."""

    async def reading(request: Any, deliver: Any) -> Any:
        response = await deliver(request)
        await (response.read() if name == "aiohttp" else response.aread())
        return response

    if name == "aiohttp":
        return {"middlewares": [reading]}
    transport: Any
    if is_async(name):
        transport = library(name).AsyncHTTPTransport(verify=TLS)
        transport.handle_async_request = partial(reading, deliver=transport.handle_async_request)
        return {"wrapped": transport}
    transport = HTTPAdapter() if name == "requests" else library(name).HTTPTransport(verify=TLS)
    method = "send" if name == "requests" else "handle_request"
    deliver = getattr(transport, method)

    def blocking(*args: Any, **options: Any) -> Any:
        response = deliver(*args, **options)
        assert (response.content if name == "requests" else response.read()) is not None
        return response

    setattr(transport, method, blocking)
    return {"wrapped": transport}


def accept(response: object) -> bool:
    return response is not None


@EVERY_CLIENT
@SIZED
@pytest.mark.parametrize("until", [None, accept], ids=["", "until"])
@pytest.mark.parametrize("status", [200, 404, 503])
def test_a_body_that_a_transport_below_has_read_is_not_read_again(
    server: Server, name: str, size: int, until: Any, status: int
) -> None:
    policy = Retry(attempts=2, backoff=[0], until=until)
    with client(name, policy, **reading_transport(name)) as http:
        seen = http.get(server.url(f"{status}~size={size}"))
        assert (seen.status, seen.content) == (status, pattern(size))
        assert seen.report().attempts == (2 if status == 503 else 1)
        assert http.get(server.url("200")).status == 200


class FirstFailure(Layer):
    """Keeps the response of the first failed attempt."""

    response: Any = None

    def _keep(self, error: Any) -> None:
        if self.response is None:
            self.response = getattr(error, "response", None)

    def given(self, error: Exception) -> Any:
        assert error is not None
        return self.response

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def keeping(*args: Any) -> Any:
            try:
                return fn(*args)
            except Exception as error:
                self._keep(error)
                raise

        return keeping

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        async def keeping(*args: Any) -> Any:
            try:
                return await fn(*args)
            except Exception as error:
                self._keep(error)
                raise

        return keeping


@pytest.mark.parametrize("name", WITH_RESPONSE)
@STREAMED
def test_the_response_of_an_earlier_attempt_is_in_memory_or_closed(
    server: Server, name: str, stream: bool
) -> None:
    for size in SIZES:
        first = FirstFailure()
        with client(name, Fallback(first.given) | RETRY | first) as http:
            seen = http.get(server.url(f"503~size={size},rst"), stream=stream, piece=1000)
            in_memory = size == SIZES[0] or (name == "requests" and not stream)
            if in_memory:
                assert (seen.status, seen.content) == (503, pattern(size))
            elif name == "requests":  # urllib3 takes a closed body for an empty one
                assert seen.content == b""
            else:
                assert type(seen.error).__name__ == "StreamClosed"
            assert http.get(server.url("200")).status == 200


class FailsAfterwards(Layer):
    """Fails after the first successful attempt."""

    failed = False

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def failing(*args: Any) -> Any:
            return self._check(fn(*args))

        return failing

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        async def failing(*args: Any) -> Any:
            return self._check(await fn(*args))

        return failing

    def _check(self, response: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise LookupError("not this one")
        return response


@EVERY_CLIENT
@pytest.mark.parametrize("attempts", [1, 2])
def test_the_connection_of_a_response_that_a_layer_dropped_is_free(
    server: Server, name: str, attempts: int
) -> None:
    policy = Retry(on=LookupError, attempts=attempts, backoff=[0]) | FailsAfterwards()
    with client(name, policy, pool=1) as http:
        seen = http.get(server.url("200~size=100000"), timeout=5)
        assert seen.outcome == (200 if attempts == 2 else "LookupError")
        assert http.get(server.url("200~size=9"), timeout=5).content == pattern(9)


# -------------------------------------------------------------------- responses of other calls


def read_beside(http: Client, other: str, url: str, stream: bool) -> tuple[bytes, bytes]:
    """Return the bodies of two responses; the first is read partly before the second is requested."""

    def blocking() -> tuple[bytes, bytes]:
        with http._open("GET", other, True, {}) as streamed:
            pieces = iter(http._pieces(streamed, 1000))
            first = next(pieces)
            with http._open("GET", url, stream, {}) as found:
                body = b"".join(http._pieces(found, 1000)) if stream else found.content
            return first + b"".join(pieces), body

    async def waiting() -> tuple[bytes, bytes]:
        async with await http._open("GET", other, True, {}) as streamed:
            pieces = aiter(http._pieces(streamed, 1000))
            first = await anext(pieces)
            async with await http._open("GET", url, stream, {}) as found:
                if http.name == "aiohttp":
                    body = await found.read()
                else:
                    body = b"".join([piece async for piece in found.aiter_bytes()])
            return first + b"".join([piece async for piece in pieces]), body

    bodies: tuple[bytes, bytes] = http.run(waiting if is_async(http.name) else blocking)
    return bodies


def good_response(http: Client, url: str) -> Any:
    """Return a response that was read."""

    async def unreleased() -> Any:  # aiohttp cannot read a released response again
        response = await http.raw.get(url)
        await response.read()
        return response

    return http.run(unreleased) if http.name == "aiohttp" else http.get(url).response


@EVERY_CLIENT
@STREAMED
def test_the_last_good_response_is_not_read_from_a_connection_that_another_request_uses(
    server: Server, name: str, stream: bool
) -> None:
    """The other request gets its own bytes, and the caller those of the last good response."""
    kept: list[Any] = []
    with client(name, Fallback(lambda error: kept[0]) | RETRY) as http:
        kept.append(good_response(http, server.url("200~size=9")))
        before = report(kept[0])
        big, failing = server.url("200~size=300000"), server.url("rst")
        assert read_beside(http, big, failing, stream) == (pattern(300_000), pattern(9))
    assert report(kept[0]) == before


@EVERY_CLIENT
@pytest.mark.parametrize("bare", [True, False], ids=["plain", "redouble"])
@pytest.mark.parametrize("state", ["read", "unread", "closed"])
def test_the_response_of_another_client_is_as_that_client_left_it(
    server: Server, name: str, bare: bool, state: str
) -> None:
    """It can still be read if it was not, from its own connection; it has the report of its own call."""

    def mirror_response() -> Any:
        url = server.url("200~size=200000")
        if name == "requests":
            found = mirror.get(url, stream=state != "read")
        else:
            found = mirror.send(mirror.build_request("GET", url), stream=state != "read")
        if state == "closed":
            found.close()
        return found

    async def mirror_response_async() -> Any:
        url = server.url("200~size=200000")
        if name == "aiohttp":
            found = await mirror.get(url)
            if state == "read":
                await found.read()
        else:
            found = await mirror.send(mirror.build_request("GET", url), stream=state != "read")
        if state == "closed":
            await found.aclose() if name != "aiohttp" else found.close()
        return found

    with ExitStack() as stack:
        if is_async(name):  # in the loop of the client
            http = stack.enter_context(client(name, Fallback(lambda error: mirror_response_async()) | RETRY))
            mirror = http.run(_mirror_session, name, bare)
            stack.callback(http.run, mirror.close if name == "aiohttp" else mirror.aclose)
        else:
            http = stack.enter_context(client(name, Fallback(lambda error: mirror_response()) | RETRY))
            mirror = stack.enter_context(client(name, None, bare=bare)).raw
        seen = http.get(server.url("rst"))
        assert http.get(server.url("200~size=9")).content == pattern(9)
    if state != "closed":
        assert (seen.status, seen.content) == (200, pattern(200_000))
    elif name == "requests":
        assert seen.content == b""
    else:
        assert type(seen.error).__name__ in ("StreamClosed", "ClientConnectionError")
    if seen.response is not None:
        found = report(seen.response)
        assert (found is None) if bare else (found is not None and found.attempts == 1)


async def _mirror_session(name: str, bare: bool) -> Any:
    if name == "aiohttp":
        return aiohttp.ClientSession(middlewares=[] if bare else [redouble.aiohttp.middleware()])
    theirs, ours = library(name), importlib.import_module(f"redouble.{name.partition('-')[0]}")
    wrapped = theirs.AsyncHTTPTransport(verify=TLS)
    return theirs.AsyncClient(transport=wrapped if bare else ours.AsyncTransport(wrapped=wrapped))


@pytest.mark.parametrize("name", HTTPX)
@STREAMED
def test_a_response_made_by_hand_has_no_report(server: Server, name: str, stream: bool) -> None:
    """Such a response may be the same object in many calls."""
    made = library(name).Response(200, content=b"by hand")
    with client(name, Fallback(value=made) | RETRY) as http:
        for _ in range(2):
            seen = http.get(server.url("rst"), stream=stream)
            assert (seen.status, seen.content) == (200, b"by hand")
            assert report(seen.response) is None
