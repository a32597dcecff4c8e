"""Runs a scenario with all libraries concurrently, each on its own thread and with its own URL."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, local
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3 import connection

from comparison import (
    with_aiohttp_retry,
    with_httpware,
    with_httpx_retries,
    with_redouble,
    with_stamina,
    with_urllib3,
)
from comparison.request import PAYLOAD, Outcome, Request
from comparison.scenarios import Scenario
from tests.support.servers import Received, Server, refused_port

TIMEOUT = 10.0  # seconds; a call that has not ended by then is reported as still waiting
MOMENT = 0.3  # seconds for the last requests to arrive

SENDERS: dict[str, Callable[[str, Request, Outcome], None]] = {
    "httpx-retries": with_httpx_retries.send,
    "httpware": with_httpware.send,
    "stamina around httpx": with_stamina.send,
    "redouble.httpx": with_redouble.send_by_httpx,
    "redouble.httpx2": with_redouble.send_by_httpx2,
    "urllib3's Retry": with_urllib3.send,
    "redouble.requests": with_redouble.send_by_requests,
    "aiohttp-retry": with_aiohttp_retry.send,
    "redouble.aiohttp": with_redouble.send_by_aiohttp,
}


BY_URLLIB3 = ("urllib3's Retry", "redouble.requests")


def run(scenario: Scenario, names: list[str]) -> dict[str, Outcome]:
    """Run a scenario and return the outcome of each library."""
    with Server() as server, first_connections_refused(), recording(scenario.request.recorded) as paths:
        running = {name: ScenarioThread(server, scenario, SENDERS[name]) for name in names}
        until = time.monotonic() + TIMEOUT
        for one in running.values():
            one.join(max(0.0, until - time.monotonic()))
        time.sleep(MOMENT)
        outcomes = {name: one.result() for name, one in running.items()}
        for name in set(BY_URLLIB3) & set(names) if scenario.request.recorded else ():
            outcomes[name].unrecorded = outcomes[name].requests - paths.count(running[name].path)
        return outcomes


class ScenarioThread(Thread):
    """One scenario with one library; a daemon thread, which ends with the process."""

    def __init__(
        self, server: Server, scenario: Scenario, send: Callable[[str, Request, Outcome], None]
    ) -> None:
        super().__init__(daemon=True)
        self._server, self._request, self._send = server, scenario.request, send
        self._url = server.url(scenario.script if isinstance(scenario.script, str) else scenario.script())
        self.path = urlsplit(self._url).path
        self._outcome = Outcome()
        self.start()

    def run(self) -> None:
        """Send the request."""
        started = time.monotonic()
        REFUSED.next = self._request.refuse_first
        try:
            self._send(self._url, self._request, self._outcome)
        except Exception as error:
            self._outcome.record_error(error)
        if self._request.limited:
            self._outcome.took = time.monotonic() - started

    def result(self) -> Outcome:
        """Return the outcome, with the requests that the server received."""
        outcome = self._outcome
        ledger = self._server.ledger(self._url)
        outcome.waiting = self.is_alive()
        outcome.requests = len(ledger)
        if len(ledger) > 1:
            outcome.pause = ledger[1].at - ledger[0].at
        outcome.lost = self._request.body != "none" and any(lost(received) for received in ledger)
        outcome.twice = (
            self._request.iterate and outcome.received.count(outcome.received.split(b"\n\n")[0]) > 1
        )
        return outcome


def lost(received: Received) -> bool:
    """Return True if a request arrived without its body."""
    return received.complete and received.body.count(PAYLOAD) != 1


@contextmanager
def recording(on: bool) -> Iterator[list[str]]:
    """Replace the connections of urllib3's pools by some that record the paths of requests, as vcrpy does."""
    paths: list[str] = []

    class Recorded(connection.HTTPConnection):
        def putrequest(self, method: str, url: str, *args: Any, **options: Any) -> None:
            paths.append(url)
            super().putrequest(method, url, *args, **options)

    usual: Any = urllib3.HTTPConnectionPool.ConnectionCls
    urllib3.HTTPConnectionPool.ConnectionCls = Recorded if on else usual
    try:
        yield paths
    finally:
        urllib3.HTTPConnectionPool.ConnectionCls = usual


# ------------------------------------------------------------------------- a refuse_first port

REFUSED = local()


@contextmanager
def first_connections_refused() -> Iterator[None]:
    """Redirect the first connection of a thread that has set ``REFUSED.next`` to a closed port."""
    connect = socket.socket.connect

    def redirected(self: socket.socket, address: Any) -> None:
        if getattr(REFUSED, "next", False):
            REFUSED.next = False
            address = (address[0], refused_port())
        connect(self, address)

    socket.socket.connect = redirected  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        socket.socket.connect = connect  # type: ignore[method-assign]
