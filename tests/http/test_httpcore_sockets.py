"""Every wait of a blocking connection is shortened to the time left of the call, and restored afterwards."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, cast

import httpcore
import httpcore2
import httpx
import httpx2
import pytest

from redouble._clients.socket_deadline import SOCKET_DEADLINE, ShortenedTimeout
from redouble.http._httpcore import (
    WRITE_SIZE,
    LimitedBackend,
    LimitedStream,
    limit_sockets,
    limit_stream,
    reject_retries,
)
from tests.support.fakes import Virtual, always
from tests.support.servers import pattern

TRANSPORTS = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


class Late(Exception):
    """The library's timeout error."""


class Library:
    """The part of an httpcore library that is used."""

    __name__ = "words"
    ReadTimeout = Late


class Wire:
    """A connection or a backend that records its timeouts. Each wait takes a second."""

    def __init__(self, clock: Virtual) -> None:
        self.clock = clock
        self.waits: list[tuple[str, Any]] = []
        self.written: list[bytes] = []

    def _record(self, what: str, timeout: Any) -> None:
        self.waits.append((what, timeout))
        self.clock.time += 1

    def connect_tcp(self, host: str, port: int, timeout: float | None = None) -> Wire:
        self._record(f"connect {host}:{port}", timeout)
        return self

    def connect_unix_socket(self, path: str, timeout: float | None = None) -> Wire:
        self._record(f"connect {path}", timeout)
        return self

    def start_tls(self, context: object, timeout: float | None = None) -> Wire:
        self._record(f"tls {context}", timeout)
        return self

    def sleep(self, seconds: float) -> None:
        self._record("sleep", seconds)

    def read(self, most: int, timeout: float | None = None) -> bytes:
        self._record("read", timeout)
        return b"x" * most

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._record("write", timeout)
        self.written.append(buffer)

    def close(self) -> str:
        return "closed"

    def get_extra_info(self, info: str) -> str:
        return f"info of {info}"

    aclose = close


@pytest.fixture
def clock() -> Virtual:
    return Virtual()


def limited(clock: Virtual, seconds: float) -> Any:
    return SOCKET_DEADLINE.set((clock.now() + seconds, clock.now))


def opened(clock: Virtual) -> tuple[Wire, Any]:
    wire = Wire(clock)
    return wire, LimitedBackend(wire, Library()).connect_tcp("there", 80, timeout=9)


def test_without_a_deadline_the_timeouts_are_unchanged(clock: Virtual) -> None:
    wire, stream = opened(clock)
    assert stream.read(3, 5) == b"xxx"
    stream.write(b"y" * WRITE_SIZE * 3, 7)
    stream.read(3)
    assert wire.waits == [("connect there:80", 9), ("read", 5), ("write", 7), ("read", None)]
    assert wire.written == [b"y" * WRITE_SIZE * 3]
    assert stream.get_extra_info("socket") == "info of socket"
    assert stream.close() == "closed"


@pytest.mark.parametrize(
    ("own", "expected"), [(None, [4, 3, 2]), (3, [3, 3, 2]), (1, [1, 1, 1]), (99, [4, 3, 2])]
)
def test_each_wait_is_limited_to_the_time_left(
    clock: Virtual, own: float | None, expected: list[float]
) -> None:
    wire, stream = opened(clock)
    before = limited(clock, 4)
    try:
        for _ in expected:
            stream.read(1, own)
    finally:
        SOCKET_DEADLINE.reset(before)
    assert [wait for _, wait in wire.waits[1:]] == expected


def test_a_large_write_is_split(clock: Virtual) -> None:
    """A server that reads slowly accepts each part within the timeout; the whole must end in time."""
    wire, stream = opened(clock)
    before = limited(clock, 9)
    try:
        stream.write(b"a" * WRITE_SIZE + b"b" * WRITE_SIZE + b"c", 8)
    finally:
        SOCKET_DEADLINE.reset(before)
    assert wire.waits[1:] == [("write", 8), ("write", 8), ("write", 7)]
    assert wire.written == [b"a" * WRITE_SIZE, b"b" * WRITE_SIZE, b"c"]


def test_after_the_deadline_every_wait_raises(clock: Virtual) -> None:
    wire, stream = opened(clock)
    before = limited(clock, 1)
    try:
        stream.read(1, 5)
        for wait, what in ((stream.read, 1), (stream.write, b"x"), (stream.start_tls, "context")):
            with pytest.raises(Late, match="the time of the call was up"):
                wait(what, timeout=5)
    finally:
        SOCKET_DEADLINE.reset(before)
    assert [wait for _, wait in wire.waits[1:]] == [1]


def test_a_tls_connection_is_limited_too(clock: Virtual) -> None:
    wire, stream = opened(clock)
    before = limited(clock, 4)
    try:
        secure = stream.start_tls("context", timeout=9)
        secure.read(1, 9)
    finally:
        SOCKET_DEADLINE.reset(before)
    assert wire.waits[1:] == [("tls context", 4), ("read", 3)]


def test_after_the_attempt_a_shortened_timeout_is_restored(clock: Virtual) -> None:
    """After the first byte the client's own timeouts apply."""
    wire, stream = opened(clock)
    for own in (None, 60.0):
        stream.read(1, ShortenedTimeout(own, 2))
        stream.write(b"x", ShortenedTimeout(ShortenedTimeout(own, 5), 2))
    assert [wait for _, wait in wire.waits[1:]] == [None, None, 60.0, 60.0]


def test_unix_sockets_are_limited_and_sleep_is_passed_on(clock: Virtual) -> None:
    wire = Wire(clock)
    backend = LimitedBackend(wire, Library())
    assert backend.connect_unix_socket("/socket", timeout=2).read(1, 3) == b"x"
    backend.sleep(4)
    assert wire.waits == [("connect /socket", 2), ("read", 3), ("sleep", 4)]


# -------------------------------------------------------------------------------- sockets


SocketUse: TypeAlias = Callable[[Any, Any], object]

SOCKET_USES: dict[str, SocketUse] = {
    "read from a silent peer": lambda stream, _: stream.read(9, 0.001),
    "read from a closed peer": lambda stream, peer: (peer.close(), stream.read(9, 60))[1],
    "read after a reset": lambda stream, peer: (
        stream.write(b"unread", 60),
        peer.close(),
        stream.read(9, 60),
    ),
    "read from a closed socket": lambda stream, _: (stream.close(), stream.read(9, 60)),
    "write to a peer that does not read": lambda stream, _: stream.write(bytes(9_000_000), 0.01),
    "write to a closed peer": lambda stream, peer: (peer.close(), stream.write(b"x", 60)),
    "write nothing": lambda stream, peer: (peer.close(), stream.write(b"", 60)),
    "read received bytes": lambda stream, peer: (peer.sendall(b"abc"), stream.read(2, 60))[1],
    "read without a timeout": lambda stream, peer: (peer.sendall(b"abc"), stream.read(9))[1],
}


@pytest.mark.parametrize("use", SOCKET_USES)
@pytest.mark.parametrize("library", [httpcore, httpcore2], ids=["httpcore", "httpcore2"])
def test_without_a_deadline_a_stream_behaves_like_the_librarys_own(library: Any, use: str) -> None:
    """It returns the same, or raises the same error with the same cause."""
    found: list[object] = []
    for ours in (False, True):
        mine, peer = socket.socketpair()
        with mine, peer:
            own = sys.modules[f"{library.__name__}._backends.sync"].SyncStream(mine)
            stream = limit_stream(own, library) if ours else own
            assert type(stream) is (LimitedStream if ours else type(own))
            try:
                found.append(SOCKET_USES[use](stream, peer))
            except Exception as error:
                found.append(f"{error!r} from {error.__cause__!r}")
    assert found[0] == found[1]
    assert found[0] or use == "read from a closed peer"


def test_a_large_write_arrives_whole() -> None:
    mine, peer = socket.socketpair()
    with mine, peer, ThreadPoolExecutor() as threads:
        stream = limit_stream(sys.modules["httpcore2._backends.sync"].SyncStream(mine), httpcore2)
        arrived = threads.submit(peer.makefile("rb").read)
        stream.write(pattern(3_000_000), 60)
        stream.close()
        assert arrived.result() == pattern(3_000_000)


class UserPool(httpcore2.ConnectionPool):
    """A user-defined subclass."""


def test_a_user_defined_pool_is_limited(clock: Virtual) -> None:
    pool: Any = UserPool(network_backend=cast("Any", Wire(clock)))
    transport = httpx2.HTTPTransport()
    transport._pool = pool
    limit_sockets(transport)
    stream = pool._network_backend.connect_tcp("there", 80)
    before = limited(clock, 0)
    try:
        with pytest.raises(httpcore2.ReadTimeout, match="the time of the call was up"):
            stream.read(1, 5)
    finally:
        SOCKET_DEADLINE.reset(before)


def test_a_pool_of_another_library_is_left_alone() -> None:
    class Pool:
        _network_backend = "its own"

    transport: Any = httpx2.HTTPTransport()
    transport._pool = Pool()
    limit_sockets(transport)
    assert transport._pool._network_backend == "its own"


# ----------------------------------------------------------------------------- transports


@TRANSPORTS
def test_a_transport_is_limited_once(library: Any) -> None:
    transport = library.HTTPTransport()
    limit_sockets(transport)
    backend = transport._pool._network_backend
    limit_sockets(transport)
    assert transport._pool._network_backend is backend
    assert isinstance(backend, LimitedBackend)


@TRANSPORTS
def test_a_transport_without_a_pool_is_left_alone(library: Any) -> None:
    transport = library.MockTransport(always(library.Response(200)))
    before: dict[str, Any] = {**vars(transport)}
    limit_sockets(transport)
    reject_retries(transport)
    assert vars(transport) == before


@TRANSPORTS
def test_a_transport_that_retries_by_itself_is_refused(library: Any) -> None:
    reject_retries(library.HTTPTransport())
    with pytest.raises(ValueError, match="wrapped retries by itself"):
        reject_retries(library.HTTPTransport(retries=2))
