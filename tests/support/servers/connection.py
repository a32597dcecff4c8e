"""One connection: reading requests, sending bytes, and the ends of a connection.

Every wait ends with `Disconnected` as soon as the client disconnects or the server stops.
"""

from __future__ import annotations

import re
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import NoReturn

_LINGER = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;|$)")


class Disconnected(Exception):
    """The client has disconnected, or the server stops."""


class Malformed(Exception):
    """The request cannot be parsed; the response has the reason."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Head:
    """The head of a request."""

    method: str
    target: str
    version: str
    raw: tuple[tuple[str, str], ...]

    @cached_property
    def headers(self) -> dict[str, str]:
        """All headers, with lower-case names; repeated ones are joined."""
        joined = dict[str, str]()
        for name, value in self.raw:
            low = name.lower()
            joined[low] = f"{joined[low]}, {value}" if low in joined else value
        return joined

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @cached_property
    def length(self) -> int:
        """The length of the body, if it is not chunked."""
        text = self.headers.get("content-length", "0")
        if not (text.isascii() and text.isdecimal()):
            raise Malformed(f"Content-Length: {text}")
        return int(text)

    @property
    def has_body(self) -> bool:
        return self.chunked or self.length > 0

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"

    @property
    def wants_close(self) -> bool:
        wish = self.headers.get("connection", "").lower()
        return "close" in wish or (self.version == "HTTP/1.0" and "keep-alive" not in wish)


class Connection:
    """One connection."""

    def __init__(self, sock: socket.socket, serial: int) -> None:
        self.serial = serial
        self._sock = sock
        self._buffer = bytearray()
        with suppress(OSError):  # the client may have disconnected
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def head(self) -> Head:
        """Read the head of a request."""
        first = b""
        while not first:  # blank lines before a request are ignored
            first = self._line()
        words = first.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Malformed(f"not a request: {first[:100]!r}")
        raw = list[tuple[str, str]]()
        while line := self._line():
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise Malformed(f"not a header: {line[:100]!r}")
            raw.append((name, value.strip()))
        return Head(words[0], words[1], words[2], tuple(raw))

    def body(self, head: Head, into: bytearray) -> None:
        """Read the body of a request; a part that has arrived is kept even if the rest does not arrive."""
        if head.expects_continue and head.has_body and not self._buffer:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not head.chunked:
            self._take(head.length, into)
            return
        while size := self._chunk_size():
            self._take(size, into)
            if self._line():
                raise Malformed("a chunk that is longer than it said")
        while self._line():
            pass  # trailers

    def send(self, data: bytes) -> None:
        """Send all data."""
        try:
            self._sock.sendall(data)
        except OSError:
            raise Disconnected from None

    def wait(self, seconds: float) -> None:
        """Wait for some seconds."""
        until = monotonic() + seconds
        try:
            while (left := until - monotonic()) > 0:
                self._sock.settimeout(left)
                self._more()
        except TimeoutError:
            pass
        finally:
            self._sock.settimeout(None)

    def silence(self) -> NoReturn:
        """Send nothing until the client disconnects."""
        while True:
            self._more()
            self._buffer.clear()

    def finish(self) -> NoReturn:
        """Send a FIN, and wait for that of the client: closing with unread bytes would send a reset."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            raise Disconnected from None
        self.silence()

    def reset(self) -> NoReturn:
        """Make the end of this connection a TCP reset."""
        with suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
        raise Disconnected

    def wake(self) -> None:
        """End all waits; called by other threads."""
        with suppress(OSError):  # the client may have disconnected
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _more(self) -> None:
        try:
            data = self._sock.recv(1 << 18)
        except TimeoutError:
            raise
        except OSError:
            raise Disconnected from None
        if not data:
            raise Disconnected
        self._buffer += data

    def _line(self) -> bytes:
        seen = 0
        while (end := self._buffer.find(b"\r\n", seen)) < 0:
            seen = max(0, len(self._buffer) - 1)
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _take(self, size: int, into: bytearray) -> None:
        while size:
            if not self._buffer:
                self._more()
            part = self._buffer[:size]
            del self._buffer[: len(part)]
            into += part
            size -= len(part)

    def _chunk_size(self) -> int:
        line = self._line()
        if (size := _SIZE.match(line)) is None:
            raise Malformed(f"not the size of a chunk: {line[:100]!r}")
        return int(size[1], 16)
