"""Connections that cannot be made: they have a time limit of their own, and are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import trio

from redouble import Retry, report
from redouble.instruments import memory
from redouble.llm import Model, Timeouts
from tests.support.servers import black_hole, refused_port

PLACES = ("worker", "alone", "asyncio", "trio")


@pytest.fixture(scope="module")
def black_hole_url() -> Iterator[str]:
    with black_hole() as port:
        yield f"http://127.0.0.1:{port}/"


def error_of(place: str, how: str, url: str, **options: Any) -> Exception:
    """Call a model at an address, and return the error."""
    model = Model(
        "acme",
        "m-1",
        timeouts=Timeouts(connect=0.05, read=20, total=20),
        policy=Retry(attempts=2, backoff=[0]),
        **options,
        **({"worker": None} if place == "alone" else {}),
    )

    def blocking() -> None:
        with httpx2.Client(trust_env=False) as client:
            if how == "call":
                model.call(client.post, url)
            else:
                list(model.stream(client.stream, "POST", url))

    async def waiting() -> None:
        async with httpx2.AsyncClient(trust_env=False) as client:
            if how == "call":
                await model.call(client.post, url)
            else:
                await anext(model.stream(client.stream, "POST", url))

    with pytest.raises(httpx2.TransportError) as caught:
        if place == "trio":
            trio.run(waiting)
        elif place == "asyncio":
            asyncio.run(waiting())
        else:
            blocking()
    return caught.value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["call", "stream"])
def test_a_connection_that_is_never_made_times_out_and_is_retried(
    black_hole_url: str, place: str, how: str
) -> None:
    with memory.instrument() as metrics:
        error = error_of(place, how, black_hole_url)
    assert isinstance(error, httpx2.ConnectTimeout)
    call_report = report(error)
    assert call_report is not None
    assert (call_report.reason, call_report.attempts) == ("attempts", 2)
    assert call_report.labels == {"provider": "acme", "model": "m-1"}
    assert metrics.counter("retries", provider="acme", model="m-1", reason="timeout_connect") == 1


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["call", "stream"])
def test_a_refused_connection_is_retried(place: str, how: str) -> None:
    with memory.instrument() as metrics:
        error = error_of(place, how, f"http://127.0.0.1:{refused_port()}/")
    assert isinstance(error, httpx2.ConnectError)
    assert metrics.counter("retries", provider="acme", reason="network") == 1
