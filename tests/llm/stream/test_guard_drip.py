"""A real server that drips: a byte now and then keeps every client happy, and yet the call ends in time."""

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

LIMITS = Timeouts(connect=5, read=30, total=0.15)  # a drip takes far longer, and then is a success
DRIPS = {
    "body": "200~size=9999~drip=0.02",
    "stream": "503,openai~stream~piece=1~drip=0.02",
    "head": "200~driphead=0.05",
}

every_drip = pytest.mark.parametrize("drip", DRIPS.values(), ids=DRIPS)
# Of a stream that is left the client leaves a generator to the collector, without us too; Trio says so.
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


def too_late(asking: Callable[[], Any]) -> None:
    """Assert that the call ends when its time is up, with the right error."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  it is looked at below
        asking()
    said = report(caught.value)
    assert said is not None
    assert (said.reason, said.labels) == (Reason.timeout, {"provider": "acme", "model": "m-1"})
    assert isinstance(caught.value, TimeoutError | httpx2.TimeoutException)


@every_drip
@every_transport
def test_a_stream_on_a_worker(server: Server, ours: bool, drip: str) -> None:
    def ask() -> None:
        with client(ours) as http, model().stream(http.stream, "POST", server.url(drip), json={}) as pieces:
            for _ in pieces:
                pass

    too_late(ask)


@every_drip
def test_a_stream_on_the_thread_of_its_caller(server: Server, drip: str) -> None:
    """There it is our transport that keeps the time."""

    def ask() -> None:
        asked = model(worker=None)
        with client(True) as http, asked.stream(http.stream, "POST", server.url(drip), json={}) as pieces:
            for _ in pieces:
                pass

    too_late(ask)


@every_drip
@every_transport
@every_loop
def test_an_async_stream(server: Server, loop: str, ours: bool, drip: str) -> None:
    async def ask() -> None:
        async with (
            aclient(ours) as http,
            model().stream(http.stream, "POST", server.url(drip), json={}) as pieces,
        ):
            async for _ in pieces:
                pass

    too_late(lambda: trio.run(ask) if loop == "trio" else asyncio.run(ask()))


@every_drip
def test_a_call_on_a_worker(server: Server, drip: str) -> None:
    def ask() -> None:
        with client(False) as http:
            model().call(http.post, server.url(drip), json={})

    too_late(ask)


@every_drip
@every_loop
def test_an_async_call(server: Server, loop: str, drip: str) -> None:
    async def ask() -> None:
        async with aclient(False) as http:
            await model().call(http.post, server.url(drip), json={})

    too_late(lambda: trio.run(ask) if loop == "trio" else asyncio.run(ask()))


@every_drip
def test_a_call_on_the_thread_of_its_caller(server: Server, drip: str) -> None:
    """There redouble's transport keeps the limit, by a deadline."""
    url = server.url(drip)

    def ask() -> None:
        with client(True) as http:

            def asked() -> None:
                with deadline(max(0.0, current().left())):
                    http.post(url, json={}).raise_for_status()

            model(worker=None).call(asked)

    too_late(ask)
