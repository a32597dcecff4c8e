"""The calls of `grpc.aio` that stream requests or responses: a task runs the policy of each.

An interceptor returns such a call at once, before the first attempt has a response, because gRPC passes on
the caller's writes only after that.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, CancelledError, Event, Task, create_task, sleep, wait
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from contextlib import suppress
from typing import Any, cast

import grpc

from redouble._drivers.opened_stream import END
from redouble.grpc._attempt import OpenedStream, arun_policy
from redouble.grpc._finished_call import AIO, CANCELLED
from redouble.grpc._resend_guard import RpcResendGuard

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
    """The state of one logical call in async code, with an event for the start of an attempt."""

    broken: Exception | None = None  # the error that followed the first message

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.attempt_started = Event()

    def attach(self, call: Any) -> None:
        super().attach(call)
        self.attempt_started.set()

    def record_break(self, error: Exception) -> None:
        super().record_break(error)
        self.broken = error

    def close_requests(self, _: object) -> None:
        """Close the requests at the end of the stream."""
        self.requests.close()


async def run(guard: AioResendGuard) -> Any:
    """Run the policy of a call; return the response or the opened stream."""
    streaming = False
    try:
        result = await arun_policy(guard)
        if isinstance(result, OpenedStream):
            result.call.add_done_callback(guard.close_requests)
            streaming = True
    except Exception as error:
        guard.conclude(error, AIO)
        raise
    finally:
        if not streaming:
            guard.requests.close()
    return result


class TaskCall(grpc.aio.Call):
    """A call whose policy runs in a task."""

    def __init__(self, guard: AioResendGuard) -> None:
        self._guard = guard
        self._task: Task[Any] = create_task(run(guard))
        self._task.add_done_callback(_retrieve_error)

    # ------------------------------------------------------------------------- the end

    def cancel(self) -> bool:
        """Cancel the call or its delay; return False if it has ended already."""
        if not self._task.done():
            return self._task.cancel()
        return self._successful_rpc() is not None and bool(self._successful_rpc().cancel())

    def cancelled(self) -> bool:
        """Return True if the call ended by cancellation."""
        if not self._task.done() or self._task.cancelled():
            return self._task.done()
        call, error = self._successful_rpc(), self._task.exception()
        if isinstance(error, grpc.aio.AioRpcError):
            return error.code() is grpc.StatusCode.CANCELLED
        return call is not None and bool(call.cancelled())

    def done(self) -> bool:
        """Return True if the call has ended."""
        call = self._successful_rpc()
        return self._task.done() and (call is None or bool(call.done()))

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call a function with this call when it ends."""

        def ended(_: object) -> None:
            call = self._successful_rpc()
            if call is None or call.done():
                callback(self)
            else:
                call.add_done_callback(ended)

        self._task.add_done_callback(ended)

    def time_remaining(self) -> float | None:
        """Return how many seconds are left for the call, or None if it has no deadline."""
        return self._guard.time_remaining()

    # ------------------------------------------------------------- metadata and status

    async def initial_metadata(self) -> Any:
        """Wait for the initial metadata and return them; no attempt follows once the caller has them."""
        call = await self._running_rpc()
        if call is not None:
            metadata = await call.initial_metadata()
            if self._guard.commit(call) if metadata else not call.done():
                return metadata
        return await status_of(self, "initial_metadata", *no_metadata())

    async def trailing_metadata(self) -> Any:
        """Wait for the end; return the trailing metadata."""
        return await status_of(self, "trailing_metadata", *no_metadata())

    def code(self) -> Any:
        """Wait for the end; return the status code."""
        # Not an async function: gRPC creates a task of it when the caller writes. When a channel is closed,
        # earlier versions of gRPC look for tasks whose coroutine has a call as ``self``, and expect one of
        # their own classes.
        codes = grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED
        return status_of(self, "code", *codes)

    async def details(self) -> Any:
        """Wait for the end; return the status message."""
        return await status_of(self, "details", "", "", CANCELLED)

    async def debug_error_string(self) -> Any:
        """Wait for the end; return gRPC's debug text."""
        return await status_of(self, "debug_error_string", "", "", "")

    async def wait_for_connection(self) -> None:
        """Wait until an attempt is connected."""
        while (call := await self._running_rpc()) is not None:
            with suppress(grpc.aio.AioRpcError):  # the policy, which gets the same error, decides
                await call.wait_for_connection()
                return
            await sleep(0)
        self._task.result()

    def _successful_rpc(self) -> Any:
        """Return the RPC that succeeded, if any."""
        succeeded = self._task.done() and not self._task.cancelled() and self._task.exception() is None
        return self._guard.current if succeeded else None

    async def _running_rpc(self) -> Any:
        """Wait for a running attempt and return its RPC; None if the call has ended."""
        while not self._task.done():
            if self._guard.current is not None:
                return self._guard.current
            self._guard.attempt_started.clear()
            started = create_task(self._guard.attempt_started.wait(), name="attempt started")
            try:
                await wait([self._task, started], return_when=FIRST_COMPLETED)
            finally:
                started.cancel()
        return None


def no_metadata() -> tuple[grpc.aio.Metadata, ...]:
    """Return empty metadata for each of the three outcomes: success, failure, cancellation."""
    return (grpc.aio.Metadata(),) * 3


async def status_of(call: TaskCall, name: str, ok: Any, failed: Any, cancelled: Any) -> Any:
    """Read a status method of the RPC that succeeded, or of the error; else return the given default."""
    task = call._task
    await wait([task])
    if task.cancelled():
        return cancelled
    rpc, error = call._successful_rpc(), task.exception()
    if rpc is not None:
        return await getattr(rpc, name)()
    if isinstance(error, grpc.aio.AioRpcError):
        return getattr(error, name)()
    return ok if error is None else failed


class WritableCall(TaskCall):
    """A call with a stream of requests."""

    @property
    def _done_writing_flag(self) -> bool:
        return bool(getattr(self._guard.current, "_done_writing_flag", False))

    async def write(self, request: Any) -> None:  # noqa: ARG002
        """Raise: gRPC itself passes the requests that the caller writes, as an iterator."""
        raise grpc.aio.UsageError("gRPC itself passes the requests to an intercepted call")

    async def done_writing(self) -> None:
        """Raise, for the same reason."""
        raise grpc.aio.UsageError("gRPC itself passes the requests to an intercepted call")


class UnaryResponseCall(WritableCall, grpc.aio.StreamUnaryCall[Any, Any]):
    """A call with a stream of requests and one response."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._task.__await__()


def _retrieve_error(task: Task[Any]) -> None:
    """Retrieve the error of the task, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()


class StreamResponseCall(TaskCall, grpc.aio.UnaryStreamCall[Any, Any]):
    """A call with one request and a stream of responses."""

    _messages: AsyncIterator[Any] | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._messages is None:
            self._messages = messages(self._task, self._guard)
        message = await anext(self._messages, END)
        if message is not END:
            return message
        # A generator that has raised is exhausted: raise its error again instead of ending the stream.
        self._task.result()
        if self._guard.broken is not None:
            raise self._guard.broken
        if self.cancelled():
            raise CancelledError
        raise StopAsyncIteration

    async def read(self) -> Any:
        """Return the next response, or `grpc.aio.EOF`."""
        return await anext(self, grpc.aio.EOF)


class DuplexCall(WritableCall, StreamResponseCall, grpc.aio.StreamStreamCall[Any, Any]):
    """A call with a stream of requests and a stream of responses."""


async def messages(task: Task[Any], guard: AioResendGuard) -> AsyncIterator[Any]:
    """Yield the messages of a stream."""
    opened = await task
    if not isinstance(opened, OpenedStream):  # the result of a fallback, for instance
        async for item in _iterate(opened):
            yield item
        return
    if opened.first is END:
        return
    yield opened.first
    try:
        async for message in opened.items:
            yield message
    except Exception as error:
        guard.record_break(error)
        raise


async def _iterate(items: Any) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in cast("Any", items):
            yield item
    else:
        for item in items:
            yield item
