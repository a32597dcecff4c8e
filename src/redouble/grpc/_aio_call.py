"""Calls of `grpc.aio` that stream: each has a task in which its policy runs, and the face of a call.

They are there at once, before anything has come back, because gRPC hands on what a caller writes only then.

Calls of `grpc.aio` whose responses are a stream: they hand on its messages, and say how it ended.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, CancelledError, Event, Task, create_task, sleep, wait
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from contextlib import suppress
from typing import Any, cast

import grpc

from redouble._drivers.stream_source import END
from redouble.grpc._attempt import OpenedStream, arun_policy
from redouble.grpc._finished_call import AIO, CANCELLED
from redouble.grpc._permit import RpcResendGuard

__all__ = [
    "AioResendGuard",
    "DuplexCall",
    "StreamResponseCall",
    "TaskCall",
    "UnaryResponseCall",
    "WritableCall",
    "run",
]


class AioResendGuard(RpcResendGuard):
    """What one logical call has done, and may do; others may wait for an attempt to be under way."""

    broken: Exception | None = None  # what came after the first message

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.going = Event()

    def goes(self, call: Any) -> None:
        super().goes(call)
        self.going.set()

    def breaks(self, error: Exception) -> None:
        super().breaks(error)
        self.broken = error

    def ends(self, _: object) -> None:
        """Learn that the stream has ended."""
        self.requests.close()


async def run(permit: AioResendGuard) -> Any:
    """Make attempts; return the response, or the stream that has begun."""
    kept = False
    try:
        result = await arun_policy(permit)
        if isinstance(result, OpenedStream):
            result.call.add_done_callback(permit.ends)
            kept = True
    except Exception as error:
        permit.concludes(error, AIO)
        raise
    finally:
        if not kept:
            permit.requests.close()
    return result


class TaskCall(grpc.aio.Call):
    """A call whose policy runs in a task."""

    def __init__(self, permit: AioResendGuard) -> None:
        self._permit = permit
        self._task: Task[Any] = create_task(run(permit))
        self._task.add_done_callback(_seen)

    # ------------------------------------------------------------------------- its end

    def cancel(self) -> bool:
        """Cancel the call, or the waiting for its next attempt; say whether it was not over yet."""
        if not self._task.done():
            return self._task.cancel()
        return self._came_by() is not None and bool(self._came_by().cancel())

    def cancelled(self) -> bool:
        """Say whether it has ended because it was cancelled."""
        if not self._task.done() or self._task.cancelled():
            return self._task.done()
        call, error = self._came_by(), self._task.exception()
        if isinstance(error, grpc.aio.AioRpcError):
            return error.code() is grpc.StatusCode.CANCELLED
        return call is not None and bool(call.cancelled())

    def done(self) -> bool:
        """Say whether it is over."""
        call = self._came_by()
        return self._task.done() and (call is None or bool(call.done()))

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call a function with the call when it is over."""

        def ended(_: object) -> None:
            call = self._came_by()
            if call is None or call.done():
                callback(self)
            else:
                call.add_done_callback(ended)

        self._task.add_done_callback(ended)

    def time_remaining(self) -> float | None:
        """Tell how long the call may take, or None."""
        return self._permit.remaining()

    # ------------------------------------------------------------------- what was said

    async def initial_metadata(self) -> Any:
        """Wait for what the server sends first, and return it: there is no other attempt after that."""
        call = await self._going()
        if call is not None:
            found = await call.initial_metadata()
            if self._permit.commit(call) if found else not call.done():
                return found
        return await told(self, "initial_metadata", *nothing())

    async def trailing_metadata(self) -> Any:
        """Wait for the end, and return what the server sent last."""
        return await told(self, "trailing_metadata", *nothing())

    def code(self) -> Any:
        """Wait for the end, and return the code."""
        # No async function: gRPC makes a task of it when somebody writes, and earlier versions of it, when a
        # channel is closed, look for tasks whose function has a call for ``self``, and know only their own.
        codes = grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED
        return told(self, "code", *codes)

    async def details(self) -> Any:
        """Wait for the end, and return what the server said."""
        return await told(self, "details", "", "", CANCELLED)

    async def debug_error_string(self) -> Any:
        """Wait for the end, and return what gRPC says about it."""
        return await told(self, "debug_error_string", "", "", "")

    async def wait_for_connection(self) -> None:
        """Wait until an attempt has a connection."""
        while (call := await self._going()) is not None:
            with suppress(grpc.aio.AioRpcError):  # then it is up to the policy, which will hear of it soon
                await call.wait_for_connection()
                return
            await sleep(0)
        self._task.result()

    def _came_by(self) -> Any:
        """Return the call by which the response came, if there is one."""
        over = self._task.done() and not self._task.cancelled() and self._task.exception() is None
        return self._permit.current if over else None

    async def _going(self) -> Any:
        """Wait for an attempt to be under way, and return its call; None if it is over."""
        while not self._task.done():
            if self._permit.current is not None:
                return self._permit.current
            self._permit.going.clear()
            going = create_task(self._permit.going.wait(), name="going")
            try:
                await wait([self._task, going], return_when=FIRST_COMPLETED)
            finally:
                going.cancel()
        return None


def nothing() -> tuple[grpc.aio.Metadata, ...]:
    """Make metadata for calls without any, however they ended."""
    return (grpc.aio.Metadata(),) * 3


async def told(call: TaskCall, name: str, ok: Any, failed: Any, cut: Any) -> Any:
    """Ask what has succeeded, or the error; where there is neither, there are other words for it."""
    task = call._task
    await wait([task])
    if task.cancelled():
        return cut
    came_by, error = call._came_by(), task.exception()
    if came_by is not None:
        return await getattr(came_by, name)()
    if isinstance(error, grpc.aio.AioRpcError):
        return getattr(error, name)()
    return ok if error is None else failed


class WritableCall(TaskCall):
    """A call whose requests are a stream."""

    @property
    def _done_writing_flag(self) -> bool:
        return bool(getattr(self._permit.current, "_done_writing_flag", False))

    async def write(self, request: Any) -> None:  # noqa: ARG002
        """Refuse: gRPC hands on what the caller writes as an iterator."""
        raise grpc.aio.UsageError("an intercepted call is given its requests by gRPC itself")

    async def done_writing(self) -> None:
        """Refuse, for the same reason."""
        raise grpc.aio.UsageError("an intercepted call is given its requests by gRPC itself")


class UnaryResponseCall(WritableCall, grpc.aio.StreamUnaryCall[Any, Any]):
    """A call with a stream of requests and one response."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._task.__await__()


def _seen(task: Task[Any]) -> None:
    """Look at how it ended, so that asyncio does not complain that nobody has."""
    if not task.cancelled():
        task.exception()


class StreamResponseCall(TaskCall, grpc.aio.UnaryStreamCall[Any, Any]):
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


class DuplexCall(WritableCall, StreamResponseCall, grpc.aio.StreamStreamCall[Any, Any]):
    """A call with streams of both."""


async def messages(task: Task[Any], permit: AioResendGuard) -> AsyncIterator[Any]:
    """Hand on the messages of a stream."""
    opened = await task
    if not isinstance(opened, OpenedStream):  # a fallback, for instance
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
