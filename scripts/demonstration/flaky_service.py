"""A flaky HTTP service on loopback: real sockets, real resets, the same failures on every run.

The behaviour of a request depends on its path and on the number of earlier requests for that path. One thing
depends on time: after a 503 the path stays busy for its ``Retry-After``, and a request before that gets
another 503.
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
PROMPT = 0.1  # seconds before a reset or a 503
BUSY = 0.7  # seconds of Retry-After


class Works(NamedTuple):
    """Answer 200 after ``takes`` seconds."""

    takes: float


class Resets(NamedTuple):
    """Reset the connection after the request was read."""


class Busy(NamedTuple):
    """Answer 503 with ``Retry-After``."""

    retry_after: float


Behaviour: TypeAlias = Works | Resets | Busy


def behaviours_of(path: str, pace: float) -> Iterator[Behaviour]:
    """Return the behaviours of the requests for one path, in order, without end."""
    if path == "/broken":
        return cycle([Resets(), Busy(0.05)])
    if path == "/maintenance":
        return cycle([Busy(600)])
    return random_behaviours(Random(f"{SEED} {path}"), pace)  # noqa: S311  chance, not secrets


def random_behaviours(random: Random, pace: float) -> Iterator[Behaviour]:
    """Yield random behaviours, half of them `Works`."""
    while True:
        takes = pace * random.uniform(0.1, 0.3)
        faces: list[Behaviour] = [Works(takes), Works(takes), Resets(), Busy(pace * BUSY)]
        yield random.choice(faces)


@dataclass
class ServedRequest:
    """One request that the service received, in seconds since it started; ``ended`` is None until it ends."""

    path: str
    started: float
    behaviour: Behaviour
    early: bool = False
    ended: float | None = None


class FlakyService(ThreadingTCPServer):
    """The service, a context manager; ``requests`` lists all requests in order; ``pace`` scales its times."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pace: float = 1.0) -> None:
        super().__init__(("127.0.0.1", 0), RequestHandler)
        self.requests: list[ServedRequest] = []
        self.pace = pace
        self._behaviours: dict[str, Iterator[Behaviour]] = {}
        self._busy_until: dict[str, float] = {}
        self._began = time.monotonic()
        self._lock = Lock()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.socket.getsockname()[1])

    def now(self) -> float:
        """Return the seconds since it started."""
        return time.monotonic() - self._began

    def begin_request(self, path: str) -> ServedRequest:
        """Record a request and choose its behaviour."""
        with self._lock:
            now = self.now()
            busy_for = self._busy_until.get(path, now) - now
            if busy_for > 0:
                served = ServedRequest(path, now, Busy(round(busy_for, 2)), early=True)
            else:
                served = ServedRequest(
                    path, now, next(self._behaviours.setdefault(path, behaviours_of(path, self.pace)))
                )
            self.requests.append(served)
            return served

    def mark_busy(self, served: ServedRequest, retry_after: float) -> None:
        """Record that a path is busy for ``retry_after`` seconds; an early request does not extend that."""
        if not served.early:
            with self._lock:
                self._busy_until[served.path] = self.now() + retry_after

    def __enter__(self) -> FlakyService:
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()


class RequestHandler(BaseHTTPRequestHandler):
    """The handler of one request."""

    def do_GET(self) -> None:
        """Behave as chosen for this request."""
        service = cast("FlakyService", self.server)  # the only server of this handler
        served = service.begin_request(self.path)
        match served.behaviour:
            case Works(takes):
                time.sleep(takes)
                served.ended = service.now()
                self._send(200, {}, b"here you are\n")
            case Busy(retry_after):
                time.sleep(service.pace * PROMPT)
                service.mark_busy(served, retry_after)
                served.ended = service.now()
                # HTTP allows whole seconds only; those would make the demonstration slow.
                self._send(503, {"Retry-After": f"{retry_after:g}"}, b"busy\n")
            case Resets():
                time.sleep(service.pace * PROMPT)
                served.ended = service.now()
                # SO_LINGER with zero seconds: discard unsent data and send RST instead of FIN.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the parameter's name in http.server
        """Log nothing: the timelines show the requests."""
