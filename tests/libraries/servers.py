"""Misbehaving servers on loopback, and the verdict on a call to one."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from redouble import Verdict, transient

__all__ = ["answering", "closed_port", "judged", "library", "run", "sending", "silent"]

Talk = Callable[[socket.socket], None]


def library(name: str) -> Any:
    """Import a module by name, because linters do not see it."""
    return importlib.import_module(name)


def run(main: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine in a new event loop."""
    asyncio.run(main)


def judged(operation: Callable[[], object]) -> Verdict | None:
    """Call an operation that fails, and return the verdict on its error."""
    try:
        operation()
    except Exception as error:
        return transient(error)
    raise AssertionError("this was to fail")


def closed_port() -> int:
    """Return a port that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def silent() -> Generator[int, None, None]:
    """Run a server that never sends anything; yield its port."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@contextlib.contextmanager
def serving(talk: Talk) -> Generator[int, None, None]:
    """Run a server that calls ``talk`` with each connection and closes it; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # the test has ended
                with connection, contextlib.suppress(OSError):
                    talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def sending(
    text: bytes, *, first: bool = False, again: bool = False
) -> contextlib.AbstractContextManager[int]:
    """Send ``text``: at once if ``first``, after every message if ``again``, else after the first one."""

    def talk(connection: socket.socket) -> None:
        received = b"nothing yet" if first else connection.recv(65536)
        while received:
            connection.sendall(text)
            received = connection.recv(65536) if again else b""

    return serving(talk)


@contextlib.contextmanager
def answering(
    status: int, headers: Mapping[str, str] | None = None, body: bytes = b"{}", kind: str = "application/json"
) -> Generator[str, None, None]:
    """Run an HTTP server that sends the same response to every request; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Connection": "close",
                **(headers or {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  the name that http.server requires

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.001,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
