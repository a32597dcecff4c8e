"""A flaky service on loopback: real sockets, real resets, the same bad luck on every run.

What a request meets depends on its path and on how often that path was asked for before. Only this depends on
time: a path that said it is busy stays so for as long as it asked for, and who comes too early is told again.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from itertools import cycle
from random import Random
from socketserver import ThreadingTCPServer
from threading import Lock, Thread
from types import TracebackType
from typing import NamedTuple, TypeAlias, cast

SEED = "redouble 228"
PROMPT = 0.1  # seconds it takes to refuse
BUSY = 0.7  # seconds of peace it asks for when busy


class Works(NamedTuple):
    """Answer 200, after some seconds."""

    takes: float


class Resets(NamedTuple):
    """Cut the connection after the request was read."""


class Busy(NamedTuple):
    """Answer 503, and ask for some seconds of peace."""

    retry_after: float


Luck: TypeAlias = Works | Resets | Busy


def luck_of(path: str, pace: float) -> Iterator[Luck]:
    """Return what the requests for one path meet, in order, for ever."""
    if path == "/broken":
        return cycle([Resets(), Busy(0.05)])
    if path == "/maintenance":
        return cycle([Busy(600)])
    return dice(Random(f"{SEED} {path}"), pace)  # noqa: S311  chance, not secrets


def dice(random: Random, pace: float) -> Iterator[Luck]:
    """Work half of the time."""
    while True:
        takes = pace * random.uniform(0.1, 0.3)
        faces: list[Luck] = [Works(takes), Works(takes), Resets(), Busy(pace * BUSY)]
        yield random.choice(faces)


@dataclass
class Seen:
    """One request as the service saw it, in seconds since it began to serve; ``ended`` once it has."""

    path: str
    started: float
    luck: Luck
    early: bool = False
    ended: float | None = None


class FlakyService(ThreadingTCPServer):
    """The service; use it in a ``with``. ``seen`` has every request, in order; ``pace`` stretches time."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pace: float = 1.0) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.seen: list[Seen] = []
        self.pace = pace
        self._luck: dict[str, Iterator[Luck]] = {}
        self._busy_until: dict[str, float] = {}
        self._began = time.monotonic()
        self._lock = Lock()

    @property
    def port(self) -> int:
        """Where on loopback it listens."""
        return int(self.socket.getsockname()[1])

    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def meet(self, path: str) -> Seen:
        """Note a request and decide what it is to meet."""
        with self._lock:
            now = self.now()
            busy_for = self._busy_until.get(path, now) - now
            if busy_for > 0:
                seen = Seen(path, now, Busy(round(busy_for, 2)), early=True)
            else:
                seen = Seen(path, now, next(self._luck.setdefault(path, luck_of(path, self.pace))))
            self.seen.append(seen)
            return seen

    def refused(self, seen: Seen, retry_after: float) -> None:
        """Note that a path has now asked for some peace; a reminder asks for none of its own."""
        if not seen.early:
            with self._lock:
                self._busy_until[seen.path] = self.now() + retry_after

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

    def do_GET(self) -> None:
        """Meet the luck of this path."""
        service = cast("FlakyService", self.server)  # nobody else makes answers
        seen = service.meet(self.path)
        match seen.luck:
            case Works(takes):
                time.sleep(takes)
                seen.ended = service.now()
                self._send(200, {}, b"here you are\n")
            case Busy(retry_after):
                time.sleep(service.pace * PROMPT)
                service.refused(seen, retry_after)
                seen.ended = service.now()
                # HTTP knows whole seconds only; a demonstration that waited for those would be a slow one.
                self._send(503, {"Retry-After": f"{retry_after:g}"}, b"busy\n")
            case Resets():
                time.sleep(service.pace * PROMPT)
                seen.ended = service.now()
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
        """Say nothing: the timelines tell the story."""
