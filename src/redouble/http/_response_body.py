"""Response bodies that restart the call if they fail before any part of them is delivered.

A caller that reads a body as a whole has received nothing before its end. A caller that iterates has received
something with the first chunk; after that an error is raised to the caller, annotated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from redouble._clients.socket_deadline import limited_waits
from redouble._runtime.ambient import ambient
from redouble.http._exchange import Exchange
from redouble.http._sender import AsyncSender, FirstSuccess, Sender

__all__ = ["OUT_OF_TIME", "AsyncRestartableBody", "BodyState", "RestartableBody"]


OUT_OF_TIME = "the time of the call was up before the whole body arrived"


class BodyState(ABC):
    """The non-blocking part of a restartable body.

    The exchange of a response that succeeded at once is created only if its body fails.
    """

    _call: Exchange | FirstSuccess
    response: Callable[[], Any]  # returns the response whose body this is, or None if it was dropped
    buffered = False  # True if the whole body is read before any chunk is yielded

    @property
    def exchange(self) -> Exchange:
        """The exchange of the call."""
        if isinstance(self._call, FirstSuccess):
            self._call = self._call.exchange()
        return self._call

    @abstractmethod
    def replace(self, replacement: Any) -> None:
        """Continue with the body and head of a new response."""

    @abstractmethod
    def timeout_error(self) -> Exception:
        """Make the library's error for a body that did not arrive in time."""

    def limited(self, seconds: float) -> AbstractContextManager[object]:
        """Return the time limit of reading what is delivered first."""
        return limited_waits(self.exchange.now, seconds)

    def seconds_left(self) -> float:
        """Return the seconds that reading may take until something is delivered."""
        if isinstance(self._call, FirstSuccess) and not ambient.active:
            return inf
        return self.exchange.seconds_left_to_read()


class RestartableBody(BodyState):
    """A restartable body for blocking code."""

    sender: Sender

    @abstractmethod
    def start(self) -> Iterator[Any]:
        """Start to read the current response; return an iterator over its chunks."""

    @abstractmethod
    def close(self) -> None:
        """Close the current response or its stream."""

    def chunks(self) -> Iterator[Any]:
        """Yield the chunks of the body."""
        while True:
            chunks = self.start()
            try:
                received = self._read_ahead(chunks)
            except Exception as error:
                self.close()
                self.replace(self.sender._restart(self.exchange, error, self.response()))
            else:
                break
        for chunk in received:
            yield chunk
        if self.buffered:
            return
        try:
            for chunk in chunks:
                yield chunk
        except Exception as error:
            self.exchange.mark_delivered(error)
            raise

    def _read_ahead(self, chunks: Iterator[Any]) -> list[Any]:
        """Return the first chunk, or all if buffered, within the time of the call."""
        seconds = self.seconds_left()
        if seconds == inf:
            return self._collect(chunks, inf)
        with self.limited(seconds):
            return self._collect(chunks, self.exchange.now() + seconds)

    def _collect(self, chunks: Iterator[Any], until: float) -> list[Any]:
        received: list[Any] = []
        for chunk in chunks:
            received.append(chunk)
            if not self.buffered and chunk:
                break
            if until < inf and self.exchange.now() >= until:  # for transports whose sockets we cannot limit
                raise self.timeout_error()
        return received


class AsyncRestartableBody(BodyState):
    """A restartable body for async code."""

    sender: AsyncSender

    @abstractmethod
    def start(self) -> AsyncIterator[Any]:
        """Start to read the current response; return an iterator over its chunks."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the current response or its stream."""

    async def chunks(self) -> AsyncIterator[Any]:
        """Yield the chunks of the body."""
        while True:
            chunks = self.start()
            try:
                received = await self._read_ahead(chunks)
            except Exception as error:
                await self.aclose()
                self.replace(await self.sender._restart(self.exchange, error, self.response()))
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
            self.exchange.mark_delivered(error)
            raise

    async def _read_ahead(self, chunks: AsyncIterator[Any]) -> list[Any]:
        """Return the first chunk, or all if buffered, within the time of the call."""
        seconds = self.seconds_left()
        if seconds == inf:
            return await self._collect(chunks, inf)
        with self.limited(seconds):
            return await self._collect(chunks, self.exchange.now() + seconds)

    async def _collect(self, chunks: AsyncIterator[Any], until: float) -> list[Any]:
        received: list[Any] = []
        async for chunk in chunks:
            received.append(chunk)
            if not self.buffered and chunk:
                break
            if until < inf and self.exchange.now() >= until:  # for transports whose sockets we cannot limit
                raise self.timeout_error()
        return received
