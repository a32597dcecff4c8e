"""A server that speaks HTTP/2 over plain TCP, and responds to each request as scripted.

A step is a status; "refused" and "reset" end the stream without a response, "cut" ends it after half of its
body, and "goaway" ends the whole connection. The last step repeats.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import Any, Self

import h2.config
import h2.connection
import h2.errors
import h2.events

BODY = b"0123456789"


class H2Server:
    """Serves one connection after the other, and records method, body and connection of each request."""

    def __init__(self, *steps: int | str) -> None:
        self._steps = steps
        self.received: list[tuple[str, bytes, int]] = []
        self._connections = 0
        self._stopped = False
        self._current: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._thread = Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        if self._current is not None:
            with suppress(OSError):  # the connection is closed already
                self._current.shutdown(socket.SHUT_RDWR)
        with socket.create_connection(self._listener.getsockname()):  # wakes `accept`
            self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            self._current, _ = self._listener.accept()
            if self._stopped:
                self._current.close()
                return
            self._connections += 1
            with self._current, suppress(OSError):
                self._serve_connection(self._current)

    def _serve_connection(self, sock: socket.socket) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        self._closed = False
        sock.sendall(connection.data_to_send())
        methods, bodies = dict[int, str](), dict[int, bytes]()
        while data := sock.recv(65_536):
            for event in connection.receive_data(data):
                received: Any = event
                if isinstance(event, h2.events.RequestReceived):
                    methods[received.stream_id] = dict(received.headers)[b":method"].decode()
                    bodies[received.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[received.stream_id] += received.data
                    connection.acknowledge_received_data(received.flow_controlled_length, received.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    stream = received.stream_id
                    self.received.append((methods[stream], bodies[stream], self._connections))
                    self._respond(connection, stream)
            sock.sendall(connection.data_to_send())
            if self._closed:
                return

    def _respond(self, connection: h2.connection.H2Connection, stream: int) -> None:
        step = self._steps[min(len(self.received), len(self._steps)) - 1]
        if step == "goaway":
            connection.close_connection(last_stream_id=0)
            self._closed = True
            return
        if step in ("refused", "reset"):
            code = h2.errors.ErrorCodes
            connection.reset_stream(stream, code.REFUSED_STREAM if step == "refused" else code.INTERNAL_ERROR)
            return
        status = 200 if step == "cut" else step
        connection.send_headers(stream, [(":status", str(status)), ("content-length", str(len(BODY)))])
        if step == "cut":
            connection.send_data(stream, BODY[:5])
            connection.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        else:
            connection.send_data(stream, BODY, end_stream=True)
