"""Clients inside a call with a limit: they end their waits by the limits that interrupt nothing."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import httpx2
import pytest

from redouble import Bulkhead, Layer, Pipeline, Retry, Timeout, current, remaining
from redouble._runtime.deadline import uninterrupted_time_left
from redouble.httpx2 import AsyncTransport, Transport
from tests.support.fakes import in_colour

LIMIT = 3600.0

POLICIES = {"none": Pipeline(), "a fast path": Retry(), "a run": Retry(timeout=9 * LIMIT)}


def read_timeout(request: httpx2.Request) -> httpx2.Response:
    timeout: Any = request.extensions["timeout"]
    return httpx2.Response(200, text=str(timeout["read"]))


async def aread_timeout(request: httpx2.Request) -> httpx2.Response:
    return read_timeout(request)


def seconds(text: str) -> float | None:
    return None if text == "None" else float(text)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize(
    ("around", "limited"),
    [(Retry(timeout=LIMIT), True), (Retry(give_up_after=LIMIT), True), (Retry(), False)],
)
def test_the_client_waits_no_longer_than_the_call(policy: Layer, around: Retry, limited: bool) -> None:
    transport = Transport(policy, wrapped=httpx2.MockTransport(read_timeout))
    with httpx2.Client(transport=transport, timeout=20 * LIMIT) as client:
        found = seconds(around.call(client.get, "https://example.org").text)
    assert found is not None
    assert (LIMIT - 60 < found <= LIMIT) is limited


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_an_async_client_ends_its_wait_at_a_limit_that_interrupts_nothing(policy: Layer) -> None:
    async def never(request: httpx2.Request) -> httpx2.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        mock = httpx2.MockTransport(never)
        async with httpx2.AsyncClient(transport=AsyncTransport(policy, wrapped=mock), timeout=None) as client:
            await Retry(give_up_after=0.05).call(client.get, "https://example.org")

    with pytest.raises((TimeoutError, httpx2.TimeoutException)):
        asyncio.run(main())


def test_the_clients_own_give_up_after_cuts_nothing() -> None:
    """It prevents attempts, as everywhere; a limit around the client is that of its caller."""
    transport = Transport(Retry(give_up_after=LIMIT), wrapped=httpx2.MockTransport(read_timeout))
    with httpx2.Client(transport=transport, timeout=20 * LIMIT) as client:
        found = seconds(client.get("https://example.org").text)
    assert found == 20 * LIMIT


def test_a_timeout_around_a_client_interrupts_it() -> None:
    async def main() -> str:
        mock = httpx2.MockTransport(aread_timeout)
        async with httpx2.AsyncClient(transport=AsyncTransport(wrapped=mock), timeout=20 * LIMIT) as client:
            return (await Timeout(LIMIT).call(client.get, "https://example.org")).text

    assert seconds(asyncio.run(main())) == 20 * LIMIT


# --------------------------------------------------------------------------- which attempt


@pytest.mark.parametrize(
    "policy",
    [Retry(name="fetch", backoff=[0, 0]), Pipeline(Retry(name="fetch", backoff=[0, 0]), Bulkhead(2))],
)
@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
def test_each_attempt_knows_its_number(policy: Layer, colour: str) -> None:
    """Also the first one, on the fast path; a policy around the client is not the innermost one."""
    seen: list[tuple[str, int] | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        call = current()
        seen.append(None if call is None else (call.name, call.attempt))
        if len(seen) == 1:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(503 if len(seen) == 2 else 200)

    async def aanswer(request: httpx2.Request) -> httpx2.Response:
        return answer(request)

    async def main() -> None:
        mock = httpx2.MockTransport(aanswer)
        async with httpx2.AsyncClient(transport=AsyncTransport(policy, wrapped=mock)) as client:
            await Retry(name="outer").call(client.get, "https://example.org")

    if colour == "sync":
        with httpx2.Client(transport=Transport(policy, wrapped=httpx2.MockTransport(answer))) as client:
            Retry(name="outer").call(client.get, "https://example.org")
    else:
        in_colour(colour, int, main)
    assert seen == [("fetch", 1), ("fetch", 2), ("fetch", 3)]
    assert current() is None


def test_the_fast_path_has_the_limit_of_its_policy() -> None:
    """For code inside; another client inside does not apply it."""
    seen: list[object] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.extend([remaining("none"), uninterrupted_time_left()])
        return httpx2.Response(200)

    for policy in (Retry(), Retry(give_up_after=LIMIT)):
        with httpx2.Client(transport=Transport(policy, wrapped=httpx2.MockTransport(answer))) as client:
            client.get("https://example.org")
    assert seen == ["none", inf, pytest.approx(LIMIT, abs=60), inf]
