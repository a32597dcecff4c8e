"""Running a scenario with all who take part, side by side: each has a thread, and a URL of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, local
from typing import Any

from comparison import (
    with_aiohttp_retry,
    with_httpware,
    with_httpx_retries,
    with_redouble,
    with_stamina,
    with_urllib3,
)
from comparison.asked import PAYLOAD, Asked, Seen
from comparison.scenarios import Scenario
from tests.support.servers import Received, Server, refused_port

PATIENCE = 10.0  # seconds; whoever has not come to an end by then is still waiting
MOMENT = 0.3  # for what is under way to arrive

SENDERS: dict[str, Callable[[str, Asked, Seen], None]] = {
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


def run(scenario: Scenario, names: list[str]) -> dict[str, Seen]:
    """Run it, and tell what was seen."""
    with Server() as server, first_connections_refused():
        running = {name: Running(server, scenario, SENDERS[name]) for name in names}
        until = time.monotonic() + PATIENCE
        for one in running.values():
            one.join(max(0.0, until - time.monotonic()))
        time.sleep(MOMENT)
        return {name: one.result() for name, one in running.items()}


class Running(Thread):
    """One scenario with one library; a thread that is left behind ends with the process."""

    def __init__(self, server: Server, scenario: Scenario, send: Callable[[str, Asked, Seen], None]) -> None:
        super().__init__(daemon=True)
        self._server, self._asked, self._send = server, scenario.asked, send
        self._url = server.url(scenario.script if isinstance(scenario.script, str) else scenario.script())
        self._seen = Seen()
        self.start()

    def run(self) -> None:
        """Send the request."""
        started = time.monotonic()
        REFUSED.next = self._asked.refused
        try:
            self._send(self._url, self._asked, self._seen)
        except Exception as error:
            self._seen.ended(error)
        if self._asked.limited:
            self._seen.took = time.monotonic() - started

    def result(self) -> Seen:
        """Tell what was seen, by the caller and on the wire."""
        seen = self._seen
        ledger = self._server.ledger(self._url)
        seen.waiting = self.is_alive()
        seen.requests = len(ledger)
        if len(ledger) > 1:
            seen.pause = ledger[1].at - ledger[0].at
        seen.lost = self._asked.body != "none" and any(lost(received) for received in ledger)
        seen.twice = self._asked.iterate and seen.received.count(seen.received.split(b"\n\n")[0]) > 1
        return seen


def lost(received: Received) -> bool:
    """Say whether a request came without the body that belongs to it."""
    return received.complete and received.body.count(PAYLOAD) != 1


# ------------------------------------------------------------------------- a refused port

REFUSED = local()


@contextmanager
def first_connections_refused() -> Iterator[None]:
    """Lead the first connection of a thread that wants it to a port where nobody listens."""
    connect = socket.socket.connect

    def astray(self: socket.socket, address: Any) -> None:
        if getattr(REFUSED, "next", False):
            REFUSED.next = False
            address = (address[0], refused_port())
        connect(self, address)

    socket.socket.connect = astray  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        socket.socket.connect = connect  # type: ignore[method-assign]
