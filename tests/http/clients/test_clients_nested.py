"""A policy around a client that retries: it finds the client's own policy, however long its rule takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from redouble import Bulkhead, Keyed, Layer, Retry, Timeout, report
from redouble.http import host
from redouble.httpx import AsyncTransport, Transport
from tests.support.fakes import in_colour
from tests.support.http.clients import CLIENTS, client, is_async
from tests.support.servers import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def quick(_: Exception) -> bool:
    return True


def slow(_: Exception) -> bool:
    total = 0
    for number in range(100_000):  # some milliseconds of the real clock, without a sleep
        total += number
    return total > 0


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def unavailable(_: httpx.Request) -> httpx.Response:
    return httpx.Response(503)


@pytest.mark.parametrize("answer", [refused, unavailable])
@pytest.mark.parametrize("rule", [quick, slow])
def test_a_client_inside_a_policy_is_not_retried_again(
    colour: str, rule: Callable[[Exception], bool], answer: Callable[[httpx.Request], httpx.Response]
) -> None:
    """Its transport is called directly, so that its run begins right after the attempt around it."""
    calls: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        calls.append(request.method)
        return answer(request)

    inner = Retry(on=rule, attempts=3, backoff=[0, 0])
    outer = Retry(on=httpx.HTTPError, attempts=3, backoff=[0, 0], nested="stop")
    request, network = httpx.Request("GET", "http://there.test/"), httpx.MockTransport(handle)

    def raised(response: Any) -> None:
        response.request = request
        response.raise_for_status()

    @outer
    def fetch() -> None:
        raised(Transport(inner, wrapped=network).handle_request(request))

    @outer
    async def afetch() -> None:
        raised(await AsyncTransport(inner, wrapped=network).handle_async_request(request))

    with pytest.raises(httpx.HTTPError) as caught:
        in_colour(colour, fetch, afetch)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, len(calls)) == ("nested", 3)


@pytest.mark.quiet
@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("nested", ["stop", "warn"])
@pytest.mark.parametrize("script", ["stall", "200~stall=0"])
@pytest.mark.parametrize("kind", ["Timeout", "gated", "keyed", "Retry"])
def test_a_timeout_without_a_retry_is_retried_by_the_policy_around_the_client(
    server: Server, name: str, nested: Any, script: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It made one attempt, as a function under a `Timeout` does; a policy with a `Retry` has given up."""
    limit = Timeout(0.1)
    policies: dict[str, Layer] = {
        "Timeout": limit,
        "gated": Bulkhead(9) | limit,
        "keyed": Keyed(host, lambda: limit),
        "Retry": Retry(timeout=0.1),
    }
    url = server.url(script)
    outer = Retry(attempts=2, backoff=[0], budget=None, nested=nested)
    with client(name, policies[kind]) as http, caplog.at_level(logging.WARNING, "redouble"):

        def called() -> None:
            error = http.get(url, timeout=9).error
            assert error is not None
            raise error

        with pytest.raises(TimeoutError) as caught:
            outer.call(called)
    reported = report(caught.value)
    assert reported is not None
    # The path of the error, which tells, ends at the thread of an async client here.
    has_retry = kind == "Retry" and not is_async(name)
    stopped = has_retry and nested == "stop"
    assert (reported.reason, reported.attempts) == (("nested", 1) if stopped else ("attempts", 2))
    assert bool(caplog.messages) == (has_retry and nested == "warn")
    assert len(server.ledger(url)) <= reported.attempts  # one may be cut before its request arrives
