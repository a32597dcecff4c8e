"""A policy around a client that retries: it finds the client's own policy, however long its rule takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from redouble import Retry, report
from redouble.httpx import AsyncTransport, Transport
from tests.support.fakes import in_colour


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
