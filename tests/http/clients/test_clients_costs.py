"""In the policy of a client the function of a cost, or of a class, gets the request."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

import redouble.httpx
from redouble import Bulkhead, Layer, RateLimit, Retry, Timeout
from redouble.testing import virtual_time


def size(request: httpx.Request) -> float:
    """Return the cost of a request."""
    return len(request.content)


def kind(request: httpx.Request) -> str:
    """Return the class of a request."""
    return request.url.path.strip("/")


def service(request: httpx.Request) -> httpx.Response:
    """Answer."""
    return httpx.Response(200)


def test_the_cost_of_a_request() -> None:
    limit = RateLimit(10, burst=10, cost=size)
    transport = redouble.httpx.Transport(Retry() | limit, wrapped=httpx.MockTransport(service))
    with virtual_time() as clock, httpx.Client(transport=transport) as client:
        client.post("https://example.org/", content=b"x" * 10)
        client.get("https://example.org/")  # free
        assert clock.now() == 0
        client.post("https://example.org/", content=b"x" * 5)
        assert clock.now() == pytest.approx(0.5)
        with pytest.raises(ValueError, match="a call that costs 11 can never begin"):
            client.post("https://example.org/", content=b"x" * 11)


def two(one: object, two: object) -> Any:
    """Take an argument too many."""
    return 1


@pytest.mark.parametrize(
    ("layer", "option"),
    [
        (RateLimit(10, cost=two), "RateLimit cost"),
        (Bulkhead(10, shares={"users": 0.5}, priority=two), "Bulkhead priority"),
        (Timeout(two), "Timeout seconds"),
    ],
    ids=repr,
)
def test_a_function_that_does_not_take_a_request_is_refused(layer: Layer, option: str) -> None:
    with pytest.raises(TypeError, match=f"^{option}=two of a client: write a function of the request$"):
        redouble.httpx.Transport(layer)


def test_the_class_of_a_request() -> None:
    limit = RateLimit(10, shares={"users": 0.5, "batch": 0.5}, priority=kind)
    transport = redouble.httpx.AsyncTransport(limit, wrapped=httpx.MockTransport(service))
    done: list[str] = []

    async def main() -> None:
        with virtual_time():
            async with httpx.AsyncClient(transport=transport) as client:

                async def get(path: str) -> None:
                    await client.get(f"https://example.org/{path}")
                    done.append(path)

                await asyncio.gather(*map(get, ["batch"] * 9 + ["users"] * 3))

    asyncio.run(main())
    assert done.index("users") < 4
    assert done.count("users") == 3
