"""Responses of requests: restartable bodies and prefetched failures."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any, cast
from weakref import ref

import requests
import urllib3

from redouble._clients.socket_deadline import ShortenedTimeout
from redouble.http._exchange import Exchange, SuccessRecord
from redouble.http._response_body import OUT_OF_TIME, RestartableBody


class RestartableResponse(requests.Response):
    """A response that restarts the call if its body fails before any part is delivered."""

    _redouble: ResponseBody | None = None

    @property
    def content(self) -> bytes:
        """The whole body."""
        body = self._redouble
        if body is None or body.begun:
            return super().content
        body.begun = True
        return cast("bytes", body.read_whole())

    def iter_content(  # pyright: ignore[reportIncompatibleMethodOverride]  # narrower than the stubs' overloads
        self, chunk_size: int | None = 1, decode_unicode: bool = False
    ) -> Iterator[Any]:
        """Iterate over the body."""
        body = self._redouble
        if body is None or body.begun:
            return self._chunks(chunk_size, decode_unicode)
        body.begun, body.chunking = True, (chunk_size, decode_unicode)
        return self._keep_for(body.chunks())

    def close(self) -> None:
        """Return the connection, and record the end of the body."""
        body = self._redouble
        try:
            super().close()
        finally:
            if body is not None:  # pragma: no branch  requests may close a response while it is made
                body.closed = True
                if body._call.pending:
                    body.end(None)

    def _chunks(self, chunk_size: int | None, decode_unicode: bool) -> Iterator[Any]:
        chunks: Iterator[Any] = cast("Any", super()).iter_content(chunk_size, decode_unicode)
        return chunks

    def _keep_for(self, chunks: Iterator[Any]) -> Iterator[Any]:
        """Iterate, and keep this response alive: its body has only a weak reference to it."""
        yield from chunks

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled as the library's own class.
        return object.__new__, (requests.Response,), self.__getstate__()


class ResponseBody(RestartableBody):
    """The body of a response."""

    begun = False  # True once it is read
    chunking: tuple[int | None, bool]

    def __init__(self, response: RestartableResponse, call: Exchange | SuccessRecord) -> None:
        self._call = call
        self.response = ref(response)

    def start(self) -> Iterator[Any]:
        chunks: Iterator[Any] = self.response()._chunks(*self.chunking)
        return chunks

    def read_once(self) -> Any:
        return self.response().content

    def close_source(self) -> None:
        requests.Response.close(self.response())

    def replace(self, replacement: Any) -> None:
        response = self.response()
        response.raw, response.headers = replacement.raw, replacement.headers
        response._content_consumed = False

    def timeout_error(self) -> Exception:
        return requests.exceptions.ReadTimeout(OUT_OF_TIME)


def shorten_timeouts(timeout: Any, seconds: float) -> Any:
    """Shorten the connect and read timeouts, in any of the forms that requests accepts."""
    if isinstance(timeout, urllib3.Timeout):
        timeout = timeout.clone()
        timeout.start_connect()  # otherwise read_timeout raises
        timeout = (timeout.connect_timeout, timeout.read_timeout)
    both: Any = cast("Any", timeout) if isinstance(timeout, tuple) else (timeout, timeout)
    return tuple(ShortenedTimeout(own if isinstance(own, int | float) else None, seconds) for own in both)


class PrefetchedFile(BytesIO):
    """A body whose first chunks were already read; the rest follows, or the error that ended it."""

    def __init__(
        self, received: bytes, remaining: Iterator[bytes], source: Any, error: Exception | None
    ) -> None:
        super().__init__(received)
        self.remaining, self.source, self.error = remaining, source, error

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
        self.source.close()
        self.source.release_conn()
