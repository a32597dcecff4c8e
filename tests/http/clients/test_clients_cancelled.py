"""A cancelled or interrupted call ends at once: nothing is retried, and its connection is closed."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import httpx2
import pytest
import requests
import trio
from requests.adapters import BaseAdapter

import redouble.httpx2
import redouble.requests
from redouble import Clock, Retry
from tests.support.fakes import Ledger
from tests.support.http.clients import ASYNC_CLIENTS, Client, client
from tests.support.servers import Server, black_hole

LARGE = 20_000_000
MOMENTS = 20  # iterations of the event loop after which the client certainly waits at the intended place


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@dataclass(frozen=True)
class Place:
    """The moment at which a call is cancelled."""

    script: str
    requests: int  # requests that the server has received by then
    upload: bool = False
    stream: bool = False


PLACES = {
    "sending": Place("200~early~stallhead=0", 1, upload=True),
    "waiting for the head": Place("stall", 1),
    "in the head": Place("stallhead=20", 1),
    "in the body": Place("200~stall=5", 1),
    "before the first byte": Place("200~stall=0", 1, stream=True),
    "in the body of a failure": Place("503~stall=5", 1),
    "in the second attempt": Place("503~close,stall", 2),
    "in the body of the second answer": Place("503~close,200~stall=5", 2),
    "after a broken body": Place("200~cut=0,stall", 2),
}


CASES = [
    (name, place)
    for name in ASYNC_CLIENTS
    for place in PLACES
    if place != "sending" or not name.endswith("trio")  # Trio warns about an async generator of httpx
]


def cancelled(http: Client, call: Callable[[], Any], arrived: Callable[[], object]) -> list[str]:
    """Start a call, cancel it after ``arrived`` has returned, and return how it ended."""
    ended: list[str] = []

    async def inside() -> None:
        try:
            await call()
            ended.append("answered")
        except Exception as error:
            ended.append(type(error).__name__)
        except BaseException:
            ended.append("cancelled")
            raise

    async def in_asyncio() -> None:
        task = asyncio.ensure_future(inside())
        await asyncio.to_thread(arrived)
        for _ in range(MOMENTS):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inside)
            await trio.to_thread.run_sync(arrived)
            for _ in range(MOMENTS):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    http.run(in_trio if http.name.endswith("trio") else in_asyncio)
    return ended


def calling(http: Client, url: str, place: Place) -> Callable[[], Any]:
    """Return a function that sends a request and reads the response."""

    async def call() -> None:
        body = b"x" * LARGE if place.upload else b""
        if http.name == "aiohttp":
            async with http.raw.put(url, data=BytesIO(body)) as response:
                await response.read()
        elif place.stream:
            async with http.raw.stream("PUT", url, content=body) as response:
                async for _ in response.aiter_bytes():
                    pass
        else:
            await http.raw.put(url, content=body)

    return call


@pytest.mark.parametrize(("name", "place"), CASES)
@pytest.mark.parametrize("limit", [None, 1000.0], ids=["", "limited"])
def test_a_cancelled_call_ends_at_once(server: Server, name: str, place: str, limit: float | None) -> None:
    """Its connection is closed, no further grant is spent, and the pool of one serves the next call."""
    at, ledger = PLACES[place], Ledger()
    url = server.url(at.script)
    given_up = list[object]()
    policy = Retry(backoff=[0] * 9, budget=ledger, timeout=limit, on_give_up=given_up.append)
    with client(name, policy, pool=1) as http:
        ended = cancelled(http, calling(http, url, at), lambda: server.wait_for(url, at.requests))
        assert ended == ["cancelled"]
        server.wait_until_open(0)
        assert len(server.ledger(url)) == at.requests
        assert not given_up
        assert len(ledger.grants) == at.requests - 1
        assert http.get(server.url("200")).outcome == 200


@pytest.mark.parametrize("name", ASYNC_CLIENTS)
@pytest.mark.parametrize("script", ["503", "503~size=100000", "rst", "200~cut=0"])
def test_cancellation_during_a_delay_refunds_the_grant(server: Server, name: str, script: str) -> None:
    """The retry never starts; a large response is closed too. The delay fits in the total of aiohttp."""
    ledger, sleeping = Ledger(), threading.Event()
    policy = Retry(backoff=[100], give_up_after=None, budget=ledger, on_retry=lambda event: sleeping.set())
    url = server.url(script)
    with client(name, policy, pool=1) as http:
        ended = cancelled(http, calling(http, url, Place(script, 1)), lambda: sleeping.wait(30))
        assert ended == ["cancelled"]
        assert ledger.lines[-2].startswith("spend")
        assert ledger.lines[-1] == "refund 1"
        assert len(server.ledger(url)) == 1
        assert http.get(server.url("200")).outcome == 200
    server.wait_until_open(0)


@pytest.mark.parametrize("name", ASYNC_CLIENTS)
def test_cancellation_while_connecting_frees_the_pool(server: Server, name: str) -> None:
    began = threading.Event()
    policy = Retry(backoff=[0] * 9, before_attempt=lambda event: began.set())
    with black_hole() as port, client(name, policy, pool=1) as http:
        place = Place("", 0)
        ended = cancelled(http, calling(http, f"http://127.0.0.1:{port}/", place), lambda: began.wait(30))
        assert ended == ["cancelled"]
        assert http.get(server.url("200")).outcome == 200


@pytest.mark.parametrize("name", ASYNC_CLIENTS)
def test_cancellation_while_waiting_for_the_pool_leaves_other_calls_alone(server: Server, name: str) -> None:
    """The call that holds the connection completes."""
    url, began = server.url("200~size=9~drip=0.02"), threading.Event()
    policy = Retry(backoff=[0] * 9, before_attempt=lambda event: began.set())
    with client(name, policy, pool=1) as http:
        busy = threading.Thread(target=lambda: seen.append(http.get(url)))
        seen = list[Any]()
        busy.start()
        server.wait_for(url, 1)
        began.clear()
        other = server.url("200")
        ended = cancelled(http, calling(http, other, Place("", 0)), lambda: began.wait(30))
        busy.join()
        assert ended == ["cancelled"] or len(server.ledger(other)) == 1  # it ended before the cancellation
        assert [(one.outcome, len(one.content)) for one in seen] == [(200, 9)]
        assert http.get(server.url("200")).outcome == 200


# ------------------------------------------------------------------------ blocking code


class Interrupted(Clock):
    """A clock on which every delay raises KeyboardInterrupt."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


class Breaking:
    """A body that raises KeyboardInterrupt after some bytes, and records whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"some"
        raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


class Body(Breaking, httpx2.SyncByteStream):
    """Such a body for httpx2."""


@pytest.mark.parametrize("status", [200, 404, 503])
def test_keyboard_interrupt_in_a_body_closes_it(status: int) -> None:
    sent, body = list[object](), Body()

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(status, stream=body)

    transport = redouble.httpx2.Transport(Retry(backoff=[0]), wrapped=httpx2.MockTransport(handle))
    with httpx2.Client(transport=transport) as http, pytest.raises(KeyboardInterrupt):
        http.get("http://there/")
    assert body.closed
    assert len(sent) == 1


@pytest.mark.parametrize("name", ["httpx2", "requests"])
@pytest.mark.parametrize("script", ["503", "503~size=100000", "rst", "200~cut=0"])
def test_keyboard_interrupt_in_a_delay_refunds_the_grant(server: Server, name: str, script: str) -> None:
    ledger = Ledger()
    policy = Retry(backoff=[1] * 9, clock=Interrupted(), budget=ledger, give_up_after=None)
    url = server.url(script)
    with client(name, policy, pool=1) as http:
        with pytest.raises(KeyboardInterrupt):
            http.get(url, timeout=30)
        assert ledger.lines[-1] == "refund 1"
        assert len(server.ledger(url)) == 1
        assert http.get(server.url("200"), timeout=30).outcome == 200
    gc.collect()  # a socket of requests lives as long as its response is referenced
    server.wait_until_open(0)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_rules_are_not_asked_about_base_exceptions(stop: type[BaseException]) -> None:
    """KeyboardInterrupt, SystemExit and GeneratorExit are raised at once."""
    judged, sent = list[object](), list[object]()

    def handle(request: Any) -> Any:
        sent.append(request)
        raise stop

    class Stopping(BaseAdapter):
        def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
            return handle(request)  # type: ignore[no-any-return]

        def close(self) -> None:
            """Do nothing."""

    def judge(error: Exception) -> bool:
        judged.append(error)
        return True

    policy = Retry(on=judge, backoff=[0])
    with (
        httpx2.Client(
            transport=redouble.httpx2.Transport(policy, wrapped=httpx2.MockTransport(handle))
        ) as http,
        pytest.raises(stop),
    ):
        http.get("http://there/")
    with requests.Session() as session, pytest.raises(stop):
        session.mount("http://", redouble.requests.Adapter(policy, wrapped=Stopping()))
        session.get("http://there/")
    assert (len(sent), judged) == (2, [])
