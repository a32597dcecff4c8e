"""Responses of requests: restartable bodies and prefetched failures."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from math import inf
from typing import Any, cast

import requests
import urllib3

from redouble._clients.socket_deadline import ShortenedTimeout, limited_waits
from redouble.http._client import PREFETCH_LIMIT, empty_instance, timeout_types
from redouble.http._exchange import Exchange

__all__ = ["TIMEOUT_TYPES", "RestartableResponse", "discard_unread", "prefetch", "shorten_timeouts"]


TIMEOUT_TYPES = timeout_types(requests.Timeout, "redouble.requests")


class RestartableResponse(requests.Response):
    """A response that restarts the call if its body fails before any part is delivered."""

    _exchange: Exchange | None = None
    _buffered = False  # True if the whole body is read before any chunk is yielded

    @property
    def content(self) -> bytes:
        """The whole body."""
        self._buffered = True
        return super().content

    def iter_content(  # pyright: ignore[reportIncompatibleMethodOverride]  # narrower than the stubs' overloads
        self, chunk_size: int | None = 1, decode_unicode: bool = False
    ) -> Iterator[Any]:
        """Iterate over the body."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return self._chunks(chunk_size, decode_unicode)
        return self._restartable_chunks(exchange, chunk_size, decode_unicode)

    def _restartable_chunks(
        self, exchange: Exchange, chunk_size: int | None, decode_unicode: bool
    ) -> Iterator[Any]:
        while True:
            chunks = self._chunks(chunk_size, decode_unicode)
            try:
                with limited_waits(exchange.now, exchange.seconds_left_to_read()):
                    received = list(chunks) if self._buffered else list(islice(chunks, 1))
            except Exception as error:
                self._restart(exchange, error)
            else:
                break
        yield from received
        try:
            yield from chunks
        except Exception as error:
            exchange.mark_delivered(error)
            raise

    def _chunks(self, chunk_size: int | None, decode_unicode: bool) -> Iterator[Any]:
        chunks: Iterator[Any] = cast("Any", super()).iter_content(chunk_size, decode_unicode)
        return chunks

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            empty_instance,
            (requests.Response,),
            self.__getstate__(),
        )  # unpickled as the library's own class

    def _restart(self, exchange: Exchange, error: Exception) -> None:
        self.close()
        try:
            replacement = exchange.restart(error)
        except Exception as failed:
            last = exchange.final_response(failed, TIMEOUT_TYPES)
            if last is None:
                raise
            last.close()
            raise exchange.mismatch(error) from None
        if replacement.status_code != self.status_code:
            replacement.close()
            raise exchange.mismatch(error)
        self.raw, self.headers, self._content_consumed = replacement.raw, replacement.headers, False
        exchange.finish(self)


def shorten_timeouts(timeout: Any, seconds: float) -> Any:
    """Shorten the connect and read timeouts, in any of the forms that requests accepts."""
    if seconds == inf:
        return timeout
    if isinstance(timeout, urllib3.Timeout):
        timeout = timeout.clone()
        timeout.start_connect()  # otherwise read_timeout raises
        timeout = (timeout.connect_timeout, timeout.read_timeout)
    both: Any = cast("Any", timeout) if isinstance(timeout, tuple) else (timeout, timeout)
    return tuple(ShortenedTimeout(own if isinstance(own, int | float) else None, seconds) for own in both)


def prefetch(exchange: Exchange, response: requests.Response) -> None:
    """Read the body of a failed response, to free its connection; a streamed body only if it is small."""
    raw: Any = response.raw
    if not isinstance(raw, urllib3.HTTPResponse):
        return  # made by an adapter without urllib3
    length = raw.headers.get("content-length", "")
    if exchange.how[0] and length.isdecimal() and (len(length) > 6 or int(length) > PREFETCH_LIMIT):
        exchange.unread = response
        return
    body, chunks = PrefetchedFile(), raw.stream(PREFETCH_LIMIT, decode_content=False)
    try:
        for chunk in chunks:
            body.write(chunk)
            if exchange.how[0] and body.tell() > PREFETCH_LIMIT:
                exchange.unread, body.remaining = response, chunks
                break
    except Exception as error:  # raised when the caller reads the body; the status decides
        body.error = error
    body.seek(0)
    if exchange.unread is None:
        raw.release_conn()
    body.source = raw
    response.raw = urllib3.HTTPResponse(
        body,
        headers=raw.headers,
        status=raw.status,
        version=raw.version,
        reason=raw.reason,
        preload_content=False,
        original_response=raw._original_response,
        request_method=exchange.request.method,
    )


class PrefetchedFile(BytesIO):
    """A body whose first chunks were already read; the rest follows, or the error that ended it."""

    error: Exception | None = None
    remaining: Iterator[bytes] = iter(())
    source: Any = None

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most ``size`` bytes, or all."""
        data = super().read(size)
        if size is None or size < 0:
            data += b"".join(self.remaining)
        data = data or next(self.remaining, b"")
        if self.error is not None and (not data or size is None or size < 0):
            raise self.error
        return data

    def close(self) -> None:
        """Close it and the response that it came from."""
        super().close()
        if self.source is not None:
            self.source.close()
            self.source.release_conn()


def discard_unread(exchange: Exchange) -> None:
    """Close the failed response whose body was not read."""
    response, exchange.unread = exchange.unread, None
    response.close()
