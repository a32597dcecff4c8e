"""Response bodies for httpx and httpx2, which restart the call if they fail before any part is delivered.

A caller that reads a body as a whole has received nothing before its end. A caller that iterates has received
something with the first chunk; after that an error is raised to the caller, annotated. The head was returned
already, so only a response with the same status and content encoding may continue a failed one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from math import inf
from typing import Any, cast
from weakref import ref

from anyio import move_on_after  # unlike asyncio's timeout, it waits for the shielded clean-up of httpcore

from redouble._clients.socket_deadline import limited_waits
from redouble._runtime.ambient import ambient
from redouble.http._client import ClientPolicy
from redouble.http._exchange import Exchange

__all__ = ["AsyncRestartableBody", "PrefetchedBody", "RestartableBody", "UnpickledBody"]


class PrefetchedBody:
    """A body whose first chunks were already read; the rest follows, or the error that ended it."""

    def __init__(self, chunks: list[bytes], remaining: Any, stream: Any, error: Exception | None) -> None:
        self._chunks, self._remaining, self._stream, self._error = chunks, remaining, stream, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._error is not None:
            raise self._error
        yield from self._remaining

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._error is not None:
            raise self._error
        async for chunk in self._remaining:
            yield chunk

    def close(self) -> None:
        """Close the underlying stream."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the underlying stream."""
        if self._error is None:
            await self._remaining.aclose()  # the iterator is suspended in the middle
        await self._stream.aclose()


class UnpickledBody:
    """The placeholder of a body that had not been read when its response was pickled."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def read_whole(self) -> Any:
        """Raise: the body was not pickled with its response."""
        raise self._error


class RestartableState:
    """The non-blocking part of blocking and async bodies.

    The exchange of a response that succeeded at once is created only if its body fails.
    """

    module: Any
    read_method: str  # the name of the response's method that reads the whole body
    read_whole: Callable[[], Any]
    timeout_types: dict[type[Exception], type[Exception]]

    buffered = False  # True if the whole body is read before any chunk is yielded
    _iterated = False
    _known_exchange: Exchange | None = None

    def __init__(self, policy: ClientPolicy, request: Any, response: Any, started: float = 0.0) -> None:
        self._policy = policy
        self._request = request
        self._response = ref(response)
        self._stream: Any = response.stream
        self._started = started
        response.stream = self
        setattr(response, self.read_method, self.read_whole)  # its caller receives nothing before the end

    @property
    def _exchange(self) -> Exchange:
        if self._known_exchange is None:
            host = self._request.url.netloc.decode("ascii")
            self._known_exchange = self._policy.resume_exchange(self._request, host, self._started)
        return self._known_exchange

    def _start_buffering(self) -> Any:
        """Restore the response's own read method; the body then yields nothing before it is complete."""
        response: Any = self._response()
        if response is None:
            raise self.module.StreamClosed
        if not self.buffered:
            self.buffered = True
            delattr(response, self.read_method)
        return response

    def __reduce__(self) -> tuple[Any, ...]:
        return UnpickledBody, (self.module.StreamClosed,)  # like any stream, it does not survive pickling

    def _seconds_left(self) -> float:
        return (
            inf
            if self._known_exchange is None and not ambient.active
            else self._exchange.seconds_left_to_read()
        )

    def _can_continue_with(self, replacement: Any) -> bool:
        """Return True if a new response can continue the one whose body failed."""
        response = self._response()
        return response is None or (
            replacement.status_code == response.status_code
            and replacement.headers.get("content-encoding") == response.headers.get("content-encoding")
        )

    def _continue_with(self, replacement: Any) -> None:
        """Continue with the body and head of a new response."""
        self._stream = replacement.stream
        response = self._response()
        if response is not None:
            response.headers = replacement.headers
            response.extensions = replacement.extensions
            self._exchange.finish(response)

    def _timeout_error(self) -> Exception:
        error = self.module.ReadTimeout("the time of the call was up before the whole body arrived")
        return cast("Exception", error)


class RestartableBody(RestartableState):
    """A restartable body for blocking code."""

    read_method = "read"

    def __iter__(self) -> Iterator[bytes]:
        if self._iterated:  # a second iteration: the library's stream decides
            yield from self._stream
            return
        self._iterated = True
        while True:
            chunks = iter(self._stream)
            try:
                received = self._read_ahead(chunks)
            except Exception as error:
                self._restart(error)
            else:
                break
        yield from received
        if self.buffered:
            return
        try:
            yield from chunks
        except Exception as error:
            self._exchange.mark_delivered(error)
            raise

    def read_whole(self) -> bytes:
        """Read the whole body; stands in for the response's own method, for one call."""
        response = self._start_buffering()
        return cast("bytes", response.read())

    def close(self) -> None:
        """Close the stream that is being read."""
        self._stream.close()

    def _read_ahead(self, chunks: Iterator[bytes]) -> list[bytes]:
        """Return the first chunk, or all if buffered, within the time of the call."""
        seconds = self._seconds_left()
        if seconds == inf:
            return list(chunks) if self.buffered else self._collect(chunks)
        exchange = self._exchange
        with limited_waits(exchange.now, seconds):
            return self._collect(chunks, exchange.now() + seconds)

    def _collect(self, chunks: Iterator[bytes], until: float = inf) -> list[bytes]:
        received: list[bytes] = []
        for chunk in chunks:
            received.append(chunk)
            if not self.buffered and chunk:
                break
            if until < inf and self._exchange.now() >= until:  # for transports whose sockets we cannot limit
                raise self._timeout_error()
        return received

    def _restart(self, error: Exception) -> None:
        self._stream.close()
        exchange = self._exchange
        try:
            replacement = exchange.restart(error)
        except Exception as failed:
            last = exchange.final_response(failed, self.timeout_types)
            if last is None:
                raise
            last.close()
            raise exchange.mismatch(error) from None
        if not self._can_continue_with(replacement):
            replacement.close()
            raise exchange.mismatch(error)
        self._continue_with(replacement)


class AsyncRestartableBody(RestartableState):
    """A restartable body for async code."""

    read_method = "aread"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._iterated:  # a second iteration: the library's stream decides
            async for chunk in self._stream:
                yield chunk
            return
        self._iterated = True
        while True:
            chunks = aiter(self._stream)
            try:
                received = await self._read_ahead(chunks)
            except Exception as error:
                await self._restart(error)
            else:
                break
        for chunk in received:
            yield chunk
        if self.buffered:
            return
        try:
            async for chunk in chunks:
                yield chunk
        except Exception as error:
            self._exchange.mark_delivered(error)
            raise

    async def read_whole(self) -> bytes:
        """Read the whole body; stands in for the response's own method, for one call."""
        response = self._start_buffering()
        return cast("bytes", await response.aread())

    async def aclose(self) -> None:
        """Close the stream that is being read."""
        await self._stream.aclose()

    async def _read_ahead(self, chunks: AsyncIterator[bytes]) -> list[bytes]:
        """Return the first chunk, or all if buffered, within the time of the call."""
        seconds = self._seconds_left()
        if seconds == inf:
            return [chunk async for chunk in chunks] if self.buffered else await self._collect(chunks)
        with limited_waits(self._exchange.now, seconds), move_on_after(max(0.0, seconds)):
            return await self._collect(chunks)
        raise self._timeout_error()

    async def _collect(self, chunks: AsyncIterator[bytes]) -> list[bytes]:
        received: list[bytes] = []
        async for chunk in chunks:
            received.append(chunk)
            if not self.buffered and chunk:
                break
        return received

    async def _restart(self, error: Exception) -> None:
        await self._stream.aclose()
        exchange = self._exchange
        try:
            replacement = await exchange.arestart(error)
        except Exception as failed:
            last = exchange.final_response(failed, self.timeout_types)
            if last is None:
                raise
            await last.aclose()
            raise exchange.mismatch(error) from None
        if not self._can_continue_with(replacement):
            await replacement.aclose()
            raise exchange.mismatch(error)
        self._continue_with(replacement)
