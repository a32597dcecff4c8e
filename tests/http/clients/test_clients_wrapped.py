"""The arguments of redouble's transports and adapters: valid ones, and errors for others."""

from __future__ import annotations

import asyncio
import importlib
import pickle
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import aiohttp
import pytest
import requests
import trio
from requests.adapters import BaseAdapter, HTTPAdapter

import redouble
import redouble.aiohttp
import redouble.requests
from redouble import Pipeline, Retry
from tests.support.fakes import Virtual
from tests.support.http.clients import CLIENTS, HTTPX, client, is_async
from tests.support.servers import Server

POLICY = Retry(backoff=[0] * 3)


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


def library(name: str) -> Any:
    """Import the library of a client."""
    return importlib.import_module(name.partition("-")[0])


def make(name: str) -> Callable[..., Any]:
    """Return redouble's transport, adapter or middleware for a client."""
    if name == "requests":
        return redouble.requests.Adapter
    if name == "aiohttp":
        return redouble.aiohttp.middleware
    ours = importlib.import_module(f"redouble.{name.partition('-')[0]}")
    found: Callable[..., Any] = getattr(ours, "AsyncTransport" if "-" in name else "Transport")
    return found


# --------------------------------------------------------------------- valid arguments


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("stream", [False, True])
def test_a_mock_transport_is_retried(name: str, stream: bool) -> None:
    """Its responses are in memory."""
    theirs, statuses = library(name), [503, 429, 200]

    def answer(request: Any) -> Any:
        return theirs.Response(statuses.pop(0), text=request.method)

    with client(name, POLICY, wrapped=theirs.MockTransport(answer)) as http:
        seen = http.get("http://nowhere/", stream=stream)
    assert (seen.status, seen.content, seen.report().attempts) == (200, b"GET", 3)


@pytest.mark.parametrize("name", [name for name in HTTPX if "-" in name])
def test_an_asgi_application_is_retried(name: str) -> None:
    """It succeeds in the third attempt."""
    statuses = [503, 503, 200]

    async def application(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": statuses.pop(0), "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    with client(name, POLICY, wrapped=library(name).ASGITransport(application)) as http:
        seen = http.get("http://nowhere/")
    assert (seen.status, seen.content, seen.report().attempts) == (200, b"hello", 3)


@pytest.mark.parametrize("name", [name for name in HTTPX if "-" not in name])
def test_a_wsgi_application_is_retried(name: str) -> None:
    """It succeeds in the third attempt."""
    statuses = ["503 Busy", "503 Busy", "200 OK"]

    def application(environ: Any, start_response: Callable[..., Any]) -> list[bytes]:
        start_response(statuses.pop(0), [])
        return [b"hello"]

    with client(name, POLICY, wrapped=library(name).WSGITransport(application)) as http:
        seen = http.get("http://nowhere/")
    assert (seen.status, seen.content, seen.report().attempts) == (200, b"hello", 3)


class Canned(BaseAdapter):
    """A user-defined adapter that returns responses with the given statuses."""

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.closed = False

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        response = requests.Response()
        response.status_code, response.url = self.statuses.pop(0), str(request.url)
        response._content = b"hello"
        return response

    def close(self) -> None:
        self.closed = True


def test_a_user_defined_adapter_is_retried_and_closed() -> None:
    """It needs no options."""
    canned = Canned(503, 503, 200)
    with client("requests", POLICY, wrapped=canned) as http:
        seen = http.get("http://nowhere/")
    assert (seen.status, seen.content, seen.report().attempts) == (200, b"hello", 3)
    assert canned.closed


@pytest.mark.parametrize("name", HTTPX)
def test_the_wrapped_transport_is_closed_with_the_client(name: str) -> None:
    """And so are its connections."""
    with Server() as server, client(name) as http:
        assert http.get(server.url("200")).status == 200
        server.wait_until_open(1)
        http.run(http.raw.aclose if "-" in name else http.raw.close)
        server.wait_until_open(0)


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_without_a_transport_the_library_s_own_is_used(name: str, server: Server) -> None:
    """Without a policy, it is the preset for HTTP."""
    theirs, ours = library(name), importlib.import_module(f"redouble.{name}")

    async def main() -> Any:
        async with theirs.AsyncClient(transport=ours.AsyncTransport()) as raw:
            return await raw.get(server.url("503,200"))

    with theirs.Client(transport=ours.Transport()) as raw:
        answers = [raw.get(server.url("503,200")), asyncio.run(main()), trio.run(main)]
    assert [(answer.status_code, attempts(answer)) for answer in answers] == [(200, 2)] * 3


def attempts(response: object) -> int | None:
    """Return the number of attempts in the report of a response."""
    found = redouble.report(response)
    return found and found.attempts


@pytest.mark.parametrize("name", CLIENTS)
def test_an_empty_pipeline_retries_nothing(name: str, server: Server) -> None:
    """The response has a report."""
    url = server.url("503")
    with client(name, Pipeline()) as http:
        seen = http.get(url)
    assert (seen.status, len(server.ledger(url)), seen.report().reason) == (503, 1, "stopped")


# ------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": 3}, r"policy=3 is no layer: write a redouble.Retry"),
        ({"policy": Retry}, r"policy=<class .*Retry'> is no layer: write Retry\(\)"),
        ({"policy": "retry"}, r"policy='retry' is no layer: write a redouble.Retry"),
        ({"idempotency": True}, r"idempotency=True: write 'auto'"),
        ({"idempotency": "Idempotency-Key"}, r"idempotency='Idempotency-Key': write 'auto'"),
    ],
)
def test_a_wrong_policy_or_idempotency_option_is_refused(
    name: str, options: dict[str, Any], words: str
) -> None:
    """At construction, with a message that names the fix."""
    with pytest.raises(TypeError, match=words):
        make(name)(**options)


@pytest.mark.parametrize("name", [*HTTPX, "requests"])
@pytest.mark.parametrize("wrapped", [3, "transport", object(), HTTPAdapter])
def test_a_wrong_transport_is_refused(name: str, wrapped: Any) -> None:
    """The message names a valid value."""
    wanted = "HTTPAdapter" if name == "requests" else "HTTPTransport"
    with pytest.raises(TypeError, match=rf"wrapped=.*: write an? .*{wanted}\(\)"):
        make(name)(wrapped=wrapped)


@pytest.mark.parametrize("name", HTTPX)
def test_a_transport_of_the_other_colour_is_refused(name: str) -> None:
    """The message names the class to use instead."""
    theirs, aio = library(name), "-" in name
    other = theirs.HTTPTransport() if aio else theirs.AsyncHTTPTransport()
    with pytest.raises(TypeError, match=r"for Client use Transport" if aio else r"for AsyncClient use Async"):
        make(name)(wrapped=other)


@pytest.mark.parametrize("name", HTTPX)
def test_a_transport_of_the_other_library_is_refused(name: str) -> None:
    """The libraries have classes of the same names."""
    other = library("httpx2" if library(name).__name__ == "httpx" else "httpx")
    kind = "AsyncHTTPTransport" if "-" in name else "HTTPTransport"
    with pytest.raises(TypeError, match="wrapped="):
        make(name)(wrapped=getattr(other, kind)())


class RetryLimit:
    """The ``retry`` of a transport of httpx-retries."""

    def __init__(self, total: object) -> None:
        self.total = total


def retrying(name: str, kind: str) -> Any:
    """Return a transport that retries on its own, or wraps one that does."""
    theirs, a = library(name), "Async" if "-" in name else ""
    plain, base = getattr(theirs, f"{a}HTTPTransport"), getattr(theirs, f"{a}BaseTransport")
    if kind == "retries=":
        return plain(retries=2)
    made = type("AsyncTenacityTransport" if kind == "tenacity" else "Any", (base,), {})()
    if kind == "retry":
        made.retry = RetryLimit(3)
    if kind == "wrapped":
        made.inner, made.itself = plain(retries=2), made
    return made


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("kind", ["retries=", "retry", "tenacity", "wrapped"])
def test_a_transport_that_retries_by_itself_is_refused(name: str, kind: str) -> None:
    with pytest.raises(ValueError, match=r"wrapped retries by itself.*, so attempts would multiply"):
        make(name)(wrapped=retrying(name, kind))


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("total", [0, None, "3"])
def test_a_transport_whose_own_retries_are_off_is_accepted(name: str, total: object) -> None:
    transport = retrying(name, "plain")
    transport.retry = RetryLimit(total)
    make(name)(wrapped=transport)


def test_an_adapter_that_retries_by_itself_is_refused() -> None:
    """Attempts would multiply."""
    with pytest.raises(ValueError, match="attempts would multiply"):
        redouble.requests.Adapter(wrapped=HTTPAdapter(max_retries=3))


# -------------------------------------------------------------------------------- pickling


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "aiohttp"])
@pytest.mark.parametrize("script", ["200", "503,200", "503", "404", "200~size=100000", "503~size=100000"])
def test_a_response_can_be_pickled(name: str, server: Server, script: str) -> None:
    """With its body and its report, except for requests, which pickles known attributes only."""
    with client(name, Retry(attempts=2, backoff=[0], clock=Virtual())) as http:
        response = http.get(server.url(script)).response
    again = pickle.loads(pickle.dumps(response))
    assert isinstance(again, library(name).Response)
    assert (again.status_code, again.content) == (response.status_code, response.content)
    assert redouble.report(again) == (None if name == "requests" else redouble.report(response))


@pytest.mark.parametrize("name", [name for name in CLIENTS if not is_async(name)])
def test_an_error_can_be_pickled(name: str, server: Server) -> None:
    """If that of the plain client can."""
    with client(name, Retry(attempts=2, backoff=[0])) as http:
        seen = http.get(server.url("rst~late"))
    with client(name, bare=True) as http:
        plain = http.get(server.url("rst~late"))
    if _pickled(plain.error):
        assert _pickled(seen.error)
        assert redouble.report(pickle.loads(pickle.dumps(seen.error))) == seen.report()


def _pickled(error: object) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def test_a_middleware_serves_several_sessions(server: Server) -> None:
    """One after the other, on different event loops."""

    async def main() -> list[int]:
        ours = redouble.aiohttp.middleware(POLICY)
        statuses: list[int] = []
        for _ in range(2):
            async with (
                aiohttp.ClientSession(middlewares=[ours]) as session,
                session.get(server.url("503,200")) as response,
            ):
                statuses.append(response.status)
        return statuses

    assert [asyncio.run(main()), asyncio.run(main())] == [[200, 200]] * 2
