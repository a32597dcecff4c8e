"""Every way of reading the body of a response, for all clients, behind one interface.

A `Reader` makes one request and reads its response. The pieces are recorded as they arrive, so they are known
even if reading ends in an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from redouble import Layer
from tests.support.http.calls import UNSET
from tests.support.http.clients import CLIENTS, Client, HttpResult, client, is_async

__all__ = ["ITERATING", "READERS", "WHOLES", "Reader", "reader"]

PIECE = 3  # bytes, for readers that need a chunk size
EXACT_SIZE = 10  # bytes, for readers of an exact number

ReadBody: TypeAlias = "Callable[[Any], Iterator[bytes]]"
AsyncReadBody: TypeAlias = "Callable[[Any], AsyncIterator[bytes]]"


@dataclass(frozen=True)
class Reader:
    """One way in which one client reads a body."""

    client: str
    way: str

    @property
    def whole(self) -> bool:
        """True if the whole body is read before any of it is delivered."""
        return self.way in WHOLE

    def __str__(self) -> str:
        return f"{self.client} {self.way}"

    def __call__(
        self, url: str, policy: Layer | None = None, method: str = "GET", **options: Any
    ) -> HttpResult:
        """Make a request with a new client, and read the response."""
        with client(self.client, policy) as http:
            return self.read_with(http, url, method, **options)

    def read_with(
        self, http: Client, url: str, method: str = "GET", timeout: float = 30, **options: Any
    ) -> HttpResult:
        """Make a request with a client, and read the response."""
        result = HttpResult()
        arguments = http._arguments(options.pop("body", None), timeout, UNSET, False) | options
        http.run(self._aread if is_async(self.client) else self._read, http, result, (method, url), arguments)
        return result

    def _read(
        self, http: Client, result: HttpResult, request: tuple[str, str], arguments: dict[str, Any]
    ) -> None:
        ways = REQUESTS if self.client == "requests" else HTTPX
        try:
            with http._open(*request, self.way != "get", arguments) as response:
                result._record(response)
                for piece in ways[self.way](response):
                    result.pieces.append(piece)
                result.headers.clear()
                result._record(response)
        except Exception as error:
            result.error = error

    async def _aread(
        self, http: Client, result: HttpResult, request: tuple[str, str], arguments: dict[str, Any]
    ) -> None:
        ways = AIOHTTP if self.client == "aiohttp" else AHTTPX
        try:
            async with await http._open(*request, self.way != "get", arguments) as response:
                result._record(response)
                async for piece in ways[self.way](response):
                    result.pieces.append(piece)
                result.headers.clear()
                result._record(response)
        except Exception as error:
            result.error = error


# ------------------------------------------------------------------------------- httpx

HTTPX: dict[str, ReadBody] = {
    "get": lambda response: iter([response.content]),
    "read": lambda response: iter([response.read()]),
    "iter_bytes": lambda response: response.iter_bytes(),
    "iter_bytes(3)": lambda response: response.iter_bytes(PIECE),
    "iter_raw": lambda response: response.iter_raw(),
    "iter_text": lambda response: (text.encode() for text in response.iter_text()),
    "iter_lines": lambda response: (f"{line}\n".encode() for line in response.iter_lines()),
}


async def _one(waiting: Any) -> AsyncIterator[bytes]:
    yield await waiting


async def _content(response: Any) -> AsyncIterator[bytes]:
    yield response.content


async def _encoded(texts: AsyncIterator[str], end: str = "") -> AsyncIterator[bytes]:
    async for text in texts:
        yield (text + end).encode()


AHTTPX: dict[str, AsyncReadBody] = {
    "get": _content,
    "read": lambda response: _one(response.aread()),
    "iter_bytes": lambda response: response.aiter_bytes(),
    "iter_bytes(3)": lambda response: response.aiter_bytes(PIECE),
    "iter_raw": lambda response: response.aiter_raw(),
    "iter_text": lambda response: _encoded(response.aiter_text()),
    "iter_lines": lambda response: _encoded(response.aiter_lines(), "\n"),
}

# ----------------------------------------------------------------- requests and aiohttp

REQUESTS: dict[str, ReadBody] = {
    "get": lambda response: iter([response.content]),
    "content": lambda response: iter([response.content]),
    "iter": iter,
    "iter_content(3)": lambda response: response.iter_content(PIECE),
    "iter_lines": lambda response: (line + b"\n" for line in response.iter_lines()),
}


async def _until_empty(read: Callable[[], Any]) -> AsyncIterator[bytes]:
    while piece := await read():
        yield piece


async def _chunks(response: Any) -> AsyncIterator[bytes]:
    async for piece, _ in response.content.iter_chunks():
        yield piece


async def _text(response: Any) -> AsyncIterator[bytes]:
    yield (await response.text()).encode()


AIOHTTP: dict[str, AsyncReadBody] = {
    "read": lambda response: _one(response.read()),
    "text": _text,
    "content.read": lambda response: _one(response.content.read()),
    "content.read(3)": lambda response: _until_empty(lambda: response.content.read(PIECE)),
    "readany": lambda response: _until_empty(response.content.readany),
    "readexactly": lambda response: _one(response.content.readexactly(EXACT_SIZE)),
    "readline": lambda response: _until_empty(response.content.readline),
    "readuntil": lambda response: _until_empty(lambda: response.content.readuntil(b"}")),
    "lines": lambda response: aiter(response.content),
    "iter_any": lambda response: response.content.iter_any(),
    "iter_chunked": lambda response: response.content.iter_chunked(PIECE),
    "iter_chunks": _chunks,
}

# ------------------------------------------------------------------------------- all readers

WHOLE = ("get", "read", "content", "text", "content.read")
SOME = ("get", "read", "iter_bytes")  # for httpx, whose code equals that of httpx2


def _ways(name: str) -> list[str]:
    ways = {"requests": [*REQUESTS], "aiohttp": [*AIOHTTP], "httpx2": [*HTTPX], "httpx": [*SOME]}
    return ways[name.partition("-")[0]]


READERS = [Reader(name, way) for name in CLIENTS for way in _ways(name)]
WHOLES = [reader for reader in READERS if reader.whole]
ITERATING = [reader for reader in READERS if not reader.whole]


def reader(name: str, *, whole: bool) -> Reader:
    """Return the simplest reader of a client."""
    if whole:
        return Reader(name, "read" if name == "aiohttp" else "get")
    return Reader(name, {"requests": "iter", "aiohttp": "iter_any"}.get(name, "iter_bytes"))
