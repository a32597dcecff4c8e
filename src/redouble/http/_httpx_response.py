"""The body of an answer, for httpx and httpx2: it begins anew while the caller has had none of it.

Whoever reads a body whole has had none of it until its end. Whoever iterates has had some with the first
chunk; from then on an error is the caller's, and says so. The head has been handed out already, so only an
answer with the same status may take the place of the one that broke.

Answers that we hand out: what is different about them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from math import inf
from typing import Any, cast
from weakref import ref

from anyio import move_on_after  # the shields that httpx uses cannot block this one

from redouble._clients.socket_deadline import limited_waits
from redouble._runtime.ambient import ambient
from redouble.http._client import ClientPolicy
from redouble.http._exchange import Exchange

__all__ = ["AsyncRestartableBody", "PrefetchedBody", "RestartableBody", "UnpickledBody"]


class PrefetchedBody:
    """A body of which some was read before: the rest follows, or the error it ended in."""

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
        """Close what is left."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close what is left."""
        if self._error is None:
            await self._remaining.aclose()  # which was left in the middle
        await self._stream.aclose()


class UnpickledBody:
    """What is left of a body that was pickled with its answer before anybody had read it."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def read_whole(self) -> Any:
        """Say that nothing is left, whether or not somebody would have awaited it."""
        raise self._error


class RestartableState:
    """What blocking and async bodies share: all that does not wait.

    Of an answer that came at once there is no exchange before something breaks.
    """

    module: Any
    read_method: str  # the answer's own method that reads it whole
    read_whole: Callable[[], Any]
    timeout_types: dict[type[Exception], type[Exception]]

    buffered = False  # whether it is read to its end before any of it is handed out
    _iterated = False
    _known_exchange: Exchange | None = None

    def __init__(self, policy: ClientPolicy, request: Any, response: Any, started: float = 0.0) -> None:
        self._policy = policy
        self._request = request
        self._response = ref(response)
        self._stream: Any = response.stream
        self._started = started
        response.stream = self
        setattr(
            response, self.read_method, self.read_whole
        )  # whoever does so has had none of it until its end

    @property
    def _exchange(self) -> Exchange:
        if self._known_exchange is None:
            host = self._request.url.netloc.decode("ascii")
            self._known_exchange = self._policy.resume_exchange(self._request, host, self._started)
        return self._known_exchange

    def _start_buffering(self) -> Any:
        """Let the answer be read by its own method from now on; nothing is handed out before all is there."""
        response: Any = self._response()
        if response is None:
            raise self.module.StreamClosed
        if not self.buffered:
            self.buffered = True
            delattr(response, self.read_method)
        return response

    def __reduce__(self) -> tuple[Any, ...]:
        return UnpickledBody, (self.module.StreamClosed,)  # as of all streams nothing is left of it elsewhere

    def _seconds_left(self) -> float:
        return (
            inf
            if self._known_exchange is None and not ambient.active
            else self._exchange.seconds_left_to_read()
        )

    def _can_continue_with(self, replacement: Any) -> bool:
        """Say whether an answer can take the place of the one that broke."""
        response = self._response()
        return response is None or (
            replacement.status_code == response.status_code
            and replacement.headers.get("content-encoding") == response.headers.get("content-encoding")
        )

    def _continue_with(self, replacement: Any) -> None:
        """Let an answer take the place of the one that broke."""
        self._stream = replacement.stream
        response = self._response()
        if response is not None:
            response.headers = replacement.headers
            response.extensions = replacement.extensions
            self._exchange.finish(response)

    def _timeout_error(self) -> Exception:
        late = self.module.ReadTimeout("the time of the call was up before all of the body came")
        return cast("Exception", late)


class RestartableBody(RestartableState):
    """A body for blocking code."""

    read_method = "read"

    def __iter__(self) -> Iterator[bytes]:
        if self._iterated:  # a second time, which is for the module to judge
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
        """Read the answer whole: what it calls, once, in place of its own method."""
        response = self._start_buffering()
        return cast("bytes", response.read())

    def close(self) -> None:
        """Close what is being received."""
        self._stream.close()

    def _read_ahead(self, chunks: Iterator[bytes]) -> list[bytes]:
        """Wait for the first chunk, or for all of them, no longer than the call may take."""
        rest = self._seconds_left()
        if rest == inf:
            return list(chunks) if self.buffered else self._collect(chunks)
        exchange = self._exchange
        with limited_waits(exchange.now, rest):
            return self._collect(chunks, exchange.now() + rest)

    def _collect(self, chunks: Iterator[bytes], until: float = inf) -> list[bytes]:
        received: list[bytes] = []
        for chunk in chunks:
            received.append(chunk)
            if not self.buffered and chunk:
                break
            if until < inf and self._exchange.now() >= until:  # where sockets are not ours to limit
                raise self._timeout_error()
        return received

    def _restart(self, error: Exception) -> None:
        self._stream.close()
        exchange = self._exchange
        try:
            replacement = exchange.restart(error)
        except Exception as failed:
            answer = exchange.final_response(failed, self.timeout_types)
            if answer is None:
                raise
            answer.close()
            raise exchange.mismatch(error) from None
        if not self._can_continue_with(replacement):
            replacement.close()
            raise exchange.mismatch(error)
        self._continue_with(replacement)


class AsyncRestartableBody(RestartableState):
    """A body for async code."""

    read_method = "aread"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._iterated:  # a second time, which is for the module to judge
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
        """Read the answer whole: what it calls, once, in place of its own method."""
        response = self._start_buffering()
        return cast("bytes", await response.aread())

    async def aclose(self) -> None:
        """Close what is being received."""
        await self._stream.aclose()

    async def _read_ahead(self, chunks: AsyncIterator[bytes]) -> list[bytes]:
        """Wait for the first chunk, or for all of them, no longer than the call may take."""
        rest = self._seconds_left()
        if rest == inf:
            return [chunk async for chunk in chunks] if self.buffered else await self._collect(chunks)
        with limited_waits(self._exchange.now, rest), move_on_after(max(0.0, rest)):
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
            answer = exchange.final_response(failed, self.timeout_types)
            if answer is None:
                raise
            await answer.aclose()
            raise exchange.mismatch(error) from None
        if not self._can_continue_with(replacement):
            await replacement.aclose()
            raise exchange.mismatch(error)
        self._continue_with(replacement)
