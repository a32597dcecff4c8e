"""The body of an answer, for httpx and httpx2: it begins anew while the caller has had none of it.

Whoever reads a body whole has had none of it until its end. Whoever iterates has had some with the first
piece; from then on an error is the caller's, and says so. The head has been handed out already, so only an
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

    def __init__(self, held: list[bytes], rest: Any, stream: Any, error: Exception | None) -> None:
        self._held, self._rest, self._stream, self._error = held, rest, stream, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._held
        if self._error is not None:
            raise self._error
        yield from self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._held:
            yield piece
        if self._error is not None:
            raise self._error
        async for piece in self._rest:
            yield piece

    def close(self) -> None:
        """Close what is left."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close what is left."""
        if self._error is None:
            await self._rest.aclose()  # which was left in the middle
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

    library: Any
    how: str  # the answer's own method that reads it whole
    read_whole: Callable[[], Any]
    late: dict[type[Exception], type[Exception]]

    whole = False  # whether it is read to its end before any of it is handed out
    _begun = False
    _made: Exchange | None = None

    def __init__(self, terms: ClientPolicy, request: Any, response: Any, started: float = 0.0) -> None:
        self._terms = terms
        self._request = request
        self._response = ref(response)
        self._stream: Any = response.stream
        self._started = started
        response.stream = self
        setattr(response, self.how, self.read_whole)  # whoever does so has had none of it until its end

    @property
    def _exchange(self) -> Exchange:
        if self._made is None:
            host = self._request.url.netloc.decode("ascii")
            self._made = self._terms.resumed(self._request, host, self._started)
        return self._made

    def _told_to_hold_back(self) -> Any:
        """Let the answer be read by its own method from now on; nothing is handed out before all is there."""
        response: Any = self._response()
        if response is None:
            raise self.library.StreamClosed
        if not self.whole:
            self.whole = True
            delattr(response, self.how)
        return response

    def __reduce__(self) -> tuple[Any, ...]:
        return UnpickledBody, (
            self.library.StreamClosed,
        )  # as of all streams nothing is left of it elsewhere

    def _left(self) -> float:
        return inf if self._made is None and not ambient.active else self._exchange.left_to_read()

    def _fits(self, again: Any) -> bool:
        """Say whether an answer can take the place of the one that broke."""
        response = self._response()
        return response is None or (
            again.status_code == response.status_code
            and again.headers.get("content-encoding") == response.headers.get("content-encoding")
        )

    def _take(self, again: Any) -> None:
        """Let an answer take the place of the one that broke."""
        self._stream = again.stream
        response = self._response()
        if response is not None:
            response.headers = again.headers
            response.extensions = again.extensions
            self._exchange.ended(response)

    def _late(self) -> Exception:
        late = self.library.ReadTimeout("the time of the call was up before all of the body came")
        return cast("Exception", late)


class RestartableBody(RestartableState):
    """A body for blocking code."""

    how = "read"

    def __iter__(self) -> Iterator[bytes]:
        if self._begun:  # a second time, which is for the library to judge
            yield from self._stream
            return
        self._begun = True
        while True:
            pieces = iter(self._stream)
            try:
                held = self._held(pieces)
            except Exception as error:
                self._begin_again(error)
            else:
                break
        yield from held
        if self.whole:
            return
        try:
            yield from pieces
        except Exception as error:
            self._exchange.mark_delivered(error)
            raise

    def read_whole(self) -> bytes:
        """Read the answer whole: what it calls, once, in place of its own method."""
        response = self._told_to_hold_back()
        return cast("bytes", response.read())

    def close(self) -> None:
        """Close what is being received."""
        self._stream.close()

    def _held(self, pieces: Iterator[bytes]) -> list[bytes]:
        """Wait for the first piece, or for all of them, no longer than the call may take."""
        rest = self._left()
        if rest == inf:
            return list(pieces) if self.whole else self._collected(pieces)
        exchange = self._exchange
        with limited_waits(exchange.now, rest):
            return self._collected(pieces, exchange.now() + rest)

    def _collected(self, pieces: Iterator[bytes], until: float = inf) -> list[bytes]:
        held: list[bytes] = []
        for piece in pieces:
            held.append(piece)
            if not self.whole and piece:
                break
            if until < inf and self._exchange.now() >= until:  # where sockets are not ours to limit
                raise self._late()
        return held

    def _begin_again(self, error: Exception) -> None:
        self._stream.close()
        exchange = self._exchange
        try:
            again = exchange.restarted(error)
        except Exception as failed:
            answer = exchange.final_response(failed, self.late)
            if answer is None:
                raise
            answer.close()
            raise exchange.mismatch(error) from None
        if not self._fits(again):
            again.close()
            raise exchange.mismatch(error)
        self._take(again)


class AsyncRestartableBody(RestartableState):
    """A body for async code."""

    how = "aread"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._begun:  # a second time, which is for the library to judge
            async for piece in self._stream:
                yield piece
            return
        self._begun = True
        while True:
            pieces = aiter(self._stream)
            try:
                held = await self._held(pieces)
            except Exception as error:
                await self._begin_again(error)
            else:
                break
        for piece in held:
            yield piece
        if self.whole:
            return
        try:
            async for piece in pieces:
                yield piece
        except Exception as error:
            self._exchange.mark_delivered(error)
            raise

    async def read_whole(self) -> bytes:
        """Read the answer whole: what it calls, once, in place of its own method."""
        response = self._told_to_hold_back()
        return cast("bytes", await response.aread())

    async def aclose(self) -> None:
        """Close what is being received."""
        await self._stream.aclose()

    async def _held(self, pieces: AsyncIterator[bytes]) -> list[bytes]:
        """Wait for the first piece, or for all of them, no longer than the call may take."""
        rest = self._left()
        if rest == inf:
            return [piece async for piece in pieces] if self.whole else await self._collected(pieces)
        with limited_waits(self._exchange.now, rest), move_on_after(max(0.0, rest)):
            return await self._collected(pieces)
        raise self._late()

    async def _collected(self, pieces: AsyncIterator[bytes]) -> list[bytes]:
        held: list[bytes] = []
        async for piece in pieces:
            held.append(piece)
            if not self.whole and piece:
                break
        return held

    async def _begin_again(self, error: Exception) -> None:
        await self._stream.aclose()
        exchange = self._exchange
        try:
            again = await exchange.arestarted(error)
        except Exception as failed:
            answer = exchange.final_response(failed, self.late)
            if answer is None:
                raise
            await answer.aclose()
            raise exchange.mismatch(error) from None
        if not self._fits(again):
            await again.aclose()
            raise exchange.mismatch(error)
        self._take(again)
