"""A connection that is never there: it has a limit of its own, and is tried again like any other failure."""

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
def nobody() -> Iterator[str]:
    with black_hole() as port:
        yield f"http://127.0.0.1:{port}/"


def asked(place: str, how: str, url: str, **options: Any) -> Exception:
    """Ask at an address, and return the error."""
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
def test_it_is_not_waited_for(nobody: str, place: str, how: str) -> None:
    with memory.instrument() as metrics:
        error = asked(place, how, nobody)
    assert isinstance(error, httpx2.ConnectTimeout)
    said = report(error)
    assert said is not None
    assert (said.reason, said.attempts) == ("attempts", 2)
    assert said.labels == {"provider": "acme", "model": "m-1"}
    assert metrics.counter("retries", provider="acme", model="m-1", reason="timeout_connect") == 1


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["call", "stream"])
def test_one_that_is_refused_is_tried_again(place: str, how: str) -> None:
    with memory.instrument() as metrics:
        error = asked(place, how, f"http://127.0.0.1:{refused_port()}/")
    assert isinstance(error, httpx2.ConnectError)
    assert metrics.counter("retries", provider="acme", reason="network") == 1
