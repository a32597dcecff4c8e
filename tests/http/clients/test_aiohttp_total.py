"""aiohttp: the total timeout of the caller holds over all attempts, and ends what never ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import monotonic
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

import redouble.aiohttp
from redouble import Fallback, Layer, Reason, Retry
from tests.support.http.calls import HttpResult
from tests.support.http.clients import client
from tests.support.servers import Server

TOTAL = 0.3  # seconds
NONE = [0] * 9

POLICIES: dict[str, Layer] = {
    "fast path": Retry(attempts=5, backoff=NONE),
    "with a limit": Retry(attempts=5, backoff=NONE, timeout=30),
    "two policies": Retry(attempts=2, backoff=NONE) | Retry(attempts=3, backoff=NONE),
}
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def get(policy: Layer, url: str, **session: Any) -> tuple[HttpResult, float]:
    """Make a call with a total timeout; return its result, and how long it took."""
    timeout = aiohttp.ClientTimeout(total=TOTAL)
    with client("aiohttp", policy, timeout=timeout, **session) as http:
        started = monotonic()
        seen = http.get(url)
        return seen, monotonic() - started


@pytest.mark.quiet
@EVERY_POLICY
@pytest.mark.parametrize(
    ("script", "requests"),
    [("stall", 1), ("200~driphead=0.02", 1), ("200~cut=0,stall", 2), ("503,stall", 2)],
)
def test_the_total_holds_over_all_attempts(server: Server, policy: Layer, script: str, requests: int) -> None:
    """No request is sent after it, and a restarted one has no more time than the first."""
    url = server.url(script)
    seen, took = get(policy, url)
    assert isinstance(seen.error, TimeoutError)
    assert isinstance(seen.error, aiohttp.ServerTimeoutError)
    assert TOTAL * 0.8 < took < TOTAL * 2
    assert len(server.ledger(url)) == requests
    assert (seen.report().reason, seen.report().limit) == (Reason.timeout, "deadline")


@pytest.mark.quiet
@EVERY_POLICY
def test_a_body_that_is_not_read_in_time_is_a_timeout(server: Server, policy: Layer) -> None:
    """On the fast path it is the error of aiohttp, as without a policy."""
    url = server.url("200~stall=3")
    seen, took = get(policy, url)
    assert isinstance(seen.error, TimeoutError)
    assert TOTAL * 0.8 < took < TOTAL * 2
    assert len(server.ledger(url)) == 1


@EVERY_POLICY
def test_a_delay_that_does_not_fit_is_not_begun(server: Server, policy: Layer) -> None:
    url = server.url("503~ra=5,200")
    seen, took = get(policy, url)
    assert (seen.status, seen.report().reason, seen.report().limit) == (503, Reason.timeout, "deadline")
    assert took < TOTAL
    assert len(server.ledger(url)) == 1


async def passes(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Pass a request on: a middleware after ours."""
    return await handler(request)


@pytest.mark.parametrize("timeout", [{}, {"timeout": aiohttp.ClientTimeout(total=TOTAL)}])
def test_the_timeout_is_found_below_other_middlewares(server: Server, timeout: Any) -> None:
    """That of the request, or of the session."""
    url = server.url("503~ra=5,200")
    of_session = aiohttp.ClientTimeout(total=50 if timeout else TOTAL)
    with client("aiohttp", POLICIES["fast path"], timeout=of_session, middlewares=[passes, passes]) as http:
        assert http.get(url, **timeout).report().limit == "deadline"


@pytest.mark.parametrize("timeout", [aiohttp.ClientTimeout(total=None), aiohttp.ClientTimeout(total=0)])
def test_no_total_is_no_limit(server: Server, timeout: aiohttp.ClientTimeout) -> None:
    with client("aiohttp", Retry(backoff=[0, 5], timeout=2)) as http:
        seen = http.get(server.url("503,503,200"), timeout=timeout)
    assert (seen.status, seen.report().attempts, seen.report().limit) == (503, 2, "total")


def test_a_policy_without_retry_has_the_total_too(server: Server) -> None:
    url = server.url("200~cut=0,200")
    seen, _ = get(Fallback(lambda error: None, on=KeyError), url)
    assert type(seen.error).__name__ == "ClientPayloadError"


def test_a_function_that_hides_the_timeout_leaves_it_to_aiohttp(server: Server) -> None:
    """A middleware before ours that passes a callable of its own."""

    class Sends:
        def __init__(self, handler: Any) -> None:
            self.handler = handler

        async def __call__(self, request: Any) -> Any:
            return await self.handler(request)

    async def main() -> int:
        inner = redouble.aiohttp.middleware(Retry(attempts=2, backoff=[0]))

        async def hides(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
            response: aiohttp.ClientResponse = await inner(request, Sends(handler))
            return response

        async with (
            aiohttp.ClientSession(middlewares=[hides]) as session,
            session.get(server.url("503,200")) as response,
        ):
            return response.status

    assert asyncio.run(main()) == 200


def test_no_time_is_left_once_the_timer_of_aiohttp_has_fired() -> None:
    request = SimpleNamespace(_timer=SimpleNamespace(_cancelled=True))
    assert redouble.aiohttp.middleware()._client_limit(request, None) == 0


@pytest.mark.quiet
@pytest.mark.parametrize("limit", ["timeout", "attempt_timeout", "deadline"])
def test_a_bad_chunk_size_does_not_hang_for_ever(server: Server, limit: str) -> None:
    """By itself aiohttp waits for ever if the chunk arrives at a bad moment, with or without a policy."""
    options: Any = {} if limit == "deadline" else {limit: TOTAL}
    policy = Retry(attempts=1, **options)
    with client("aiohttp", policy, timeout=aiohttp.ClientTimeout(total=None)) as http:
        started = monotonic()
        seen = http.get(
            server.url("200~chunked~size=9~badchunk=3"), within=TOTAL if limit == "deadline" else None
        )
        assert monotonic() - started < TOTAL * 3
    assert isinstance(seen.error, TimeoutError | aiohttp.ClientError)
