"""Answers of requests: their bodies begin anew while the caller has had none, and failures are kept."""

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
    """An answer whose body begins anew if it breaks before the caller has had any of it."""

    _exchange: Exchange | None = None
    _buffered = False  # whether all of it is read before any of it is handed out

    @property
    def content(self) -> bytes:
        """All of the body."""
        self._buffered = True
        return super().content

    def iter_content(  # pyright: ignore[reportIncompatibleMethodOverride]  # its overloads are for people
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
        found: Iterator[Any] = cast("Any", super()).iter_content(chunk_size, decode_unicode)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return empty_instance, (requests.Response,), self.__getstate__()  # the library's own again

    def _restart(self, exchange: Exchange, error: Exception) -> None:
        self.close()
        try:
            replacement = exchange.restart(error)
        except Exception as failed:
            answer = exchange.final_response(failed, TIMEOUT_TYPES)
            if answer is None:
                raise
            answer.close()
            raise exchange.mismatch(error) from None
        if replacement.status_code != self.status_code:
            replacement.close()
            raise exchange.mismatch(error)
        self.raw, self.headers, self._content_consumed = replacement.raw, replacement.headers, False
        exchange.finish(self)


def shorten_timeouts(timeout: Any, rest: float) -> Any:
    """Shorten the timeouts for connecting and reading, in any of the ways requests takes them."""
    if rest == inf:
        return timeout
    if isinstance(timeout, urllib3.Timeout):
        timeout = timeout.clone()
        timeout.start_connect()  # or it does not tell what it leaves for reading
        timeout = (timeout.connect_timeout, timeout.read_timeout)
    both: Any = cast("Any", timeout) if isinstance(timeout, tuple) else (timeout, timeout)
    return tuple(ShortenedTimeout(own if isinstance(own, int | float) else None, rest) for own in both)


def prefetch(exchange: Exchange, response: requests.Response) -> None:
    """Read what a failure says, as the session would, or if it is little: then its connection is free."""
    raw: Any = response.raw
    if not isinstance(raw, urllib3.HTTPResponse):
        return  # of an adapter that keeps its answers elsewhere
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
    except Exception as error:  # it is told to whoever reads it: the status counts all the same
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
    """A body of which some was read before: the rest follows, or the error it ended in."""

    error: Exception | None = None
    remaining: Iterator[bytes] = iter(())
    source: Any = None

    def read(self, size: int | None = -1, /) -> bytes:
        """Read some of it."""
        found = super().read(size)
        if size is None or size < 0:
            found += b"".join(self.remaining)
        found = found or next(self.remaining, b"")
        if self.error is not None and (not found or size is None or size < 0):
            raise self.error
        return found

    def close(self) -> None:
        """Close it, and where it comes from."""
        super().close()
        if self.source is not None:
            self.source.close()
            self.source.release_conn()


def discard_unread(exchange: Exchange) -> None:
    response, exchange.unread = exchange.unread, None
    response.close()
