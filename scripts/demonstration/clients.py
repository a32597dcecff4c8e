"""One request to the service, blocking and async, with nothing but the standard library.

Neither knows anything of retries.
"""

from __future__ import annotations

import asyncio
import http.client
import io
from email.message import Message


class UnavailableError(Exception):
    """The service answered 503 and asked for ``retry_after`` seconds of peace."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"503 Service Unavailable, Retry-After: {retry_after:g}")
        self.retry_after = retry_after


def get(port: int, path: str) -> bytes:
    """Ask once."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return _body(response.status, response.headers, response.read())
    finally:
        connection.close()


async def get_async(port: int, path: str) -> bytes:
    """Ask once, over asyncio's streams."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
    finally:
        writer.close()
    first, _, rest = head.partition(b"\r\n")
    return _body(int(first.split()[1]), http.client.parse_headers(io.BytesIO(rest)), body)


def _body(status: int, headers: Message, body: bytes) -> bytes:
    if status == http.client.SERVICE_UNAVAILABLE:
        raise UnavailableError(float(headers["Retry-After"]))
    return body
