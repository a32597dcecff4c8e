"""The classes of httpx, or of httpx2: the two differ in their name, and in nothing that matters here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

from anyio import CancelScope

from redouble.http._client import PREFETCH_LIMIT, timeout_types
from redouble.http._exchange import Exchange
from redouble.http._httpx_response import AsyncRestartableBody, PrefetchedBody, RestartableBody
from redouble.http._request_body import OneShot, Resendable, classify_body, classify_parts

__all__ = ["HttpxLibrary"]


def content_length(headers: Any) -> int:
    """Tell how long a body is said to be, or 0."""
    length: str = headers.get("content-length", "")
    return int(length) if length.isdecimal() and len(length) < 20 else 0


class HttpxLibrary:
    """The classes of one of the two libraries, and ours made of them."""

    def __init__(self, library: Any, module: str) -> None:
        self.name: str = library.__name__
        self.module = library
        self.ByteStream = library.ByteStream
        self.HTTPStatusError = library.HTTPStatusError
        self._streams = streams = (library.SyncByteStream, library.AsyncByteStream)
        self.timeout_types = timeout_types(library.TimeoutException, module)
        here = {"__module__": module, "module": library, "timeout_types": self.timeout_types}
        self.RestartableBody = type("RestartableBody", (RestartableBody, streams[0]), here)
        self.AsyncRestartableBody = type("AsyncRestartableBody", (AsyncRestartableBody, streams[1]), here)
        self.PrefetchedBody = type("PrefetchedBody", (PrefetchedBody, *streams), {"__module__": module})

    def replace_body(
        self, response: Any, held: list[bytes], rest: Any, error: Exception | None, *, whole: bool
    ) -> None:
        """Put what was read of a body in its place."""
        if not whole or error is not None:
            response.stream = self.PrefetchedBody(held, rest, response.stream, error)
            return
        response.stream = self.ByteStream(b"".join(held))
        with suppress(Exception):  # it cannot be decoded, which is for its reader to find out
            response.read()  # so that rules may look at it

    def prefetch(self, exchange: Exchange, response: Any) -> None:
        """Read what a failure says, if it is little, so that its connection is free while we wait."""
        stream = response.stream
        if content_length(response.headers) > PREFETCH_LIMIT:
            exchange.unread = response
            return
        pieces: Iterator[bytes] = iter(stream)
        held: list[bytes] = []
        error, size, interrupted = None, 0, True
        try:
            for piece in pieces:
                held.append(piece)
                size += len(piece)
                if size > PREFETCH_LIMIT:
                    exchange.unread = response
                    break
            interrupted = False
        except Exception as broken:
            error, interrupted = broken, False
        finally:
            if interrupted:
                self.discard(response)
        if exchange.unread is None:
            stream.close()
        self.replace_body(response, held, pieces, error, whole=exchange.unread is None)

    async def aprefetch(self, exchange: Exchange, response: Any) -> None:
        """Read what a failure says, if it is little, so that its connection is free while we wait."""
        stream = response.stream
        if content_length(response.headers) > PREFETCH_LIMIT:
            exchange.unread = response
            return
        pieces: AsyncIterator[bytes] = aiter(stream)
        held: list[bytes] = []
        error, size, interrupted = None, 0, True
        try:
            async for piece in pieces:
                held.append(piece)
                size += len(piece)
                if size > PREFETCH_LIMIT:
                    exchange.unread = response
                    break
            interrupted = False
        except Exception as broken:
            error, interrupted = broken, False
        finally:
            if interrupted:
                await self.adiscard(response)
        if exchange.unread is None:
            await stream.aclose()
        self.replace_body(response, held, pieces, error, whole=exchange.unread is None)

    def read_all(self, response: Any) -> None:
        """Read a body, so that rules may look at it."""
        held = list(response.stream)
        response.stream.close()
        self.replace_body(response, held, None, None, whole=True)

    async def aread_all(self, response: Any) -> None:
        """Read a body, so that rules may look at it."""
        held = [piece async for piece in response.stream]
        await response.stream.aclose()
        self.replace_body(response, held, None, None, whole=True)

    def discard(self, response: Any) -> None:
        """Close an answer of which nobody will hear."""
        response.close()

    async def adiscard(self, response: Any) -> None:
        """Close an answer of which nobody will hear, also while we are being cancelled."""
        with CancelScope(shield=True):
            await response.aclose()

    def reset(self, response: Any) -> None:
        """Let an answer that rules have looked at be read as ever."""
        response.__dict__.pop("_content", None)
        response.__dict__.pop("_decoder", None)
        response.is_stream_consumed = response.is_closed = False

    def classify_stream(self, stream: Any) -> Resendable:
        """Find out whether the body of a request can be sent again; the libraries say little about it."""
        if str(stream.__class__.__module__).partition(".")[0] == self.name:
            if hasattr(stream, "fields"):  # multipart
                return classify_parts(getattr(field, "file", None) for field in stream.fields)
            inner: Any = getattr(stream, "_stream", None)
            found = OneShot(inner) if isinstance(inner, self._streams) else classify_body(inner)
            return OneShotStream(stream, inner) if isinstance(found, OneShot) else found
        return OneShot(stream)  # a class of the caller's: nobody knows what iterating it twice would give


class OneShotStream(OneShot):
    """An iterator, of which the library knows whether it was begun."""

    def __init__(self, stream: Any, source: object) -> None:
        super().__init__(source)
        self._stream = stream

    def rewind(self) -> bool:
        return getattr(self._stream, "_is_stream_consumed", True) is False
