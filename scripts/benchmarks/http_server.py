"""A minimal HTTP server in its own process.

It answers every request with 200 and a few bytes on a persistent connection. Below `/some/` three of ten
responses are a 503, always the same ones: determined by the last part of the path and the number of earlier
requests for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from hashlib import blake2b
from typing import ClassVar

BODY = b'{"ok": true}'
HEAD = b"Date: Mon, 16 Nov 2026 08:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
FINE = b"HTTP/1.1 200 OK\r\n" + HEAD % len(BODY) + BODY
BUSY = b"HTTP/1.1 503 Service Unavailable\r\n" + HEAD % len(BODY) + BODY


def fails(name: str, times: int) -> bool:
    """Return True if the response to the request after ``times`` earlier ones is a failure."""
    return blake2b(f"{name} {times}".encode(), digest_size=1).digest()[0] % 10 < 3


class ServerProtocol(asyncio.Protocol):
    """One connection. Each request arrives in one piece, one after the other."""

    asked: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  for the types
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Send the response."""
        path = data.split(b" ", 2)[1]
        if path.startswith(b"/some/") and self._fails(path.decode()):
            self._transport.write(BUSY)
        else:
            self._transport.write(FINE)

    def _fails(self, path: str) -> bool:
        times = self.asked[path]
        self.asked[path] += 1
        if fails(path.rpartition("/")[2], times):
            return True
        del self.asked[path]  # the next request for it starts from zero
        return False


async def serve() -> None:
    """Serve until the other side of standard input is closed."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(ServerProtocol, "127.0.0.1", 0, backlog=1000)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
