"""The classes of httpx or httpx2, and ours derived from them. The two libraries differ only in their name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

from anyio import CancelScope

from redouble.http._client import PREFETCH_LIMIT, timeout_types
from redouble.http._exchange import Exchange
from redouble.http._httpx_response_body import AsyncRestartableBody, PrefetchedBody, RestartableBody
from redouble.http._request_body import OneShot, Resendable, classify_body, classify_parts

__all__ = ["HttpxLibrary"]


def content_length(headers: Any) -> int:
    """Return the Content-Length header as a number, or 0."""
    length: str = headers.get("content-length", "")
    return int(length) if length.isdecimal() and len(length) < 20 else 0


class HttpxLibrary:
    """One of the two libraries: its classes, our subclasses of them, and operations on its responses."""

    def __init__(self, library: Any, module: str) -> None:
        self.name: str = library.__name__
        self.module = library
        self.ByteStream = library.ByteStream
        self.HTTPStatusError = library.HTTPStatusError
        self._streams = streams = (library.SyncByteStream, library.AsyncByteStream)
        self.timeout_types = timeout_types(library.TimeoutException, module)
        members = {"__module__": module, "module": library, "timeout_types": self.timeout_types}
        self.RestartableBody = type("RestartableBody", (RestartableBody, streams[0]), members)
        self.AsyncRestartableBody = type("AsyncRestartableBody", (AsyncRestartableBody, streams[1]), members)
        self.PrefetchedBody = type("PrefetchedBody", (PrefetchedBody, *streams), {"__module__": module})

    def replace_body(
        self, response: Any, chunks: list[bytes], remaining: Any, error: Exception | None, *, whole: bool
    ) -> None:
        """Replace a body by the chunks that were read of it, followed by the rest or the error."""
        if not whole or error is not None:
            response.stream = self.PrefetchedBody(chunks, remaining, response.stream, error)
            return
        response.stream = self.ByteStream(b"".join(chunks))
        with suppress(Exception):  # undecodable content: raised when the caller reads it
            response.read()  # so that rules can read the content

    def prefetch(self, exchange: Exchange, response: Any) -> None:
        """Read the body of a failed response if it is small, to free its connection during the backoff."""
        stream = response.stream
        if content_length(response.headers) > PREFETCH_LIMIT:
            exchange.unread = response
            return
        remaining: Iterator[bytes] = iter(stream)
        chunks: list[bytes] = []
        error, size, interrupted = None, 0, True
        try:
            for chunk in remaining:
                chunks.append(chunk)
                size += len(chunk)
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
        self.replace_body(response, chunks, remaining, error, whole=exchange.unread is None)

    async def aprefetch(self, exchange: Exchange, response: Any) -> None:
        """Read the body of a failed response if it is small, to free its connection during the backoff."""
        stream = response.stream
        if content_length(response.headers) > PREFETCH_LIMIT:
            exchange.unread = response
            return
        remaining: AsyncIterator[bytes] = aiter(stream)
        chunks: list[bytes] = []
        error, size, interrupted = None, 0, True
        try:
            async for chunk in remaining:
                chunks.append(chunk)
                size += len(chunk)
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
        self.replace_body(response, chunks, remaining, error, whole=exchange.unread is None)

    def read_all(self, response: Any) -> None:
        """Read a body fully, so that rules can read the content."""
        chunks = list(response.stream)
        response.stream.close()
        self.replace_body(response, chunks, None, None, whole=True)

    async def aread_all(self, response: Any) -> None:
        """Read a body fully, so that rules can read the content."""
        chunks = [chunk async for chunk in response.stream]
        await response.stream.aclose()
        self.replace_body(response, chunks, None, None, whole=True)

    def discard(self, response: Any) -> None:
        """Close a response that is not returned."""
        response.close()

    async def adiscard(self, response: Any) -> None:
        """Close a response that is not returned, even during cancellation."""
        with CancelScope(shield=True):
            await response.aclose()

    def reset(self, response: Any) -> None:
        """Reset a response that rules have read, so that the caller can read or stream it."""
        response.__dict__.pop("_content", None)
        response.__dict__.pop("_decoder", None)
        response.is_stream_consumed = response.is_closed = False

    def classify_stream(self, stream: Any) -> Resendable:
        """Return how the body of a request can be resent; read from private attributes of the library."""
        if str(stream.__class__.__module__).partition(".")[0] == self.name:
            if hasattr(stream, "fields"):  # multipart
                return classify_parts(getattr(field, "file", None) for field in stream.fields)
            inner: Any = getattr(stream, "_stream", None)
            body = OneShot(inner) if isinstance(inner, self._streams) else classify_body(inner)
            return OneShotStream(stream, inner) if isinstance(body, OneShot) else body
        return OneShot(stream)  # the caller's own class: a second iteration may yield anything


class OneShotStream(OneShot):
    """An iterator; the library records whether it was started."""

    def __init__(self, stream: Any, source: object) -> None:
        super().__init__(source)
        self._stream = stream

    def rewind(self) -> bool:
        return getattr(self._stream, "_is_stream_consumed", True) is False
