"""aiohttp reconnects silently after an error on a reused connection; the policy still counts attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from redouble import Reason, Retry, report
from tests.support.http.clients import Client, client
from tests.support.servers import Server

NONE = [0] * 9
CONCURRENT = 20


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def use_connection(http: Client, server: Server) -> None:
    """Make a call, so that the pool has a used connection, after whose failure aiohttp reconnects."""
    assert http.get(server.url("200")).outcome == 200


def test_bare_aiohttp_sends_the_request_twice(server: Server) -> None:
    """The precondition of the other tests."""
    url = server.url("close")
    with client("aiohttp", bare=True) as http:
        use_connection(http, server)
        http.get(url)
    assert len(server.ledger(url)) == 2


@pytest.mark.quiet
@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("script", ["close", "rst~late", "rst", "stallhead=0"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_the_number_of_requests_is_that_of_the_policy(
    server: Server, attempts: int, script: str, method: str
) -> None:
    url = server.url(script)
    with client("aiohttp", Retry(backoff=NONE, attempts=attempts)) as http:
        use_connection(http, server)
        seen = http.request(method, url, body=b"some" if method == "PUT" else None, timeout=0.3)
        call_report = seen.report()
    assert (call_report.reason, call_report.attempts) == (Reason.attempts, attempts)
    received = len(server.ledger(url))
    # On a busy machine an attempt may time out before its request reaches the server.
    assert received == attempts or (script == "stallhead=0" and received < attempts)


@pytest.mark.parametrize("script", ["close,200", "rst~late,200"])
def test_a_closed_connection_is_replaced_by_the_next_attempt(server: Server, script: str) -> None:
    url = server.url(script)
    with client("aiohttp", Retry(backoff=NONE)) as http:
        use_connection(http, server)
        seen = http.get(url)
    assert (seen.outcome, seen.report().attempts) == (200, 2)
    assert len(server.ledger(url)) == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_method_that_is_not_idempotent_is_sent_once(server: Server, method: str) -> None:
    url = server.url("close,200")
    with client("aiohttp", Retry(backoff=NONE)) as http:
        use_connection(http, server)
        seen = http.request(method, url, body=b"some")
    assert seen.report().reason == Reason.stopped
    assert len(server.ledger(url)) == 1


def test_the_next_call_of_a_task_has_attempts_of_its_own(server: Server) -> None:
    """Even if the previous call for the same URL was given up."""
    url = server.url("close*2,200,close*2,200")
    with client("aiohttp", Retry(backoff=NONE, attempts=2)) as http:
        use_connection(http, server)

        async def twice() -> list[Any]:
            found = list[Any]()
            for _ in range(4):
                try:
                    async with http.raw.get(url) as response:
                        found.append((await response.json())["step"])
                except Exception as error:
                    call_report = report(error)
                    found.append(call_report and call_report.attempts)
            return found

        assert http.run(twice) == [2, 3, 2, 6]
    assert len(server.ledger(url)) == 6


def test_concurrent_tasks_have_attempts_of_their_own(server: Server) -> None:
    """Failing and succeeding calls share the pool and one middleware."""
    scripts = [("close", 2), ("200", 1), ("close,200", 2), ("503,close", 2)] * (CONCURRENT // 4)
    urls = [server.url(script) for script, _ in scripts]

    async def calls(http: Client) -> list[Any]:
        async def one(url: str) -> Any:
            try:
                async with http.raw.get(url) as response:
                    await response.read()
                    return report(response)
            except Exception as error:
                return report(error)

        return await asyncio.gather(*map(one, urls))

    with client("aiohttp", Retry(backoff=NONE, attempts=2), pool=4) as http:
        for _ in range(4):
            use_connection(http, server)
        call_report = http.run(calls, http)
    assert [found.attempts for found in call_report] == [attempts for _, attempts in scripts]
    assert [len(server.ledger(url)) for url in urls] == [attempts for _, attempts in scripts]


def test_a_redirected_request_has_attempts_of_its_own(server: Server) -> None:
    """Although it belongs to the same call of the session."""
    there = server.url("close", key="there")
    url = server.url(f"302~loc={there.replace(',', '%2C')}")
    with client("aiohttp", Retry(backoff=NONE, attempts=2)) as http:
        use_connection(http, server)
        seen = http.get(url, follow=True)
    assert seen.report().attempts == 2
    assert (len(server.ledger(url)), len(server.ledger(there))) == (1, 2)
