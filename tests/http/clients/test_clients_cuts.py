"""Thousands of requests that a time limit cuts, at any moment, lose no connection of the client's pool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import cycle
from random import Random
from typing import Any

import pytest
import trio

import redouble
from redouble import Layer, Retry, Timeout
from tests.support.http.clients import CLIENTS, Client, client, is_async
from tests.support.servers import Server

POOL = 4
AT_A_TIME = 12
CALLS = 400
LIMIT = 0.02  # seconds
PATIENCE = 10  # seconds until a test fails
TRIES = 20
SCRIPTS = ("200", "stall", "200~stall=2", "200~driphead=0.0003", "503~close,200", "200~size=70000~drip=0.005")

NONE = [0] * 9
LIMITS: dict[str, Layer] = {
    "timeout": Retry(backoff=NONE, timeout=LIMIT),
    "attempt_timeout": Retry(backoff=NONE, attempts=2, attempt_timeout=LIMIT / 2),
    "Timeout outside": Timeout(LIMIT) | Retry(backoff=NONE),
    "Timeout inside": Retry(backoff=NONE, attempts=2) | Timeout(LIMIT / 2),
    "deadline": Retry(backoff=NONE),
    "Timeout around the call": Retry(backoff=NONE),
    "asyncio.timeout around the call": Retry(backoff=NONE),
}
CASES = [
    (name, limit)
    for name in CLIENTS
    for limit in LIMITS
    if is_async(name) or "around" not in limit  # blocking calls have no limits from outside
    if "asyncio" not in limit or not name.endswith("trio")
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def scope(limit: str) -> AbstractContextManager[Any]:
    return redouble.deadline(LIMIT) if limit == "deadline" else nullcontext()


def cut_in_threads(http: Client, limit: str, urls: list[str]) -> None:
    def call(url: str) -> None:
        with suppress(Exception), scope(limit):
            http.raw.get(url, timeout=PATIENCE)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(call, urls))


async def cut_in_tasks(http: Client, limit: str, urls: list[str]) -> None:
    async def read(url: str) -> None:
        if http.name == "aiohttp":
            async with http.raw.get(url) as response:
                await response.read()
        else:
            await http.raw.get(url, timeout=PATIENCE)

    async def read_in_time(url: str) -> None:
        async with asyncio.timeout(LIMIT):
            await read(url)

    calls = {"Timeout around the call": Timeout(LIMIT)(read), "asyncio.timeout around the call": read_in_time}

    async def some() -> None:
        while urls:
            with suppress(Exception), scope(limit):
                await calls.get(limit, read)(urls.pop())

    if http.name.endswith("trio"):
        async with trio.open_nursery() as nursery:
            for _ in range(AT_A_TIME):
                nursery.start_soon(some)
    else:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_A_TIME):
                tasks.create_task(some())


def open_streams(http: Client, server: Server) -> None:
    """Hold as many responses open as the pool has connections."""
    answers = [_head(http, server) for _ in range(POOL)]
    for answer in answers:
        http.run(answer.aclose if "-" in http.name else answer.close)


def _head(http: Client, server: Server) -> Any:
    """Return an unread response; on a slow machine some are cut, too."""
    for _ in range(TRIES):
        with suppress(Exception):
            return http.run(_send, http, server.url("200~stall=3"))
    raise AssertionError("there is no connection for it")


def _send(http: Client, url: str) -> Any:
    if http.name == "requests":
        return http.raw.get(url, stream=True, timeout=1)
    if http.name == "aiohttp":
        return http.raw.get(url)
    return http.raw.send(http.raw.build_request("GET", url, timeout=1), stream=True)


@pytest.mark.stress
@pytest.mark.parametrize(("name", "limit"), CASES)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of sockets that a library abandons while connecting
def test_no_connection_is_lost(server: Server, name: str, limit: str) -> None:
    chance, scripts = Random(5), cycle(SCRIPTS)
    urls = [server.url(next(scripts)) for _ in range(CALLS)]
    chance.shuffle(urls)
    with client(name, LIMITS[limit], pool=POOL) as http:
        http.run(cut_in_tasks if is_async(name) else cut_in_threads, http, limit, urls)
        open_streams(http, server)
