"""Responses and request bodies of aiohttp: restartable content, prefetched failures, payloads to resend.

`RestartableContent` replaces `ClientResponse.content`, through which every read of a response goes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from math import inf
from typing import Any
from weakref import ref

import aiohttp
from aiohttp.base_protocol import BaseProtocol

from redouble._runtime.backend import cancel_after
from redouble.http._exchange import Exchange, SuccessRecord
from redouble.http._request_body import Rewind, classify_body, classify_parts, nothing_to_rewind
from redouble.http._response_body import OUT_OF_TIME, BodyState


class RestartableContent(BodyState):
    """The content of a response; restarts the call if it fails before any part is delivered."""

    def __init__(self, call: Exchange | SuccessRecord, response: aiohttp.ClientResponse) -> None:
        self._call, self._content = call, response.content
        self.response = ref(response)
        self._replacement: aiohttp.ClientResponse | None = None
        self._timeout_error: Exception | None = None
        self._delivered = self._restarting = False
        self._await_arrival()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    def read(self, n: int = -1) -> Coroutine[Any, Any, bytes]:
        """Read all, or at most ``n`` bytes."""
        return self._read("read", n)

    def readany(self) -> Coroutine[Any, Any, bytes]:
        """Read what has arrived."""
        return self._read("readany")

    def readexactly(self, n: int) -> Coroutine[Any, Any, bytes]:
        """Read exactly ``n`` bytes."""
        return self._read("readexactly", n)

    def readline(self, **options: Any) -> Coroutine[Any, Any, bytes]:
        """Read a line."""
        return self._read("readline", **options)

    def readuntil(self, *args: Any, **options: Any) -> Coroutine[Any, Any, bytes]:
        """Read up to a separator."""
        return self._read("readuntil", *args, **options)

    def readchunk(self) -> Coroutine[Any, Any, tuple[bytes, bool]]:
        """Read one chunk as the server sent it."""
        return self._read("readchunk")

    # The iterators of the library call the methods above.
    __aiter__: Any = aiohttp.StreamReader.__aiter__
    iter_chunked: Any = aiohttp.StreamReader.iter_chunked
    iter_any: Any = aiohttp.StreamReader.iter_any
    iter_chunks: Any = aiohttp.StreamReader.iter_chunks

    def set_exception(self, *args: Any) -> None:
        """Record that the response was closed, and close its replacement."""
        if not self._restarting:
            self.closed = True
            if self._call.pending:
                error = sys.exception()  # a cancellation is no success, and every other error is the caller's
                self.end(None if isinstance(error, Exception) else error)
        self._content.set_exception(*args)
        if self._replacement is not None:
            self._replacement.close()

    def _await_arrival(self) -> None:
        """Record the end of the body when all of it has arrived, be it read or not."""
        if isinstance(self._call, Exchange) and self._call.pending:
            self._content.on_eof(partial(_end, ref(self)))

    async def _read(self, how: str, *args: Any, **options: Any) -> Any:
        while True:
            try:
                seconds = inf if self._delivered else self.seconds_left()
                reading = getattr(self._content, how)(*args, **options)
                data = await (reading if seconds == inf else self._read_within(seconds, reading))
            except Exception as error:
                intact = self._content.exception() is None and error is not self._timeout_error
                if intact or self.closed:
                    raise  # the body is intact: the caller misused it or closed it
                if self._delivered:
                    self.exchange.mark_delivered(error)
                    if self._replacement is not None:
                        self._replacement.close()  # the caller has no reference to it
                    raise
                await self._restart(error)
            else:
                if data and data != (b"", False):
                    self._delivered = True
                if self._call.pending and self._content.at_eof():
                    self.end(None)
                return data

    async def _read_within(self, seconds: float, reading: Awaitable[Any]) -> Any:
        with cancel_after(max(0.0, seconds)):
            return await reading
        self._timeout_error = self.timeout_error()
        raise self._timeout_error

    def timeout_error(self) -> Exception:
        return aiohttp.SocketTimeoutError(OUT_OF_TIME)

    async def _restart(self, error: Exception) -> None:
        response = self.response()
        self._restarting = True
        for response_to_close in (self._replacement, response):
            if response_to_close is not None:
                response_to_close.close()
        self._restarting = False
        replaced = False
        try:
            self.replace(await self.exchange.client._restart(self.exchange, error, response))
            replaced = True
        finally:
            if not replaced and self._call.pending:
                self.end(sys.exception())

    def replace(self, replacement: Any) -> None:
        self._replacement, self._content = replacement, replacement.content
        self._await_arrival()
        response: Any = self.response()
        if response is not None:  # pragma: no branch  the caller may have dropped it meanwhile
            response._headers, response._raw_headers = replacement._headers, replacement._raw_headers
            response._cache.clear()  # values derived from the previous headers
            response._released = False  # so that closing it calls set_exception, which closes the replacement


def _end(body_ref: Callable[[], RestartableContent | None]) -> None:
    """Record that a body is complete; the stream that calls this does not keep a dropped response alive."""
    body = body_ref()
    if body is not None:  # pragma: no branch  the caller may have dropped it meanwhile
        body.end(None)


def has_arrived(content: aiohttp.StreamReader) -> bool:
    """Return True if the whole body has arrived, be it read or not: its connection is another's by now."""
    return content.is_eof() and content.exception() is None


def set_content(response: aiohttp.ClientResponse, body: bytes, error: Exception | None = None) -> None:
    """Replace the content by a body that was already read, so that the caller can read it."""
    loop = asyncio.get_running_loop()
    content = aiohttp.StreamReader(BaseProtocol(loop), len(body) + 1, loop=loop)
    content.feed_data(body)
    content.feed_eof()
    if error is not None:
        content.set_exception(error)
    response.content = content


def classify_payload(body: Any) -> Rewind:
    """Return how the body of a request can be resent, if at all."""
    if not body or isinstance(body, bytes | aiohttp.BytesPayload):
        return nothing_to_rewind
    if isinstance(body, aiohttp.MultipartWriter):
        return classify_parts(_payload_value(part) for part, _, _ in body._parts)

    def once() -> bool:  # aiohttp records whether a body was started
        return getattr(body, "consumed", True) is False

    rewind = classify_body(_payload_value(body), once)
    if rewind in (nothing_to_rewind, once):
        return rewind
    # A file. After the response head aiohttp marks it as consumed at once, and closes it later.
    return lambda: getattr(body, "consumed", False) is False and rewind()


def _payload_value(payload: Any) -> object:
    return getattr(payload, "_value", payload)


async def prepare_resend(request: aiohttp.ClientRequest) -> None:
    """Wait until aiohttp has stopped writing the body, and prepare it to be written again."""
    await request.close()
    waiting: Any = getattr(request, "_continue", None)
    if waiting is not None and waiting.done():
        request.update_expect_continue(True)  # the previous attempt has consumed its future
    body: Any = request.body
    if isinstance(body, aiohttp.AsyncIterablePayload) and body.consumed:
        await request.update_body(_payload_value(body))  # a new iteration yields the same bytes
