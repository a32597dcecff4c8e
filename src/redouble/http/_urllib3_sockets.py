"""Connections of urllib3 that stop waiting when the time of the call is up.

The same as `_sockets` does for httpcore. A connection's socket is wrapped once it is connected, as urllib3
itself does it for other kinds of TLS.
"""

from __future__ import annotations

import io
import socket
from typing import Any, cast

import urllib3
from urllib3 import connection, poolmanager
from urllib3.exceptions import EmptyPoolError

from redouble._clients.socket_deadline import SOCKET_DEADLINE, ShortenedTimeout, socket_timeout
from redouble.http._httpcore_sockets import WRITE_SIZE

__all__ = ["limit_pools"]


class LimitedSocket:
    """A connected socket, whose waits are shortened to the time that is left."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._timeout: float | None = sock.gettimeout()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def makefile(self, mode: str, buffering: int = -1) -> Any:  # noqa: ARG002  http.client reads bytes
        """Make what http.client reads from."""
        self._sock._io_refs += 1
        size = io.DEFAULT_BUFFER_SIZE if buffering < 0 else buffering
        return io.BufferedReader(socket.SocketIO(cast("Any", self), "r"), max(1, size))

    def settimeout(self, timeout: float | None) -> None:
        """Take the timeout of the next waits, and remember the client's own if it was shortened."""
        self._timeout = timeout
        self._sock.settimeout(timeout)

    def recv_into(self, *args: Any) -> int:
        """Wait for something to arrive."""
        return cast("int", self._wait(self._sock.recv_into, *args))

    def sendall(self, data: Any) -> None:
        """Wait until all of it is on its way."""
        if SOCKET_DEADLINE.get() is None:
            self._sock.sendall(data)
            return
        view = memoryview(data).cast("B")
        for start in range(0, len(view), WRITE_SIZE):
            self._wait(self._sock.sendall, view[start : start + WRITE_SIZE])

    def _wait(self, wait: Any, *args: Any) -> Any:
        before = self._timeout
        if SOCKET_DEADLINE.get() is None and not isinstance(before, ShortenedTimeout):
            return wait(*args)
        self._sock.settimeout(socket_timeout(before))
        try:
            return wait(*args)
        finally:
            if self._sock.fileno() >= 0:
                self._sock.settimeout(before)


class HTTPConnection(connection.HTTPConnection):
    """A connection without TLS."""

    def connect(self) -> None:
        """Connect."""
        super().connect()
        self.sock: Any = LimitedSocket(self.sock)


class HTTPSConnection(connection.HTTPSConnection):
    """A connection with TLS, perhaps through a proxy, which is asked without it."""

    def _tunnel(self) -> None:
        plain = self.sock
        self.sock = LimitedSocket(plain)
        try:
            cast("Any", super())._tunnel()
        finally:
            self.sock = plain

    def connect(self) -> None:
        """Connect."""
        super().connect()
        self.sock: Any = LimitedSocket(self.sock)


class LimitedPool(urllib3.HTTPConnectionPool):
    """A pool that lets nobody wait for a connection longer than the call may take."""

    def _get_conn(self, timeout: float | None = None) -> Any:
        try:
            return super()._get_conn(socket_timeout(timeout))
        except TimeoutError as error:
            raise EmptyPoolError(self, str(error)) from None


class HTTPConnectionPool(LimitedPool):
    """A pool of such connections."""

    ConnectionCls = cast("Any", HTTPConnection)


class HTTPSConnectionPool(LimitedPool, urllib3.HTTPSConnectionPool):
    """A pool of such connections with TLS."""

    ConnectionCls = cast("Any", HTTPSConnection)


def limit_pools(manager: urllib3.PoolManager) -> None:
    """Let a manager make such connections, unless it has some of its own."""
    if manager.pool_classes_by_scheme == poolmanager.pool_classes_by_scheme:
        pools: Any = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        manager.pool_classes_by_scheme = pools
