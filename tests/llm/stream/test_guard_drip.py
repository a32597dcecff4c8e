"""A server that sends a byte now and then: no read of the client times out, and yet the call ends in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import httpx2
import pytest
import trio

import redouble.httpx2
from redouble import Pipeline, Reason, Retry, deadline, report
from redouble.llm import Model, Timeouts, current
from tests.support.servers import Server

pytestmark = pytest.mark.quiet

LIMITS = Timeouts(connect=5, read=30, total=0.15)  # the whole response would take far longer, and succeed
DRIPS = {
    "body": "200~size=9999~drip=0.02",
    "stream": "503,openai~stream~piece=1~drip=0.02",
    "head": "200~driphead=0.05",
}

every_drip = pytest.mark.parametrize("drip", DRIPS.values(), ids=DRIPS)
# When a stream is closed early, the client leaves an async generator to the garbage collector, with or
# without redouble, and Trio warns.
LEFT = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
every_loop = pytest.mark.parametrize("loop", ["asyncio", pytest.param("trio", marks=LEFT)])
every_transport = pytest.mark.parametrize("ours", [False, True], ids=["theirs", "ours"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def model(**options: Any) -> Model:
    return Model("acme", "m-1", timeouts=LIMITS, policy=Retry(backoff=[0] * 9), **options)


def client(ours: bool) -> AbstractContextManager[httpx2.Client]:
    return httpx2.Client(transport=redouble.httpx2.Transport(Pipeline()) if ours else None)


def aclient(ours: bool) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    return httpx2.AsyncClient(transport=redouble.httpx2.AsyncTransport(Pipeline()) if ours else None)


def assert_timeout(asking: Callable[[], Any]) -> None:
    """Assert that the call ends with a timeout, and that its report has the labels."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  checked below
        asking()
    call_report = report(caught.value)
    assert call_report is not None
    assert (call_report.reason, call_report.labels) == (Reason.timeout, {"provider": "acme", "model": "m-1"})
    assert isinstance(caught.value, TimeoutError | httpx2.TimeoutException)


@every_drip
@every_transport
def test_a_dripping_stream_on_a_worker_times_out(server: Server, ours: bool, drip: str) -> None:
    def ask() -> None:
        with client(ours) as http, model().stream(http.stream, "POST", server.url(drip), json={}) as pieces:
            for _ in pieces:
                pass

    assert_timeout(ask)


@every_drip
def test_a_dripping_stream_without_a_worker_times_out(server: Server, drip: str) -> None:
    """The transport of redouble limits the waits of its sockets."""

    def ask() -> None:
        asked = model(worker=None)
        with client(True) as http, asked.stream(http.stream, "POST", server.url(drip), json={}) as pieces:
            for _ in pieces:
                pass

    assert_timeout(ask)


@every_drip
@every_transport
@every_loop
def test_a_dripping_async_stream_times_out(server: Server, loop: str, ours: bool, drip: str) -> None:
    async def ask() -> None:
        async with (
            aclient(ours) as http,
            model().stream(http.stream, "POST", server.url(drip), json={}) as pieces,
        ):
            async for _ in pieces:
                pass

    assert_timeout(lambda: trio.run(ask) if loop == "trio" else asyncio.run(ask()))


@every_drip
def test_a_dripping_response_on_a_worker_times_out(server: Server, drip: str) -> None:
    def ask() -> None:
        with client(False) as http:
            model().call(http.post, server.url(drip), json={})

    assert_timeout(ask)


@every_drip
@every_loop
def test_a_dripping_async_response_times_out(server: Server, loop: str, drip: str) -> None:
    async def ask() -> None:
        async with aclient(False) as http:
            await model().call(http.post, server.url(drip), json={})

    assert_timeout(lambda: trio.run(ask) if loop == "trio" else asyncio.run(ask()))


@every_drip
def test_a_dripping_response_without_a_worker_times_out(server: Server, drip: str) -> None:
    """The transport of redouble keeps the limit, which a deadline passes to it."""
    url = server.url(drip)

    def ask() -> None:
        with client(True) as http:

            def asked() -> None:
                with deadline(max(0.0, current().left())):
                    http.post(url, json={}).raise_for_status()

            model(worker=None).call(asked)

    assert_timeout(ask)
