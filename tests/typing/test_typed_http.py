"""The types of `redouble.http` and of the HTTP clients: by two type checkers, and when run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, assert_type

import aiohttp
import httpx
import httpx2
import pytest
import requests
from requests.adapters import HTTPAdapter

import redouble.aiohttp
import redouble.httpx
import redouble.httpx2
import redouble.requests
from redouble import Report, Retry, Timeout, Verdict, http, presets, report

pytestmark = pytest.mark.one_python

PIPELINE = Timeout(30) | Retry(on=http.rule())


def answered(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text="x")


# -------------------------------------------------------------------------- redouble.http


def pieces() -> Iterator[bytes]:
    yield b"a"


async def apieces() -> AsyncIterator[bytes]:
    yield b"a"


def busy(error: Exception) -> float | None:
    return None


def test_rules() -> None:
    assert_type(http.rule(), http.HttpRule)
    http.rule({502, 503}, ["GET", "POST"], (OSError, TimeoutError))
    http.rule(statuses=range(500, 600), methods=http.IDEMPOTENT | {"POST"}, errors=busy)
    http.rule(errors=OSError)
    found = http.rule()
    assert_type(found(OSError()), Verdict | None)
    assert_type(found.statuses, frozenset[int])
    assert_type(found.methods, frozenset[str])
    assert_type(http.sent(OSError()), bool | None)
    assert_type(http.IDEMPOTENT, frozenset[str])
    Retry(on=found)
    Retry(on=[found, OSError])


def test_wrong_rules() -> None:
    with pytest.raises(TypeError):
        http.rule(statuses=503)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        http.rule(statuses={"503"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        http.rule(methods={5})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        http.rule(errors=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        http.rule(status={503})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_hints_and_addresses() -> None:
    assert_type(http.retry_after({"Retry-After": "3"}), float | None)
    assert_type(http.retry_after(httpx.Headers(), datetime.now(UTC)), float | None)
    assert_type(http.retry_after([(b"retry-after", b"3")], now=1e9), float | None)
    assert_type(http.redact_url(httpx.URL("http://host.test/")), str)


def test_bodies() -> None:
    assert_type(http.replayable(pieces), http.Replayable)
    assert_type(http.replayable(apieces), http.AsyncReplayable)
    assert_type(http.replayable(lambda: BytesIO(b"a")), http.Replayable)
    assert_type(next(iter(http.replayable(pieces))), bytes)
    with pytest.raises(TypeError):
        http.replayable(b"abc")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_keys() -> None:
    keys = http.Idempotency(header="X-Key", auto=False, make=lambda: "k")
    assert_type(keys.header, str)
    redouble.httpx.Transport(idempotency=keys)
    redouble.httpx2.AsyncTransport(idempotency="auto")
    with pytest.raises(TypeError):
        redouble.requests.Adapter(idempotency="always")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        http.Idempotency(auto="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------------------- clients


def test_httpx() -> None:
    transport = redouble.httpx.Transport(PIPELINE, wrapped=httpx.MockTransport(answered))
    with httpx.Client(transport=transport) as client:
        answer = client.get("http://host.test/", extensions={"redouble": {"attempts": 2}})
        assert_type(answer, httpx.Response)
        assert_type(report(answer), Report | None)

    async def main() -> None:
        wrapped = httpx.MockTransport(answered)
        transport = redouble.httpx.AsyncTransport(presets.http(), wrapped=wrapped, idempotency="auto")
        async with httpx.AsyncClient(transport=transport) as client:
            assert_type(await client.post("http://host.test/"), httpx.Response)

    asyncio.run(main())


def test_httpx2() -> None:
    def answering(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text="x")

    transport = redouble.httpx2.Transport(Retry(), wrapped=httpx2.MockTransport(answering))
    with httpx2.Client(transport=transport) as client:
        assert_type(client.get("http://host.test/"), httpx2.Response)

    async def main() -> None:
        transport = redouble.httpx2.AsyncTransport(wrapped=httpx2.MockTransport(answering))
        async with httpx2.AsyncClient(transport=transport) as client:
            assert_type(await client.get("http://host.test/"), httpx2.Response)

    asyncio.run(main())


def test_requests() -> None:
    adapter = redouble.requests.Adapter(PIPELINE, wrapped=HTTPAdapter(pool_maxsize=2))
    with requests.Session() as session:
        session.mount("https://", adapter)
        assert_type(session.get_adapter("https://host.test/") is adapter, bool)


def test_aiohttp() -> None:
    async def main() -> None:
        middleware = redouble.aiohttp.middleware(PIPELINE, idempotency="auto")
        assert_type(middleware, redouble.aiohttp.Middleware)
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            assert not session.closed

    asyncio.run(main())


def test_wrong_clients() -> None:
    retry: Any = Retry()
    with pytest.raises(TypeError):
        redouble.httpx.Transport(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.httpx.Transport(Retry)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.httpx.Transport(None, httpx.HTTPTransport())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        redouble.httpx.Transport(wrapped=httpx.AsyncHTTPTransport())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.httpx2.Transport(wrapped=httpx.HTTPTransport())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.requests.Adapter(wrapped=httpx.HTTPTransport())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.aiohttp.middleware(retry, wrapped=None)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
