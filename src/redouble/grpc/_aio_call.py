"""The calls of `grpc.aio` that stream requests or responses: a task runs the policy of each.

An interceptor returns such a call at once, before the first attempt has a response, because gRPC passes on
the caller's writes only after that.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, CancelledError, Future, Task, create_task, sleep, wait
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from contextlib import suppress
from functools import partialmethod
from typing import Any, cast

import grpc

from redouble._drivers.opened_stream import END
from redouble._redaction.rendering import shown, text_of
from redouble.errors import Reason
from redouble.grpc._attempt import OpenedStream, arun_policy
from redouble.grpc._finished_call import CANCELLED
from redouble.grpc._resend_guard import RpcResendGuard, cancel


async def status_of(call: TaskCall, name: str) -> Any:
    """Wait for the end of a call; read a status method of the RPC that succeeded, or of the error."""
    # gRPC creates a task of ``code()`` when the caller writes. When a channel is closed, earlier versions of
    # gRPC look for tasks whose coroutine has a call as ``self``, and expect one of their own classes.
    await wait([call._task])
    ended = call._ended()
    status = getattr(ended, name)()
    return status if isinstance(ended, grpc.RpcError) else await status


class TaskCall(grpc.aio.Call):
    """A call whose policy runs in a task."""

    def __init__(self, guard: RpcResendGuard) -> None:
        self._guard, self._continuation = guard, guard.continuation
        self._next_rpc: Future[None] = Future()  # done as soon as another attempt has its RPC
        guard.continuation = self._start_rpc
        self._task: Task[Any] = create_task(arun_policy(guard))
        self.add_done_callback(lambda _: guard.requests.close())

    async def _start_rpc(self, call_details: Any, requests: Any) -> Any:
        rpc = await self._continuation(call_details, requests)
        self._next_rpc.set_result(None)
        self._next_rpc = Future()
        return rpc

    def _ended(self) -> Any:
        """Return the RPC that succeeded, or the error of the call that has ended, or None before that."""
        if not self._task.done():
            return None
        if self._task.cancelled():
            code, details = grpc.StatusCode.CANCELLED, CANCELLED
        else:
            error = self._task.exception()
            if error is None and self._guard.current is not None:
                return self._guard.current
            if isinstance(error, grpc.aio.AioRpcError):
                return error
            # The result of a fallback, or an error that is not gRPC's.
            unknown = grpc.StatusCode.UNKNOWN
            code, details = (grpc.StatusCode.OK, "") if error is None else (unknown, shown(text_of(error)))
        return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, "")

    # ------------------------------------------------------------------------- the end

    def cancel(self) -> bool:
        """Cancel the call or its delay; return False if it has ended already."""
        return self._task.cancel() or cancel(self._ended())

    def cancelled(self) -> bool:
        """Return True if the call ended by cancellation."""
        ended = self._ended()
        if isinstance(ended, grpc.RpcError):
            return cast("Any", ended).code() is grpc.StatusCode.CANCELLED
        return ended is not None and bool(ended.cancelled())

    def done(self) -> bool:
        """Return True if the call has ended."""
        ended = self._ended()
        return isinstance(ended, grpc.RpcError) or (ended is not None and bool(ended.done()))

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call a function with this call when it ends."""

        def ended(_: object) -> None:
            if self.done():
                callback(self)
            else:
                self._ended().add_done_callback(ended)

        self._task.add_done_callback(ended)

    def time_remaining(self) -> float | None:
        """Return how many seconds are left for the call, or None if it has no deadline."""
        return self._guard.time_remaining()

    # ------------------------------------------------------------- metadata and status

    code: Any = partialmethod(status_of, "code")
    details: Any = partialmethod(status_of, "details")
    trailing_metadata: Any = partialmethod(status_of, "trailing_metadata")
    debug_error_string: Any = partialmethod(status_of, "debug_error_string")

    async def initial_metadata(self) -> Any:
        """Wait for the initial metadata and return them; no attempt follows once the caller has them."""
        rpc = await self._running_rpc()
        if rpc is not None:
            metadata = await rpc.initial_metadata()
            if self._guard.commit(rpc) if metadata else not rpc.done():
                return metadata
        return await status_of(self, "initial_metadata")

    async def wait_for_connection(self) -> None:
        """Wait until an attempt is connected."""
        while (rpc := await self._running_rpc()) is not None:
            with suppress(grpc.aio.AioRpcError):  # the policy, which gets the same error, decides
                await rpc.wait_for_connection()
                return
            await sleep(0)
        self._task.result()

    async def _running_rpc(self) -> Any:
        """Wait for a running attempt and return its RPC; None if the call has ended."""
        while not self._task.done() and self._guard.current is None:
            await wait([self._task, self._next_rpc], return_when=FIRST_COMPLETED)
        return None if self._task.done() else self._guard.current


class WritableCall(TaskCall):
    """A call with a stream of requests."""

    @property
    def _done_writing_flag(self) -> bool:
        return bool(getattr(self._guard.current, "_done_writing_flag", False))

    async def write(self, request: Any = None) -> None:  # noqa: ARG002
        """Raise: gRPC itself passes the requests that the caller writes, as an iterator."""
        raise grpc.aio.UsageError("gRPC itself passes the requests to an intercepted call")

    done_writing = write


class UnaryResponseCall(WritableCall, grpc.aio.StreamUnaryCall[Any, Any]):
    """A call with a stream of requests and one response."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._task.__await__()


class StreamResponseCall(TaskCall, grpc.aio.UnaryStreamCall[Any, Any]):
    """A call with one request and a stream of responses."""

    _items: Any = None  # the messages after the first
    _broken: Exception | None = None  # the error that followed the first message

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        opened = await self._task
        if not isinstance(opened, OpenedStream):  # the result of a fallback, for instance
            self._items = self._items or _iterate(opened)
            return await anext(self._items)
        if self._items is None:
            self._items = opened.items
            if opened.first is not END:
                return opened.first
        try:
            message = await anext(self._items, END)
        except Exception as error:
            self._guard.annotate(error, Reason.committed)
            self._broken = error
            raise
        if message is not END:
            return message
        # The messages of an RPC that failed or was cancelled end after one error: raise it again.
        if self._broken is not None:
            raise self._broken
        if self.cancelled():
            raise CancelledError
        raise StopAsyncIteration

    async def read(self) -> Any:
        """Return the next response, or `grpc.aio.EOF`."""
        return await anext(self, grpc.aio.EOF)


class DuplexCall(WritableCall, StreamResponseCall, grpc.aio.StreamStreamCall[Any, Any]):
    """A call with a stream of requests and a stream of responses."""


async def _iterate(items: Any) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in cast("Any", items):
            yield item
    else:
        for item in items:
            yield item
