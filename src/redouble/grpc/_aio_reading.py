"""Calls of `grpc.aio` whose responses are a stream: they hand on its messages, and say how it ended."""

from __future__ import annotations

from asyncio import CancelledError, Task
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, cast

import grpc

from redouble._drivers.stream_source import END
from redouble.grpc._aio_call import AioPermit, Running, Writing
from redouble.grpc._attempt import Opened

__all__ = ["Reading", "ReadingAndWriting"]


class Reading(Running, grpc.aio.UnaryStreamCall[Any, Any]):
    """A call with one request and a stream of responses."""

    _messages: AsyncIterator[Any] | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._messages is None:
            self._messages = messages(self._task, self._permit)
        message = await anext(self._messages, END)
        if message is not END:
            return message
        # A generator that has raised is at its end, which must not pass for the end of the stream.
        self._task.result()
        if self._permit.broken is not None:
            raise self._permit.broken
        if self.cancelled():
            raise CancelledError
        raise StopAsyncIteration

    async def read(self) -> Any:
        """Return the next response, or `grpc.aio.EOF`."""
        return await anext(self, grpc.aio.EOF)


class ReadingAndWriting(Writing, Reading, grpc.aio.StreamStreamCall[Any, Any]):
    """A call with streams of both."""


async def messages(task: Task[Any], permit: AioPermit) -> AsyncIterator[Any]:
    """Hand on the messages of a stream."""
    opened = await task
    if not isinstance(opened, Opened):  # a fallback, for instance
        async for item in _each(opened):
            yield item
        return
    if opened.first is END:
        return
    yield opened.first
    try:
        async for message in opened.items:
            yield message
    except Exception as error:
        permit.breaks(error)
        raise


async def _each(items: Any) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in cast("Any", items):
            yield item
    else:
        for item in items:
            yield item
