"""Connections and pools of urllib3 whose waits end at the deadline of the call.

The counterpart of the backends for httpcore. A connection's socket is wrapped after connecting, as urllib3
itself does for other TLS implementations.
"""

from __future__ import annotations

import io
import socket
from typing import Any, cast

import urllib3
from urllib3 import connection, poolmanager
from urllib3.exceptions import EmptyPoolError

from redouble._clients.socket_deadline import SOCKET_DEADLINE, ShortenedTimeout, socket_timeout
from redouble.http._httpcore import WRITE_SIZE


class LimitedSocket:
    """A connected socket whose waits are shortened to the time that is left."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._timeout: float | None = sock.gettimeout()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def makefile(self, mode: str, buffering: int = -1) -> Any:  # noqa: ARG002  http.client reads bytes
        """Return the buffered reader that http.client reads from."""
        self._sock._io_refs += 1
        size = io.DEFAULT_BUFFER_SIZE if buffering < 0 else buffering
        return io.BufferedReader(socket.SocketIO(cast("Any", self), "r"), max(1, size))

    def settimeout(self, timeout: float | None) -> None:
        """Set the timeout of the next waits; a `ShortenedTimeout` keeps the client's own."""
        self._timeout = timeout
        self._sock.settimeout(timeout)

    def recv_into(self, *args: Any) -> Any:
        """Receive into a buffer."""
        if SOCKET_DEADLINE.get() is None and self._timeout.__class__ is not ShortenedTimeout:
            return self._sock.recv_into(*args)
        return self._wait(self._sock.recv_into, *args)

    def sendall(self, data: Any) -> None:
        """Send all data."""
        if SOCKET_DEADLINE.get() is None:
            self._sock.sendall(data)
            return
        view = memoryview(data).cast("B")
        for start in range(0, len(view), WRITE_SIZE):
            self._wait(self._sock.sendall, view[start : start + WRITE_SIZE])

    def _wait(self, wait: Any, *args: Any) -> Any:
        before = self._timeout
        self._sock.settimeout(socket_timeout(before))
        try:
            return wait(*args)
        finally:
            if self._sock.fileno() >= 0:
                self._sock.settimeout(before)


def limited(sock: Any) -> Any:
    """Wrap a socket; one that does not count its references, such as a stand-in of a test, stays as it is."""
    return LimitedSocket(sock) if isinstance(getattr(sock, "_io_refs", None), int) else sock


class HTTPConnection(connection.HTTPConnection):
    """A connection without TLS whose waits are limited."""

    def connect(self) -> None:
        """Connect and wrap the socket."""
        super().connect()
        self.sock: Any = limited(self.sock)


class HTTPSConnection(HTTPConnection, connection.HTTPSConnection):
    """A connection with TLS whose waits are limited; a proxy's tunnel is requested without TLS."""

    def _tunnel(self) -> None:
        plain = self.sock
        self.sock = limited(plain)
        try:
            cast("Any", super())._tunnel()
        finally:
            self.sock = plain


LIMITED: dict[Any, Any] = {
    connection.HTTPConnection: HTTPConnection,
    connection.HTTPSConnection: HTTPSConnection,
}


class LimitedPool(urllib3.HTTPConnectionPool):
    """A pool whose connections are limited, and whose wait for a free one ends at the deadline of the call.

    A library that replaces the connections of urllib3's pools while it records or plays back, such as vcrpy,
    replaces those of this pool too.
    """

    @property
    def ConnectionCls(self) -> Any:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]  # noqa: N802
        usual: Any = super().ConnectionCls
        return LIMITED.get(usual, usual)

    def _get_conn(self, timeout: float | None = None) -> Any:
        try:
            return super()._get_conn(socket_timeout(timeout))
        except TimeoutError as error:
            raise EmptyPoolError(self, str(error)) from None


class LimitedTlsPool(LimitedPool, urllib3.HTTPSConnectionPool):  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
    """A pool of limited connections with TLS."""


def limit_pools(manager: urllib3.PoolManager) -> None:
    """Make a manager create limited pools, unless the caller has set other pool classes."""
    if manager.pool_classes_by_scheme == poolmanager.pool_classes_by_scheme:
        pools: Any = {"http": LimitedPool, "https": LimitedTlsPool}
        manager.pool_classes_by_scheme = pools
