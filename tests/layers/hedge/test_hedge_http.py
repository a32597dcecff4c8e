"""A `Hedge` around calls of a real HTTP client: the second response may win, and losing ones are closed."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import redouble.aiohttp
from redouble import Hedge, Layer, Pipeline, Retry, Timeout, report
from tests.support.http.clients import ASYNC_CLIENTS, Client, client
from tests.support.servers import Server

pytestmark = pytest.mark.quiet

SOON = 0.02  # seconds: the hedge delay
SLOW = "~driphead=0.0002"  # the head in small pieces, which takes longer than the hedge delay
PATIENCE = 10  # seconds until a test fails
POLICY = Retry(attempts=2, backoff=[0])

EVERY_CLIENT = pytest.mark.parametrize("name", ASYNC_CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def status(response: Any) -> int:
    return getattr(response, "status_code", 0) or response.status


def good(response: Any) -> bool:
    return status(response) < 500


def getting(http: Client) -> Callable[[str], Awaitable[Any]]:
    """Return a function that gets a response whose body is not read yet."""

    async def get(url: str) -> Any:
        if http.name == "aiohttp":
            return await http.raw.get(url)
        request = http.raw.build_request("GET", url, timeout=PATIENCE)
        return await http.raw.send(request, stream=True)

    return get


def got(http: Client, layer: Layer, url: str) -> tuple[int, str, int]:
    """Make a call; return the status, the number of the answered request, and the length of the body."""

    async def main() -> tuple[int, str, int]:
        response = await layer.call(getting(http), url)
        body = await (response.read() if http.name == "aiohttp" else response.aread())
        return status(response), response.headers["x-attempt"], len(body)

    found: tuple[int, str, int] = http.run(main)
    return found


@EVERY_CLIENT
def test_the_second_response_wins(server: Server, name: str) -> None:
    """The first response never arrives; the call does not wait for it, and its connection is closed."""
    url, hedge = server.url("stall,200"), Hedge(SOON, None)
    with client(name, POLICY) as http:
        assert got(http, hedge, url)[:2] == (200, "2")
        server.wait_until_open(1)
    server.wait_until_open(0)
    assert len(server.ledger(url)) == 2
    assert hedge.snapshot()["won"] == 1


@EVERY_CLIENT
def test_a_response_in_time_is_not_hedged(server: Server, name: str) -> None:
    url, hedge = server.url("200"), Hedge(PATIENCE, None)
    with client(name, POLICY) as http:
        assert got(http, hedge, url)[:2] == (200, "1")
    assert (len(server.ledger(url)), hedge.snapshot()["hedged"]) == (1, 0)


@EVERY_CLIENT
def test_a_refused_response_is_closed(server: Server, name: str) -> None:
    """Even one with a large unread body: otherwise the pool of two connections would soon be empty."""
    hedge = Hedge(SOON, None, until=good)
    with client(name, Retry(attempts=1), pool=2) as http:
        for _ in range(2):
            assert got(http, hedge, server.url(f"200{SLOW},503~size=900000")) == (200, "1", 23)
    server.wait_until_open(0)


@EVERY_CLIENT
def test_the_pool_is_never_starved(server: Server, name: str) -> None:
    """A hedged call uses two connections for a while; all are free again when it ends."""
    scripts = [
        "stall,200",
        f"200{SLOW},stall",
        "stallhead=9,200~size=70000",
        f"200{SLOW}~size=9,stallhead=99",
    ]
    with client(name, POLICY, pool=2) as http:
        for script in scripts:
            assert got(http, Hedge(SOON, None), server.url(script))[0] == 200
        server.wait_until_open(1)
    server.wait_until_open(0)


@EVERY_CLIENT
def test_each_attempt_of_a_hedge_has_its_own_retries_and_its_own_report(server: Server, name: str) -> None:
    url = server.url("stall,503,200")

    async def main() -> Any:
        response = await Hedge(SOON, None).call(getting(http), url)
        await (response.read() if name == "aiohttp" else response.aread())
        return status(response), report(response)

    with client(name, POLICY) as http:
        code, found = http.run(main)
    assert (code, found.attempts, found.reason) == (200, 2, None)
    assert len(server.ledger(url)) == 3


@pytest.mark.parametrize("policy", [Hedge(SOON, None), Retry() | Hedge() | Timeout(1), Pipeline(Hedge())])
@pytest.mark.parametrize("library", ["httpx", "httpx2", "aiohttp"])
def test_a_client_rejects_a_hedge_with_the_fix(library: str, policy: Layer) -> None:
    """Its attempts share one request; and a POST must not be sent twice."""
    message = r"policy=.*Hedge.*: hedge the call instead, as in Hedge\(0.1\)\(client.get\)"
    ours: Any = importlib.import_module(f"redouble.{library}")
    with pytest.raises(TypeError, match=message):
        redouble.aiohttp.middleware(policy) if library == "aiohttp" else ours.AsyncTransport(policy)
