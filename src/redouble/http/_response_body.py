"""Response bodies that restart the call if they fail before any part of them is delivered.

A caller that reads a body as a whole has received nothing before its end. A caller that iterates has received
something with the first chunk; after that an error is raised to the caller, annotated.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from redouble._clients.socket_deadline import UNLIMITED, LimitedWaits
from redouble._runtime.ambient import ambient
from redouble.http._exchange import Exchange, SuccessRecord

OUT_OF_TIME = "the time of the call was up before the whole body arrived"


class BodyState(ABC):
    """The non-blocking part of a restartable body.

    The exchange of a response that succeeded at once is created only if its body fails.
    """

    _call: Exchange | SuccessRecord
    # The errors after which a body that is read as a whole does not restart.
    final_errors: tuple[type[Exception], ...] = ()
    response: Callable[[], Any]  # returns the response whose body this is, or None if it was dropped
    start: Callable[[], Any]  # starts to read the current response; returns an iterator over its chunks
    read_once: Callable[[], Any]  # reads the current response as a whole; in async code, returns an awaitable
    until = inf  # when the time limit of reading what is delivered first expires
    closed = False  # True if the caller has closed the response: a failure does not restart the call
    _ended = False  # True once the end of the body was recorded

    @property
    def exchange(self) -> Exchange:
        """The exchange of the call."""
        if isinstance(self._call, SuccessRecord):
            self._call = self._call.exchange()
        return self._call

    def end(self, error: BaseException | None) -> None:
        """Record the end of the body: None if it is complete or was closed."""
        # An iterator that is dropped ends nothing: the response is still open.
        if not self._ended and not isinstance(error, GeneratorExit):
            self._ended = True
            self._call.body_ended(error)

    @abstractmethod
    def replace(self, replacement: Any) -> None:
        """Continue with the body and head of a new response."""

    @abstractmethod
    def timeout_error(self) -> Exception:
        """Make the library's error for a body that did not arrive in time."""

    def limited(self, seconds: float) -> AbstractContextManager[object]:
        """Return a time limit of reading."""
        return LimitedWaits(self.exchange.now, seconds)

    def limit(self) -> AbstractContextManager[object]:
        """Return the time limit of reading what is delivered first."""
        seconds = self.seconds_left()
        if seconds == inf:
            return UNLIMITED
        self.until = self.exchange.now() + seconds
        return self.limited(seconds)

    def check_time(self) -> None:
        """Raise if the time is up, for transports whose sockets we cannot limit."""
        if self.until < inf and self.exchange.now() >= self.until:
            raise self.timeout_error()

    def seconds_left(self) -> float:
        """Return the seconds that reading may take until something is delivered."""
        if isinstance(self._call, SuccessRecord) and not ambient.active:
            return inf
        return self.exchange.seconds_left_to_read()


class RestartableBody(BodyState):
    """A restartable body for blocking code."""

    close_source: Callable[[], object]  # closes the current response or its stream

    def read_whole(self) -> Any:
        """Read the body as a whole: nothing of it is delivered before its end."""
        complete = False
        try:
            while True:
                try:
                    # Most bodies are read without a limit, and without the cost of a context manager.
                    unlimited = isinstance(self._call, SuccessRecord) and not ambient.active
                    if unlimited or self.seconds_left() == inf:
                        data = self.read_once()
                    else:
                        with self.limit():
                            data = self.read_once()
                    complete = True
                    return data
                except Exception as error:
                    if isinstance(error, self.final_errors):
                        raise
                    self._restart(error)
        finally:
            if self._call.pending:
                self.end(None if complete else sys.exception())

    def chunks(self) -> Iterator[Any]:
        """Yield the chunks of the body."""
        complete = False
        try:
            while True:
                chunks = self.start()
                try:
                    with self.limit():
                        first = self._read_first(chunks)
                    break
                except Exception as error:
                    self._restart(error)
            if first:
                yield first
            try:
                for chunk in chunks:  # noqa: UP028  as in async code
                    yield chunk
            except Exception as error:
                self.exchange.mark_delivered(error)
                raise
            complete = True
        finally:
            if self._call.pending:
                self.end(None if complete else sys.exception())

    def _restart(self, error: Exception) -> None:
        if self.closed:
            raise error
        self.close_source()
        self.replace(self.exchange.client._restart(self.exchange, error, self.response()))

    def _read_first(self, chunks: Iterator[Any]) -> Any:
        """Return the first chunk that is not empty; without one, an empty chunk."""
        for chunk in chunks:
            if chunk:
                return chunk
            self.check_time()
        return b""


class AsyncRestartableBody(BodyState):
    """A restartable body for async code."""

    close_source: Callable[[], Awaitable[object]]  # closes the current response or its stream

    async def read_whole(self) -> Any:
        """Read the body as a whole: nothing of it is delivered before its end."""
        complete = False
        try:
            while True:
                try:
                    # Most bodies are read without a limit, and without the cost of a context manager.
                    unlimited = isinstance(self._call, SuccessRecord) and not ambient.active
                    if unlimited or self.seconds_left() == inf:
                        data = await self.read_once()
                    else:
                        with self.limit():
                            data = await self.read_once()
                    complete = True
                    return data
                except Exception as error:
                    if isinstance(error, self.final_errors):
                        raise
                    await self._restart(error)
        finally:
            if self._call.pending:
                self.end(None if complete else sys.exception())

    async def chunks(self) -> AsyncIterator[Any]:
        """Yield the chunks of the body."""
        complete = False
        try:
            while True:
                chunks = self.start()
                try:
                    with self.limit():
                        first = await self._read_first(chunks)
                    break
                except Exception as error:
                    await self._restart(error)
            if first:
                yield first
            try:
                async for chunk in chunks:
                    yield chunk
            except Exception as error:
                self.exchange.mark_delivered(error)
                raise
            complete = True
        finally:
            if self._call.pending:
                self.end(None if complete else sys.exception())

    async def _restart(self, error: Exception) -> None:
        if self.closed:
            raise error
        await self.close_source()
        self.replace(await self.exchange.client._restart(self.exchange, error, self.response()))

    async def _read_first(self, chunks: AsyncIterator[Any]) -> Any:
        """Return the first chunk that is not empty; without one, an empty chunk."""
        async for chunk in chunks:
            if chunk:
                return chunk
            self.check_time()
        return b""
