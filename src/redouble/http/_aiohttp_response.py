"""The content of an answer of aiohttp's: it begins anew while the caller has had none of it.

The same as `_received` does for httpx, where aiohttp has its seam: who reads an answer reads its content.

Bodies of requests of aiohttp's: which can be sent again, and how to make them ready for it.
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
from redouble.http._client import SMALL, late_types
from redouble.http._exchange import Exchange
from redouble.http._request_body import AGAIN, OneShot, Resendable, content_of, contents_of

__all__ = ["LATE", "RestartableContent", "keep", "ready_again", "refill", "source_of"]


LATE = late_types(aiohttp.ServerTimeoutError, "redouble.aiohttp")


class RestartableContent:
    """The content of an answer, which begins anew if it breaks before the caller has had any of it."""

    def __init__(self, exchange: Exchange, response: aiohttp.ClientResponse) -> None:
        self._exchange, self._content = exchange, response.content
        self._response = ref(response)
        self._again: aiohttp.ClientResponse | None = None
        self._late: Exception | None = None
        self._begun = self._beginning = self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    def read(self, n: int = -1) -> Coroutine[Any, Any, bytes]:
        """Read all of it, or so many bytes."""
        return self._have("read", n)

    def readany(self) -> Coroutine[Any, Any, bytes]:
        """Read what there is."""
        return self._have("readany")

    def readexactly(self, n: int) -> Coroutine[Any, Any, bytes]:
        """Read exactly so many bytes."""
        return self._have("readexactly", n)

    def readline(self, **options: Any) -> Coroutine[Any, Any, bytes]:
        """Read a line."""
        return self._have("readline", **options)

    def readuntil(self, *args: Any, **options: Any) -> Coroutine[Any, Any, bytes]:
        """Read up to a separator."""
        return self._have("readuntil", *args, **options)

    def readchunk(self) -> Coroutine[Any, Any, tuple[bytes, bool]]:
        """Read what the server has sent as one piece."""
        return self._have("readchunk")

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
        self._closed = not self._beginning
        self._content.set_exception(*args)
        if self._again is not None:
            self._again.close()

    async def _have(self, how: str, *args: Any, **options: Any) -> Any:
        exchange = self._exchange
        while True:
            try:
                rest = inf if self._begun else exchange.left_to_read()
                reading = getattr(self._content, how)(*args, **options)
                found = await (reading if rest == inf else self._within(rest, reading))
            except Exception as error:
                unbroken = self._content.exception() is None and error is not self._late
                if unbroken or self._closed:
                    raise  # the body is well; it was asked for something that it cannot give
                if self._begun:
                    exchange.mark_delivered(error)
                    if self._again is not None:
                        self._again.close()  # nobody else knows of it
                    raise
                await self._begin_again(error)
            else:
                if found and found != (b"", False):
                    self._begun = True
                return found

    async def _within(self, rest: float, reading: Awaitable[Any]) -> Any:
        with cut_after(max(0.0, rest)):
            return await reading
        self._late = aiohttp.SocketTimeoutError("the time of the call was up before all of the body came")
        raise self._late

    async def _begin_again(self, error: Exception) -> None:
        exchange, response = self._exchange, self._response()
        self._beginning = True
        for known in (self._again, response):
            if known is not None:
                known.close()
        self._beginning = False
        try:
            again = await exchange.arestarted(error)
        except Exception as failed:
            answer = exchange.final_response(failed, LATE)
            if answer is None:
                raise
            answer.close()
            raise exchange.mismatch(error) from None
        if response is not None and again.status != response.status:
            again.close()
            raise exchange.mismatch(error)
        self._again, self._content = again, again.content
        if response is not None:  # pragma: no branch  it may have been dropped meanwhile
            mine: Any = response
            mine._headers, mine._raw_headers = again._headers, again._raw_headers
            mine._cache.clear()  # of what was looked up before
            mine._released = False  # so that closing it is told to us, who close the other one
            exchange.ended(response)


async def keep(exchange: Exchange, response: aiohttp.ClientResponse) -> None:
    """Read what a failure says, if it is little, so that its connection is free while we wait."""
    announced = response.content_length
    if announced is None or announced > SMALL:
        exchange.unread = response
        return
    try:
        refill(response, await response.read())
    except Exception as error:  # it is told to whoever reads it: the status counts all the same
        refill(response, b"", error)


def refill(response: aiohttp.ClientResponse, body: bytes, error: Exception | None = None) -> None:
    """Let a body that was read be read as ever."""
    loop = asyncio.get_running_loop()
    content = aiohttp.StreamReader(BaseProtocol(loop), len(body) + 1, loop=loop)
    content.feed_data(body)
    content.feed_eof()
    if error is not None:
        content.set_exception(error)
    response.content = content


def source_of(body: Any) -> Resendable:
    """Find out whether the body of a request can be sent again."""
    if not body or isinstance(body, bytes | aiohttp.BytesPayload):
        return AGAIN
    if isinstance(body, aiohttp.MultipartWriter):
        return contents_of(_value(part) for part, _, _ in body._parts)
    found = content_of(_value(body))
    if isinstance(found, OneShot):
        return PartlyReadPayload(body)
    return found if found is AGAIN else ReusablePayload(body, found)


def _value(payload: Any) -> object:
    return getattr(payload, "_value", payload)


class PartlyReadPayload(OneShot):
    """A body of which aiohttp knows whether it was begun."""

    def rewind(self) -> bool:
        return getattr(self._source, "consumed", True) is False


class ReusablePayload(Resendable):
    """A file, which aiohttp closes with the head of an answer: it says so at once, and does it later."""

    def __init__(self, payload: Any, file: Resendable) -> None:
        self._payload, self._file = payload, file

    def rewind(self) -> bool:
        return getattr(self._payload, "consumed", False) is False and self._file.rewind()


async def ready_again(exchange: Exchange) -> None:
    """Wait until nobody writes the body any more, and make it ready to be written again."""
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
        await request.update_body(_value(body))  # it gives its bytes anew each time it is iterated
