"""What a transport of httpx changes in its pool of httpcore: how sockets wait, which connections it keeps.

*Waits.* A client's own timeouts limit one wait: a server that sends a byte a second never exceeds them.
Therefore each wait is shortened to the time left of the call, in the socket layer, where the waits happen.

*Lost connections.* A request that ends at a bad moment leaves its connection in the pool, where no other
request can get it: one whose wait for the pool ends as a new connection is assigned to it, or one that is
cancelled before it is sent, or while its response is closed. When all connections are lost, every request
waits in vain. The timeouts of the client have this effect too. Therefore a transport drops such connections
whenever a request of it has ended without a response, or the closing of a response was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from socket import socket
from sys import modules
from typing import Any

from redouble._clients.socket_deadline import SOCKET_DEADLINE, ShortenedTimeout, socket_timeout
from redouble._runtime.backend import backend

deadline_of_waits = SOCKET_DEADLINE.get  # every read and write calls it
WRITE_SIZE = 16_384  # bytes written between two reads of the clock


# ------------------------------------------------------------------------------- waits


RETRYING = ("TenacityTransport", "AsyncTenacityTransport")  # of Pydantic AI


def reject_retries(transport: Any) -> None:
    """Raise if an httpx transport, or one that it wraps, retries on its own."""
    kind = next((base for base in type(transport).__mro__ if base.__name__ == "BaseTransport"), object)
    pending = [transport]
    for one in pending:  # which grows
        if getattr(getattr(one, "_pool", None), "_retries", 0):
            raise ValueError("wrapped retries by itself, so attempts would multiply: leave out its retries=")
        total: object = getattr(getattr(one, "retry", None), "total", 0)  # of httpx-retries
        if type(one).__name__ in RETRYING or (isinstance(total, int) and total > 0):
            raise ValueError(
                f"wrapped retries by itself ({type(one).__name__}), so attempts would multiply: "
                "write the transport inside it"
            )
        inner = [value for value in getattr(one, "__dict__", {}).values() if isinstance(value, kind)]
        pending += [value for value in inner if all(value is not known for known in pending)]


def limit_sockets(transport: Any) -> None:
    """Make the sockets of a blocking transport stop waiting at the deadline, if it has a pool of httpcore."""
    pool: Any = getattr(transport, "_pool", None)
    backend = getattr(pool, "_network_backend", None)
    library = _library_of(pool)
    if backend is not None and library is not None and not isinstance(backend, LimitedBackend):
        pool._network_backend = LimitedBackend(backend, library)


def _library_of(pool: object) -> Any:
    """Return httpcore or httpcore2, found by the base classes of a pool; None if it is of neither."""
    roots = [modules.get(kind.__module__.partition(".")[0]) for kind in type(pool).__mro__]
    return next((root for root in roots if hasattr(root, "ReadTimeout")), None)


class LimitedBackend:
    """A network backend of httpcore whose connections stop waiting at the deadline of the call."""

    def __init__(self, inner: Any, library: Any) -> None:
        self._inner, self._library = inner, library

    def connect_tcp(self, *args: Any, **kwargs: Any) -> Any:
        """Open a TCP connection."""
        return limit_stream(self._inner.connect_tcp(*args, **kwargs), self._library)

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> Any:
        """Open a connection to a Unix domain socket."""
        return limit_stream(self._inner.connect_unix_socket(*args, **kwargs), self._library)

    def sleep(self, seconds: float) -> None:
        """Wait between two connection attempts; httpcore makes only one by default."""
        self._inner.sleep(seconds)


def limit_stream(inner: Any, library: Any) -> LimitedStream:
    """Wrap a connection of httpcore."""
    name = f"{inner.__class__.__module__}.{inner.__class__.__name__}"
    plain = name == f"{library.__name__}._backends.sync.SyncStream"
    return LimitedStream(inner, PlainSocket(inner, library) if plain else inner, library)


class LimitedStream:
    """A connection of httpcore whose waits end at the deadline."""

    __slots__ = ("_inner", "_library", "_read", "_write", "close", "get_extra_info")

    _read: Callable[..., bytes]

    def __init__(self, inner: Any, waits: Any, library: Any) -> None:
        self._inner, self._library = inner, library
        self._read, self._write = waits.read, waits.write
        self.close, self.get_extra_info = inner.close, inner.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Receive at most ``max_bytes``."""
        if deadline_of_waits() is None and timeout.__class__ is not ShortenedTimeout:
            return self._read(max_bytes, timeout)
        return self._read(max_bytes, self._wait_limit(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send the whole buffer."""
        if deadline_of_waits() is None:
            self._write(buffer, timeout.original if isinstance(timeout, ShortenedTimeout) else timeout)
            return
        for start in range(0, len(buffer), WRITE_SIZE):
            self._write(buffer[start : start + WRITE_SIZE], self._wait_limit(timeout))

    def start_tls(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Start TLS on the connection."""
        return limit_stream(
            self._inner.start_tls(*args, timeout=self._wait_limit(timeout), **kwargs), self._library
        )

    def _wait_limit(self, timeout: float | None) -> float | None:
        try:
            return socket_timeout(timeout)
        except TimeoutError as error:
            raise self._library.ReadTimeout(str(error)) from None


class PlainSocket:
    """The waits of httpcore's own stream at less cost, so that unlimited calls pay nothing."""

    def __init__(self, stream: Any, library: Any) -> None:
        self._sock: socket = stream.get_extra_info("socket")
        self._library = library

    def read(self, max_bytes: int, timeout: float | None) -> bytes:
        """Receive at most ``max_bytes``."""
        try:
            self._sock.settimeout(timeout)
            return self._sock.recv(max_bytes)
        except TimeoutError as error:
            raise self._library.ReadTimeout(error) from error
        except OSError as error:
            raise self._library.ReadError(error) from error

    def write(self, buffer: bytes, timeout: float | None) -> None:
        """Send the whole buffer."""
        try:
            unsent = memoryview(buffer)
            while unsent:
                self._sock.settimeout(timeout)
                unsent = unsent[self._sock.send(unsent) :]
        except TimeoutError as error:
            raise self._library.WriteTimeout(error) from error
        except OSError as error:
            raise self._library.WriteError(error) from error


# -------------------------------------------------------------------- lost connections


def pool_of(owner: object) -> Any:
    """Return the pool of httpcore that a transport of httpx, or a stream, belongs to; None without one."""
    pool = getattr(owner, "_pool", None)
    needed = ("_assign_requests_to_connections", "_optional_thread_lock", "_connections", "_requests")
    return pool if all(hasattr(pool, name) for name in needed) else None


def drop_lost_connections(pool: Any, ended: Any = None) -> None:
    """Drop the connections that no request uses and none can get, and the request that has ``ended``.

    A connection belongs to a request from the moment when it is made until it is idle or closed.
    """
    with pool._optional_thread_lock:
        if ended in pool._requests:
            pool._requests.remove(ended)
        used = {id(request.connection) for request in pool._requests}
        lost = [each for each in pool._connections if id(each) not in used and _is_stuck(each)]
        if not lost and ended is None:
            return
        pool._connections = [each for each in pool._connections if each not in lost]
        closing = [*lost, *pool._assign_requests_to_connections()]
    if hasattr(pool, "close"):
        _close_all(closing)
    else:
        backend().run_detached(_aclose_all(closing))  # the task of the request may be cancelled


def _is_stuck(connection: Any) -> bool:
    return not (connection.is_idle() or connection.is_available() or connection.is_closed())


def _close_all(connections: list[Any]) -> None:
    for connection in connections:
        connection.close()


async def _aclose_all(connections: list[Any]) -> None:
    for connection in connections:
        await connection.aclose()


def close_stream(stream: Any) -> None:
    """Close the stream of a response; release its connection even if that is interrupted."""
    closed = False
    try:
        stream.close()
        closed = True
    finally:
        if not closed:
            _release(stream)


async def aclose_stream(stream: Any) -> None:
    """Close the stream of a response; release its connection even if that is interrupted."""
    closed = False
    try:
        await stream.aclose()
        closed = True
    finally:
        if not closed:
            _release(stream)


def _release(stream: Any) -> None:
    inner = getattr(stream, "_httpcore_stream", None)
    pool, request = pool_of(inner), getattr(inner, "_pool_request", None)
    if pool is not None and request is not None:
        drop_lost_connections(pool, request)
