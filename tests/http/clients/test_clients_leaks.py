"""Many retried calls leak nothing: no connection beyond the pool, and no memory."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx2
import pytest
import requests
import trio
from requests.adapters import HTTPAdapter

import redouble.httpx2
import redouble.requests
from redouble import Reason, Retry, report
from tests.support.http.clients import CLIENTS, Client, client, is_async
from tests.support.servers import Server
from tests.support.thread_switching import switching

POLICY = Retry(attempts=4, backoff=[0] * 9)
POOL = 2
AT_A_TIME = 5
THREADS = 50
PATIENCE = 10  # seconds until a test fails
SOON = 0.15  # read timeout for a silent server, in seconds

SCRIPTS = (  # each call is retried, and succeeds
    "503,200",
    "429~chunked,503~close,200",
    "rst,200",
    "200~cut=3,200",
    "503~size=100000,200",
    "200~chunked~cut=3,503,200~size=70000",
    "502~gzip,504~cut=5,200~gzip",
)

CALLS = 20 * len(SCRIPTS)  # if one script leaks a connection, two of its calls exhaust a pool of two

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def settles(server: Server, most: int) -> bool:
    """Wait until the server has at most this number of connections."""
    with server._changed:
        return server._changed.wait_for(lambda: len(server._open_connections) <= most, PATIENCE)


# ------------------------------------------------------------------------------ connections


def in_threads(http: Client, urls: list[str]) -> list[Any]:
    def call(url: str) -> Any:
        return http.raw.get(url, timeout=PATIENCE)

    # httpx without redouble sometimes loses a response if several threads wait for its pool.
    with ThreadPoolExecutor(1 if http.name == "httpx" else AT_A_TIME) as pool:
        return list(pool.map(call, urls))


async def in_tasks(http: Client, urls: list[str]) -> list[Any]:
    waiting, answers = list(urls), list[Any]()

    async def some() -> None:
        while waiting:
            url = waiting.pop()
            if http.name != "aiohttp":
                answers.append(await http.raw.get(url, timeout=PATIENCE))
                continue
            async with http.raw.get(url) as response:
                await response.read()
                answers.append(response)

    if http.name.endswith("trio"):
        async with trio.open_nursery() as nursery:
            for _ in range(AT_A_TIME):
                nursery.start_soon(some)
    else:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_A_TIME):
                tasks.create_task(some())
    return answers


@pytest.mark.stress
@EVERY_CLIENT
def test_retried_calls_never_exhaust_the_pool(server: Server, name: str) -> None:
    """There are more callers than connections, and a discarded response releases its connection."""
    scripts = [SCRIPTS[number % len(SCRIPTS)] for number in range(CALLS)]
    urls = [server.url(script) for script in scripts]
    with client(name, POLICY, pool=POOL) as http:
        answers = http.run(in_tasks if is_async(name) else in_threads, http, urls)
        assert settles(server, POOL)
    seen = Counter(
        (getattr(answer, "status_code", 0) or answer.status, call_report.reason)
        for answer in answers
        if (call_report := report(answer)) is not None
    )
    assert seen == {(200, None): CALLS}
    del answers
    gc.collect()  # requests keeps sockets open as long as responses are referenced
    assert settles(server, 0)
    requests_made = sum(len(server.ledger(url)) for url in urls)
    assert requests_made == sum(script.count(",") + 1 for script in scripts)


@pytest.mark.stress
@EVERY_CLIENT
def test_failed_calls_never_exhaust_the_pool(server: Server, name: str) -> None:
    """A small failed response is in memory; a large one is for the caller to close or drop."""
    with client(name, Retry(attempts=2, backoff=[0]), pool=1) as http:
        for script in (
            "503",
            "503~chunked",
            "503~gzip",
            "rst",
            "503~size=100000",
            "503~cut=3",
            "200~cut=3",
        ) * 5:
            seen = http.get(server.url(script), timeout=PATIENCE)
            assert seen.report().attempts == 2
            assert len(seen.report().history) == 2
            del seen
        assert settles(server, 1)


@pytest.mark.parametrize("name", [name for name in CLIENTS if not name.endswith("trio")])
def test_a_response_closed_half_read_releases_its_connection(server: Server, name: str) -> None:
    """After a restart, that of the second response. Not on Trio, which warns about generators of httpx."""
    with client(name, POLICY, pool=1) as http:
        for script in ("200~size=500000", "200~cut=0,200~size=500000", "503~size=100000,200~size=500000") * 3:
            http.run(_begun if not is_async(name) else _abegun, http, server.url(script))
        assert http.get(server.url("200"), within=PATIENCE).outcome == 200


def _begun(http: Client, url: str) -> None:
    if http.name == "requests":
        with http.raw.get(url, stream=True) as response:
            assert next(response.iter_content(3))
        return
    with http.raw.stream("GET", url) as response:
        assert next(response.iter_bytes(3))


async def _abegun(http: Client, url: str) -> None:
    if http.name == "aiohttp":
        async with http.raw.get(url) as response:
            assert await response.content.read(3)
        return
    async with http.raw.stream("GET", url) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces)
        await pieces.aclose()


@pytest.mark.quiet
@EVERY_CLIENT
@pytest.mark.parametrize("script", ["200~stall=9", "200~cut=0,200~stall=9", "503,200~cut=0,200~stall=9"])
def test_a_body_broken_after_its_first_byte_releases_its_connection(
    server: Server, name: str, script: str
) -> None:
    """Although the response and its error are still referenced."""
    with client(name, POLICY, pool=1) as http:
        seen = http.get(server.url(script), stream=True, timeout=SOON)
        assert seen.report().reason == Reason.committed
        assert http.get(server.url("200"), within=PATIENCE).outcome == 200


# -------------------------------------------------------------------------------- memory


@contextmanager
def no_garbage_collection() -> Generator[None]:
    """Disable the garbage collector, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def collect_frames(script: str) -> None:
    """Collect the frames that the error of a broken body keeps alive since Python 3.12."""
    if "cut" in script and sys.version_info >= (3, 12):
        gc.collect()


MEMORY = ("200", "503,200", "200~cut=3,200", "503*4", "404")


@pytest.mark.parametrize("name", ["httpx2", "requests"])
@pytest.mark.parametrize("script", MEMORY)
def test_a_response_is_freed_when_it_is_dropped(server: Server, name: str, script: str) -> None:
    """There is no cycle between a response, its body and its record; httpx has its own and is left out."""
    with client(name, POLICY) as http, no_garbage_collection():
        response = http.raw.get(server.url(script))
        assert report(response) is not None
        found = weakref.ref(response)
        del response
        collect_frames(script)
        assert found() is None


@pytest.mark.parametrize("name", ["httpx2-asyncio", "httpx2-trio", "aiohttp"])
@pytest.mark.parametrize("script", MEMORY)
def test_an_async_response_is_freed_when_it_is_dropped(server: Server, name: str, script: str) -> None:
    async def main() -> bool:
        response = await http.raw.get(url)
        if name == "aiohttp":
            await response.read()
        assert report(response) is not None
        found = weakref.ref(response)
        del response
        collect_frames(script)
        return found() is None

    url = server.url(script)
    with client(name, POLICY) as http, no_garbage_collection():
        assert http.run(main)


@pytest.mark.stress
@EVERY_CLIENT
def test_the_number_of_objects_does_not_grow_with_calls(server: Server, name: str) -> None:
    """After the first calls, which create what is created once."""

    def calls(many: int) -> None:
        for number in range(many):
            http.get(server.url(SCRIPTS[number % len(SCRIPTS)]), timeout=PATIENCE)

    def objects() -> int:
        gc.collect()
        return sum(str(type(found).__module__).startswith("redouble") for found in gc.get_objects())

    with client(name, POLICY, pool=POOL) as http:
        calls(len(SCRIPTS) * 2)
        before = objects()
        calls(len(SCRIPTS) * 5)
        assert objects() <= before


# ------------------------------------------------------------------------------- threads


def _httpx2_call() -> tuple[Callable[[str], Any], Callable[[], None]]:
    transport = redouble.httpx2.Transport(POLICY)
    shared = httpx2.Client(transport=transport)
    return lambda url: shared.get(url, timeout=PATIENCE), shared.close


def _requests_call() -> tuple[Callable[[str], Any], Callable[[], None]]:
    """One adapter for all threads; each call has its own session, because sessions are not thread-safe."""
    adapter = redouble.requests.Adapter(POLICY, wrapped=HTTPAdapter(pool_maxsize=THREADS))

    def call(url: str) -> Any:
        session = requests.Session()
        session.mount("http://", adapter)
        return session.get(url, timeout=PATIENCE)

    return call, adapter.close


@pytest.mark.stress
@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("make", [_httpx2_call, _requests_call], ids=["httpx2", "requests"])
def test_fifty_threads_share_one_transport(server: Server, make: Callable[[], Any]) -> None:
    """Each call has its own response and its own report."""
    call, close = make()
    numbers = count()

    def calls(_: int) -> None:
        for _ in range(6):
            script = SCRIPTS[next(numbers) % len(SCRIPTS)]
            url = server.url(script)
            response = call(url)
            found = report(response)
            assert found is not None
            assert (response.status_code, found.attempts) == (200, script.count(",") + 1)
            assert len(server.ledger(url)) == found.attempts
            assert response.headers["x-attempt"] == str(found.attempts)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(calls, range(THREADS)))
    close()
    gc.collect()
    assert settles(server, 0)
