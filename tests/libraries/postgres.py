"""A PostgreSQL server that answers every statement with nothing, and loses connections when it is told to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Generator

TERMINATED = b"terminating connection due to administrator command"


class Postgres:
    """The server: ``lose`` is the part of a statement that it answers by closing the connection."""

    def __init__(self) -> None:
        self.lose = b"never"
        self.dead = False
        self.connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def restart(self) -> None:
        """Close all connections, as a server that restarts does."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return  # the test has ended
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            received = connection.makefile("rb")
            while (size := _number(received.read(4))) == 8:  # a request for TLS or GSS
                received.read(4)
                connection.sendall(b"N")
            received.read(size - 4)
            parameters = b"".join(
                message(b"S", name + b"\0" + value + b"\0")
                for name, value in (
                    (b"server_version", b"15.0"),
                    (b"client_encoding", b"UTF8"),
                    (b"standard_conforming_strings", b"on"),
                    (b"integer_datetimes", b"on"),
                )
            )
            connection.sendall(
                message(b"R", struct.pack(">i", 0))
                + parameters
                + message(b"K", bytes(8))
                + message(b"Z", b"I")
            )
            in_transaction = False
            while kind := received.read(1):
                body = received.read(_number(received.read(4)) - 4)
                if kind == b"X":
                    return
                if self.lose in body and kind in (b"Q", b"P"):
                    error = b"SFATAL\0VFATAL\0C57P01\0M" + TERMINATED + b"\0\0"
                    connection.sendall(message(b"E", error))
                    return
                if kind in (b"Q", b"P"):
                    begun, ended = b"BEGIN" in body.upper(), b"COMMIT" in body or b"ROLLBACK" in body
                    in_transaction = begun or (in_transaction and not ended)
                ready = message(b"Z", b"T" if in_transaction else b"I")
                done = message(b"C", b"SET\0")
                answers = {
                    b"Q": done + ready,
                    b"P": message(b"1"),
                    b"B": message(b"2"),
                    b"D": message(b"n"),
                    b"E": done,
                    b"S": ready,
                }
                connection.sendall(answers.get(kind, b""))


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Return a message of the protocol."""
    return kind + struct.pack(">I", len(body) + 4) + body


def _number(data: bytes) -> int:
    if len(data) < 4:
        raise EOFError
    return int(struct.unpack(">I", data)[0])


@contextlib.contextmanager
def postgres() -> Generator[Postgres]:
    """Run a server."""
    server = Postgres()
    try:
        yield server
    finally:
        server.close()
        server.restart()
