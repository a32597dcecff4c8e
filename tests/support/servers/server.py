"""The server: one thread for each connection, all of which end with the server."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Condition, Thread
from time import monotonic
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from tests.support.servers.connection import Connection, Disconnected, Head, Malformed
from tests.support.servers.request_log import LIMIT, Received, RequestLog
from tests.support.servers.script import Step, parse
from tests.support.servers.steps import play

HOST = "127.0.0.1"
BACKLOG = 1024


class Server:
    """The server, a context manager with its own port. The first ``refuse_first`` connections are reset."""

    def __init__(self, *, refuse_first: int = 0, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._refusals = refuse_first
        self._log = RequestLog()
        self._keys = count(1)
        self._changed = Condition()
        self._open_connections: dict[int, Connection] = {}
        self._threads: list[Thread] = []
        self._connections = 0

    def start(self) -> None:
        """Start to listen."""
        self._listener = socket.create_server((HOST, 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._stop_receiver, self._stop_sender = socket.socketpair()
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = Thread(target=self._accept, name="server", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Break all connections, and wait for all threads."""
        self._stop_sender.send(b"!")
        self._acceptor.join()
        for sock in (self._listener, self._stop_receiver, self._stop_sender):
            sock.close()
        with self._changed:
            for wire in self._open_connections.values():
                wire.wake()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base(self) -> str:
        """The base URL, without a trailing slash."""
        return f"http://{HOST}:{self.port}"

    def url(self, script: str, key: str | None = None) -> str:
        """Return the URL of a script. A key that is not given is new; all such keys have the same length."""
        parse(script)
        key = f"k{next(self._keys):05}" if key is None else quote(key, safe="")
        return f"{self.base}/s/{key}/{quote(script, safe='*~=,')}/"

    def ledger(self, url: str) -> list[Received]:
        """Return the requests received for a key, or the key of a URL, in order of arrival."""
        return self._log.of(_key(url))

    def wait_for(self, url: str, requests: int) -> list[Received]:
        """Wait until this many requests have arrived for a key, or the key of a URL."""
        return self._log.wait_for(_key(url), requests)

    @property
    def connections(self) -> int:
        """The number of connections accepted so far."""
        with self._changed:
            return self._connections

    @property
    def open(self) -> int:
        """The number of open connections."""
        with self._changed:
            return len(self._open_connections)

    def wait_until_open(self, connections: int) -> None:
        """Wait until exactly this many connections are open."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._open_connections) == connections, LIMIT):
                raise TimeoutError(f"{len(self._open_connections)} connections are open, not {connections}")

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stop_receiver, selectors.EVENT_READ)
            while self._stop_receiver not in (key.fileobj for key, _ in selector.select()):
                with suppress(BlockingIOError, ConnectionAbortedError):  # the client has disconnected
                    self._start_connection(self._listener.accept()[0])

    def _start_connection(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        with self._changed:
            self._connections += 1
            wire = Connection(sock, self._connections)
            self._open_connections[wire.serial] = wire
            self._changed.notify_all()
        work = self._serve if wire.serial > self._refusals else self._refuse
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(
            Thread(target=self._run_connection, args=(work, wire), name="server", daemon=True)
        )
        self._threads[-1].start()

    def _run_connection(self, work: Callable[[Connection], None], wire: Connection) -> None:
        try:
            work(wire)
        except Disconnected:
            pass
        finally:
            with self._changed:
                del self._open_connections[wire.serial]
                wire.close()
                self._changed.notify_all()

    def _refuse(self, wire: Connection) -> None:
        wire.reset()

    def _serve(self, wire: Connection) -> None:
        try:
            while True:
                self._exchange(wire)
        except Malformed as error:
            _reject(wire, error.status, str(error))

    def _exchange(self, wire: Connection) -> None:
        head = wire.head()
        at = self.clock()
        key, steps = _located(head.path)
        entry, step = self._log.arrived(key, head, steps, wire.serial, at)
        if step.reads_body and head.has_body:
            entry = self._receive(key, entry, head, wire)
        play(step, entry, wire, head.wants_close)

    def _receive(self, key: str, entry: Received, head: Head, wire: Connection) -> Received:
        """Read the body, and record the part that has arrived."""
        body, complete = bytearray(), False
        try:
            wire.body(head, body)
            complete = True
        finally:
            entry = self._log.filled(key, entry, bytes(body), complete)
        return entry


def _located(path: str) -> tuple[str, tuple[Step, ...]]:
    match path.split("/", 4):
        case ["", "s", key, script, *_]:
            pass
        case _:
            raise Malformed(f"not /s/KEY/SCRIPT/: {path}", 404)
    try:
        return unquote(key), parse(unquote(script))
    except ValueError as error:
        raise Malformed(str(error)) from None


def _reject(wire: Connection, status: int, why: str) -> None:
    """Respond to a request without a valid script, and close the connection."""
    step = Step(why, "status", status, body=why.encode())
    play(step, Received(0, "GET", "", "", {}, (), wire.serial, 0.0, why), wire, last=True)


def _key(url: str) -> str:
    return unquote(urlsplit(url).path.split("/")[2]) if "://" in url else url
