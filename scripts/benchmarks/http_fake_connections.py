"""Fake connections for each HTTP client: every write is ignored, every read returns the response.

All code of a client runs except the system calls, without the noise of a network.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import aiohttp
from aiohttp.client_proto import ResponseHandler

from benchmarks.http_server import FINE


class Stream:
    """A connection of httpcore, for blocking code."""

    def read(self, *_: object, **__: object) -> bytes:
        """Return the response."""
        return FINE

    def write(self, *_: object, **__: object) -> None:
        """Send a request."""

    def close(self) -> None:
        """Close the connection."""

    def get_extra_info(self, _: str) -> None:
        """Return None."""


class AsyncStream:
    """A connection of httpcore, for async code."""

    async def read(self, *_: object, **__: object) -> bytes:
        """Return the response."""
        return FINE

    async def write(self, *_: object, **__: object) -> None:
        """Send a request."""

    async def aclose(self) -> None:
        """Close the connection."""

    def get_extra_info(self, _: str) -> None:
        """Return None."""


class Backend:
    """The network backend of httpcore for blocking code."""

    def connect_tcp(self, *_: object, **__: object) -> Stream:
        """Return a new connection."""
        return Stream()


class AsyncBackend:
    """The network backend of httpcore for async code."""

    async def connect_tcp(self, *_: object, **__: object) -> AsyncStream:
        """Return a new connection."""
        return AsyncStream()


class Socket(socket.socket):
    """A socket for urllib3."""

    def sendall(self, data: object, flags: int = 0, /) -> None:
        """Send a request."""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ARG002
        """Return the response."""
        buffer[: len(FINE)] = FINE
        return len(FINE)


def sockets() -> AbstractContextManager[object]:
    """Patch urllib3 to use such sockets."""
    ends: list[socket.socket] = []

    def connected(*_: object, **__: object) -> Socket:
        here, there = socket.socketpair()
        ends.append(there)  # an unreferenced end would close the connection
        return Socket(fileno=here.detach())

    return patch("urllib3.util.connection.create_connection", connected)


class Connector(aiohttp.BaseConnector):
    """The connector of aiohttp."""

    async def _create_connection(self, req: object, traces: object, timeout: object) -> ResponseHandler:  # noqa: ARG002, ASYNC109
        protocol = ResponseHandler(self._loop)
        protocol.connection_made(Transport(protocol, self._loop))
        return protocol


class Transport(asyncio.Transport):
    """A connection of aiohttp."""

    def __init__(self, protocol: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._protocol, self._loop = protocol, loop

    def write(self, data: object) -> None:  # noqa: ARG002
        """Send a request."""
        self._loop.call_soon(self._protocol.data_received, FINE)

    def is_closing(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Close the connection."""
        self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close
