"""A flaky service on loopback: real sockets, real resets, the same bad luck on every run.

What a request meets depends on its path and on how often that path was asked for before, and on nothing
else: not on timing, nor on which other requests are under way.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import cycle
from random import Random
from socketserver import ThreadingTCPServer
from threading import Lock, Thread
from types import TracebackType
from typing import NamedTuple, TypeAlias

SEED = "redouble"
SLOW = 0.03  # seconds a busy service takes to say so


class Works(NamedTuple):
    """Answer 200."""


class Resets(NamedTuple):
    """Cut the connection after the request was read."""


class Busy(NamedTuple):
    """Answer 503, slowly, and ask for some seconds of peace."""

    retry_after: float


Luck: TypeAlias = Works | Resets | Busy


def luck_of(path: str) -> Iterator[Luck]:
    """Return what the requests for one path meet, in order, for ever."""
    if path == "/broken":
        return cycle([Resets(), Busy(0.05)])
    if path == "/maintenance":
        return cycle([Busy(600)])
    return dice(Random(f"{SEED} {path}"))  # noqa: S311  chance, not secrets


def dice(random: Random) -> Iterator[Luck]:
    """Work half of the time."""
    faces: list[Luck] = [Works(), Works(), Resets(), Busy(0.1)]
    while True:
        yield random.choice(faces)


class FlakyService(ThreadingTCPServer):
    """The service; use it in a ``with``. ``requests`` counts those it has seen."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.requests = 0
        self._luck: dict[str, Iterator[Luck]] = {}
        self._lock = Lock()

    @property
    def port(self) -> int:
        """Where on loopback it listens."""
        return int(self.socket.getsockname()[1])

    def next_luck(self, path: str) -> Luck:
        """Count a request and return what it is to meet."""
        with self._lock:
            self.requests += 1
            return next(self._luck.setdefault(path, luck_of(path)))

    def __enter__(self) -> FlakyService:
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    """One request and what becomes of it."""

    server: FlakyService

    def do_GET(self) -> None:
        """Meet the luck of this path."""
        luck = self.server.next_luck(self.path)
        match luck:
            case Works():
                self._send(200, {}, b"here you are\n")
            case Busy(retry_after):
                time.sleep(SLOW)
                # HTTP knows whole seconds only; a demonstration that waited for those would be a slow one.
                self._send(503, {"Retry-After": f"{retry_after:g}"}, b"busy\n")
            case Resets():
                # Lingering for zero seconds means: drop everything and send RST instead of FIN.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the parameter's name in http.server
        """Say nothing: the clients tell the story."""
