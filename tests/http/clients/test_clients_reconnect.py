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


def used_before(http: Client, server: Server) -> None:
    """Leave a connection in the pool that has been used, so that aiohttp does not trust it."""
    assert http.get(server.url("200")).outcome == 200


def test_bare_aiohttp_asks_twice(server: Server) -> None:
    """Or the other tests here would show nothing."""
    url = server.url("close")
    with client("aiohttp", bare=True) as http:
        used_before(http, server)
        http.get(url)
    assert len(server.ledger(url)) == 2


@pytest.mark.quiet
@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("script", ["close", "rst~late", "rst", "stallhead=0"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_attempts_are_those_of_the_policy(server: Server, attempts: int, script: str, method: str) -> None:
    url = server.url(script)
    with client("aiohttp", Retry(backoff=NONE, attempts=attempts)) as http:
        used_before(http, server)
        seen = http.request(method, url, body=b"some" if method == "PUT" else None, timeout=0.3)
        told = seen.report()
    assert (told.reason, told.attempts) == (Reason.attempts, attempts)
    received = len(server.ledger(url))
    # One that waits for an answer may be cut before it arrives, if the machine holds its breath.
    assert received == attempts or (script == "stallhead=0" and received < attempts)


@pytest.mark.parametrize("script", ["close,200", "rst~late,200"])
def test_a_connection_that_was_closed_is_replaced_by_an_attempt_of_ours(server: Server, script: str) -> None:
    url = server.url(script)
    with client("aiohttp", Retry(backoff=NONE)) as http:
        used_before(http, server)
        seen = http.get(url)
    assert (seen.outcome, seen.report().attempts) == (200, 2)
    assert len(server.ledger(url)) == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_what_may_do_harm_is_sent_once(server: Server, method: str) -> None:
    url = server.url("close,200")
    with client("aiohttp", Retry(backoff=NONE)) as http:
        used_before(http, server)
        seen = http.request(method, url, body=b"some")
    assert seen.report().reason == Reason.stopped
    assert len(server.ledger(url)) == 1


def test_the_next_call_of_a_task_is_another_one(server: Server) -> None:
    """What was given up before says nothing about it, though it may be for the same URL."""
    url = server.url("close*2,200,close*2,200")
    with client("aiohttp", Retry(backoff=NONE, attempts=2)) as http:
        used_before(http, server)

        async def twice() -> list[Any]:
            found = list[Any]()
            for _ in range(4):
                try:
                    async with http.raw.get(url) as response:
                        found.append((await response.json())["step"])
                except Exception as error:
                    told = report(error)
                    found.append(told and told.attempts)
            return found

        assert http.run(twice) == [2, 3, 2, 6]
    assert len(server.ledger(url)) == 6


def test_tasks_do_not_take_each_others_end_for_theirs(server: Server) -> None:
    """Those that fail for ever and those that succeed at once share the pool, and one middleware."""
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
            used_before(http, server)
        told = http.run(calls, http)
    assert [found.attempts for found in told] == [attempts for _, attempts in scripts]
    assert [len(server.ledger(url)) for url in urls] == [attempts for _, attempts in scripts]


def test_after_a_redirect_too(server: Server) -> None:
    """The redirected request is of the same call of the session, and has attempts of its own."""
    there = server.url("close", key="there")
    url = server.url(f"302~loc={there.replace(',', '%2C')}")
    with client("aiohttp", Retry(backoff=NONE, attempts=2)) as http:
        used_before(http, server)
        seen = http.get(url, follow=True)
    assert seen.report().attempts == 2
    assert (len(server.ledger(url)), len(server.ledger(there))) == (1, 2)
