"""The content of an answer of aiohttp's: it begins anew while the caller has had none of it.

The same as `_received` does for httpx, where aiohttp has its seam: who reads an answer reads its content.

Bodies of requests of aiohttp's: which can be sent replacement, and how to make them ready for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from math import inf
from typing import Any, cast
from weakref import ref

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import AsyncStreamIterator, ChunkTupleAsyncStreamIterator

from redouble._runtime.backend import cut_after
from redouble.http._client import PREFETCH_LIMIT, timeout_types
from redouble.http._exchange import Exchange
from redouble.http._request_body import RESENDABLE, OneShot, Resendable, classify_body, classify_parts

__all__ = [
    "TIMEOUT_TYPES",
    "RestartableContent",
    "classify_payload",
    "prefetch",
    "prepare_resend",
    "set_content",
]


TIMEOUT_TYPES = timeout_types(aiohttp.ServerTimeoutError, "redouble.aiohttp")


class RestartableContent:
    """The content of an answer, which begins anew if it breaks before the caller has had any of it."""

    def __init__(self, exchange: Exchange, response: aiohttp.ClientResponse) -> None:
        self._exchange, self._content = exchange, response.content
        self._response = ref(response)
        self._replacement: aiohttp.ClientResponse | None = None
        self._timeout_error: Exception | None = None
        self._delivered = self._restarting = self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    def read(self, n: int = -1) -> Coroutine[Any, Any, bytes]:
        """Read all of it, or so many bytes."""
        return self._read("read", n)

    def readany(self) -> Coroutine[Any, Any, bytes]:
        """Read what there is."""
        return self._read("readany")

    def readexactly(self, n: int) -> Coroutine[Any, Any, bytes]:
        """Read exactly so many bytes."""
        return self._read("readexactly", n)

    def readline(self, **options: Any) -> Coroutine[Any, Any, bytes]:
        """Read a line."""
        return self._read("readline", **options)

    def readuntil(self, *args: Any, **options: Any) -> Coroutine[Any, Any, bytes]:
        """Read up to a separator."""
        return self._read("readuntil", *args, **options)

    def readchunk(self) -> Coroutine[Any, Any, tuple[bytes, bool]]:
        """Read what the server has sent as one piece."""
        return self._read("readchunk")

    def __aiter__(self) -> AsyncStreamIterator[bytes]:
        return AsyncStreamIterator(self.readline)

    def iter_chunked(self, n: int) -> AsyncStreamIterator[bytes]:
        """Iterate over pieces of at most so many bytes."""
        return AsyncStreamIterator(lambda: self.read(n))

    def iter_any(self) -> AsyncStreamIterator[bytes]:
        """Iterate over what there is."""
        return AsyncStreamIterator(self.readany)

    def iter_chunks(self) -> ChunkTupleAsyncStreamIterator:
        """Iterate over the pieces that the server has sent."""
        return ChunkTupleAsyncStreamIterator(cast("Any", self))

    def set_exception(self, *args: Any) -> None:
        """Learn that the answer was closed."""
        self._closed = not self._restarting
        self._content.set_exception(*args)
        if self._replacement is not None:
            self._replacement.close()

    async def _read(self, how: str, *args: Any, **options: Any) -> Any:
        exchange = self._exchange
        while True:
            try:
                rest = inf if self._delivered else exchange.seconds_left_to_read()
                reading = getattr(self._content, how)(*args, **options)
                data = await (reading if rest == inf else self._read_within(rest, reading))
            except Exception as error:
                unbroken = self._content.exception() is None and error is not self._timeout_error
                if unbroken or self._closed:
                    raise  # the body is well; it was asked for something that it cannot give
                if self._delivered:
                    exchange.mark_delivered(error)
                    if self._replacement is not None:
                        self._replacement.close()  # nobody else knows of it
                    raise
                await self._restart(error)
            else:
                if data and data != (b"", False):
                    self._delivered = True
                return data

    async def _read_within(self, rest: float, reading: Awaitable[Any]) -> Any:
        with cut_after(max(0.0, rest)):
            return await reading
        self._timeout_error = aiohttp.SocketTimeoutError(
            "the time of the call was up before all of the body came"
        )
        raise self._timeout_error

    async def _restart(self, error: Exception) -> None:
        exchange, response = self._exchange, self._response()
        self._restarting = True
        for response_to_close in (self._replacement, response):
            if response_to_close is not None:
                response_to_close.close()
        self._restarting = False
        try:
            replacement = await exchange.arestart(error)
        except Exception as failed:
            answer = exchange.final_response(failed, TIMEOUT_TYPES)
            if answer is None:
                raise
            answer.close()
            raise exchange.mismatch(error) from None
        if response is not None and replacement.status != response.status:
            replacement.close()
            raise exchange.mismatch(error)
        self._replacement, self._content = replacement, replacement.content
        if response is not None:  # pragma: no branch  it may have been dropped meanwhile
            original: Any = response
            original._headers, original._raw_headers = replacement._headers, replacement._raw_headers
            original._cache.clear()  # of what was looked up before
            original._released = False  # so that closing it is told to us, who close the other one
            exchange.finish(response)


async def prefetch(exchange: Exchange, response: aiohttp.ClientResponse) -> None:
    """Read what a failure says, if it is little, so that its connection is free while we wait."""
    announced = response.content_length
    if announced is None or announced > PREFETCH_LIMIT:
        exchange.unread = response
        return
    try:
        set_content(response, await response.read())
    except Exception as error:  # it is told to whoever reads it: the status counts all the same
        set_content(response, b"", error)


def set_content(response: aiohttp.ClientResponse, body: bytes, error: Exception | None = None) -> None:
    """Let a body that was read be read as ever."""
    loop = asyncio.get_running_loop()
    content = aiohttp.StreamReader(BaseProtocol(loop), len(body) + 1, loop=loop)
    content.feed_data(body)
    content.feed_eof()
    if error is not None:
        content.set_exception(error)
    response.content = content


def classify_payload(body: Any) -> Resendable:
    """Find out whether the body of a request can be sent replacement."""
    if not body or isinstance(body, bytes | aiohttp.BytesPayload):
        return RESENDABLE
    if isinstance(body, aiohttp.MultipartWriter):
        return classify_parts(_payload_value(part) for part, _, _ in body._parts)
    found = classify_body(_payload_value(body))
    if isinstance(found, OneShot):
        return OneShotPayload(body)
    return found if found is RESENDABLE else ReusablePayload(body, found)


def _payload_value(payload: Any) -> object:
    return getattr(payload, "_value", payload)


class OneShotPayload(OneShot):
    """A body of which aiohttp knows whether it was begun."""

    def rewind(self) -> bool:
        return getattr(self._source, "consumed", True) is False


class ReusablePayload(Resendable):
    """A file, which aiohttp closes with the head of an answer: it says so at once, and does it later."""

    def __init__(self, payload: Any, file: Resendable) -> None:
        self._payload, self._file = payload, file

    def rewind(self) -> bool:
        return getattr(self._payload, "consumed", False) is False and self._file.rewind()


async def prepare_resend(exchange: Exchange) -> None:
    """Wait until nobody writes the body any more, and make it ready to be written replacement."""
    if exchange.unread is not None:
        response, exchange.unread = exchange.unread, None
        response.close()
    request: aiohttp.ClientRequest = exchange.request
    await request.close()
    waiting: Any = getattr(request, "_continue", None)
    if waiting is not None and waiting.done():
        request.update_expect_continue(True)  # the one that was waited for is gone with the last attempt
    body: Any = request.body
    if isinstance(body, aiohttp.AsyncIterablePayload) and body.consumed:
        await request.update_body(_payload_value(body))  # it gives its bytes anew each time it is iterated
