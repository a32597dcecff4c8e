"""Answer, the chunks of one logical stream, and the guarded streams that check them, one for each attempt.

Rule 1: a delivered chunk is final: a failure after the first one ends the stream.
Rule 2: nothing is buffered and nothing is read ahead; the delivered chunks are a prefix of one source.
Rule 3: the limits on silence and on the total time end a wait: in async code by cancellation, in blocking
        code by abandoning the worker.
Rule 4: a stream that ends without its end marker is incomplete.

Opening and reading the first chunk is a call like any other, under the limits of its policy: `StreamOpener`
runs it with the driver of streams. `GuardedStream` and `AsyncGuardedStream` are the same in two colours.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeVar, cast

from redouble._drivers.attempt_timeout import run_on_worker
from redouble._drivers.opened_stream import END, AsyncSource, Source, aclose_failed, close_failed
from redouble._drivers.streams import Opener, Stream
from redouble._engine.options import Options
from redouble._engine.run import StreamRun
from redouble._internal.public import public
from redouble._runtime.backend import cancel_after
from redouble._runtime.deadline import (
    ACTIVE_DEADLINE,
    ActiveDeadline,
    CancellableDeadline,
    cancelled,
    deadline,
)
from redouble.errors import AttemptTimeout
from redouble.llm._current_call import CallContext
from redouble.llm._errors import CutShort
from redouble.llm._spend.usage import Usage
from redouble.llm._stream_adapters import asource_of, source_of
from redouble.llm._stream_state import ChunkInspector, StreamState

__all__ = ["Answer", "AsyncGuardedStream", "GuardedStream"]


T = TypeVar("T")


class GuardedStream(Iterator[T]):
    """The guarded chunks of one attempt, in blocking code."""

    def __init__(self, state: StreamState, open: Callable[[], Any]) -> None:  # noqa: A002
        self._state, self._open = state, open
        self._source: Source[T] | None = None
        self._lock = allocate_lock()
        self._busy = self._closed = False
        self._context: Context | None = None  # of the source, if a worker reads it
        self._inspector = ChunkInspector(state)

    def __next__(self) -> T:
        self._inspector.raise_pending()
        try:
            chunk: T = self._open_and_read() if self._source is None else self._next()
        except Exception as error:
            if not self._inspector.tolerates(error):
                raise
            chunk = END
        if chunk is END:
            self._inspector.end()
            raise StopIteration
        self._inspector.inspect(chunk)
        return chunk

    def _open_and_read(self) -> Any:
        """Open the source and read its first chunk; the driver runs this on the policy's worker, if any."""
        if self._state.worker is not None:
            self._context = copy_context()
        chunk = self._run_in_context(self._read_first)
        if cancelled():  # the attempt has timed out: nothing else would close the source
            self.close()
            raise AttemptTimeout("the stream began too late")
        return chunk

    def _read_first(self) -> Any:
        with CallContext(self._state.call), self._state.opening_deadline():
            self._source = source = source_of(self._open, self._open())
            try:
                return source.first()
            except StopIteration:
                return END

    def _run_in_context(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run ``fn`` in the source's context: variables that a generator sets stay for its next chunk."""
        return fn(*args) if self._context is None else self._context.run(fn, *args)

    def _next(self) -> Any:
        state = self._state
        if not state.is_limited():
            return self._read_next()
        seconds = state.time_left()
        if not seconds:
            raise state.expired()
        if state.worker is not None:
            return run_on_worker(state, state.worker, self._read_next)
        with deadline(seconds):  # enforced by clients that read it, such as redouble's own
            try:
                return self._read_next()
            except Exception:
                state.check()
                raise

    def _read_next(self) -> Any:
        """Read a chunk, possibly on a worker; if the reader closed the stream meanwhile, close the source."""
        with self._lock:
            if self._closed or self._source is None:
                return END
            source, self._busy = self._source, True
        try:
            return self._run_in_context(self._read_source, source, ACTIVE_DEADLINE.get())
        finally:
            with self._lock:
                self._busy, closed = False, self._closed
            if closed:
                self._run_in_context(close_failed, source)

    def _read_source(self, source: Source[T], limit: ActiveDeadline | None) -> Any:
        before = ACTIVE_DEADLINE.get()
        if before is None or isinstance(before, CancellableDeadline):  # else the source has set its own
            ACTIVE_DEADLINE.set(limit)
        with CallContext(self._state.call), self._state.socket_deadline():
            return next(source.items, END)

    def close(self) -> None:
        """Close the source; if it is being read, the reading thread closes it."""
        with self._lock:
            self._closed, busy = True, self._busy
        try:
            self._state.settle(self._inspector)
        finally:
            if self._source is not None and not busy:
                self._run_in_context(self._close_source, self._source)

    def _close_source(self, source: Source[T]) -> None:
        with CallContext(self._state.call), self._inspector.closing():
            source.close()

    def __del__(self) -> None:
        if self._source is not None and not self._closed:
            self._run_in_context(close_failed, self._source)


class AsyncGuardedStream(AsyncIterator[T]):
    """The guarded chunks of one attempt, in async code."""

    def __init__(self, state: StreamState, open: Callable[[], Any]) -> None:  # noqa: A002
        self._state, self._open = state, open
        self._source: AsyncSource[T] | None = None
        self.ag_running = False  # like an async generator
        state.inspector = self._inspector = ChunkInspector(state)

    async def __anext__(self) -> T:
        if self.ag_running:
            raise RuntimeError("anext(): asynchronous generator is already running")
        self._inspector.raise_pending()
        self.ag_running = was_cancelled = True
        try:
            chunk: T = await (self._aopen_and_read() if self._source is None else self._anext())
            was_cancelled = False
        except Exception as error:
            was_cancelled = False
            if not self._inspector.tolerates(error):
                raise
            chunk = END
        finally:
            self.ag_running = False
            if was_cancelled and self._inspector.count:
                await self._close_cancelled()
        if chunk is END:
            self._inspector.end()
            raise StopAsyncIteration
        self._inspector.inspect(chunk)
        return chunk

    async def _aopen_and_read(self) -> Any:
        """Open the source and read its first chunk, within the limits of the policy."""
        with CallContext(self._state.call):
            opened = self._open()
            self._source = source = await asource_of(self._open, opened)
            try:
                return await source.afirst()
            except StopAsyncIteration:
                return END

    async def _anext(self) -> Any:
        source = cast("AsyncSource[T]", self._source)
        seconds = self._state.time_left()
        if seconds:
            with CallContext(self._state.call), cancel_after(seconds):
                return await anext(source.items, END)
        raise self._state.expired()

    async def asend(self, value: object, /) -> T:  # noqa: ARG002  no source receives it, as in blocking code
        """Return the next chunk: the driver treats this stream as an async generator."""
        return await self.__anext__()

    async def athrow(self, kind: Any, *more: Any) -> T:
        """Raise the error that the reader throws."""
        raise more[0] if more and more[0] is not None else kind

    async def _close_cancelled(self) -> None:
        """Close the source at once, because its reader was cancelled."""
        self._state.cancelled = True
        await aclose_failed(cast("AsyncSource[T]", self))  # has the same aclose()

    async def aclose(self) -> None:
        """Close the source."""
        try:
            self._state.settle(self._inspector)
        finally:
            if self._source is not None:
                with CallContext(self._state.call), self._inspector.closing():
                    await self._source.aclose()


class StreamOpener(Opener[T]):
    """Opens the guarded sources of one logical stream, with retries until the first chunk."""

    def __init__(
        self,
        state: StreamState,
        policy: Options,
        name: str,
        open: Callable[[], Any],  # noqa: A002
        *,
        aio: bool = False,
    ) -> None:
        make_source = (
            partial(AsyncGuardedStream[T], state, open) if aio else partial(GuardedStream[T], state, open)
        )
        super().__init__(policy, name, make_source, aio=aio)
        self._state = state

    def open(self) -> tuple[Source[T], T]:
        """Open a source, with retries, and return it with its first chunk."""
        with self._state.opening():
            return super().open()

    async def aopen(self) -> tuple[AsyncSource[T], T]:
        """Open a source, with retries, and return it with its first chunk."""
        with self._state.opening():
            return await super().aopen()

    def failed(self, error: Exception, *, final: bool = False) -> bool:
        """Record that a source failed after its first chunk: the stream is over."""
        self._cut = self._cut or self._state.cancelled
        cast("StreamRun", self._run).limit = self._state.expired_limit
        return super().failed(error, final=final)

    def cut(self, error: BaseException | None) -> None:
        """Record a cancellation or garbage collection: emit no event, but settle the spend."""
        super().cut(error)
        self._state.abandon()

    def ended(self) -> None:
        """Record that a source came to its end, or was closed."""
        self._cut = self._cut or self._state.cancelled
        super().ended()

    def _reject_unsupported(self) -> None:
        """Accept every limit of the policy: a worker may read the source."""


class GuardedItems(AsyncGenerator[T, Any]):
    """The async items of a guarded stream: raise, instead of ending, after the reader was cancelled."""

    def __init__(self, items: AsyncGenerator[T, Any], state: StreamState) -> None:
        self._items, self._state = items, state

    async def __anext__(self) -> T:
        return await self.asend(None)

    async def asend(self, value: object, /) -> T:
        if self._state.cancelled:
            raise CutShort("the stream was cancelled, and closed")
        return await self._items.asend(value)

    async def athrow(self, *error: Any) -> T:
        return await self._items.athrow(*error)

    async def aclose(self) -> None:
        await self._items.aclose()


@public("redouble.llm")
class Answer(Stream[T], Generic[T]):
    """The chunks of one answer, for ``for`` or ``async for``, depending on the function that opens it.

    It is closed at its end; to close it earlier, use ``with`` or ``async with``.
    """

    def __init__(
        self,
        state: StreamState,
        policy: Options,
        name: str,
        open: Callable[[], Any],  # noqa: A002
    ) -> None:
        make = partial(StreamOpener[T], state, policy, name, open)
        super().__init__(make)
        self._async_items = GuardedItems(self._async_items, state)
        self._state = state

    @property
    def usage(self) -> Usage | None:
        """The tokens that the stream reported; None until it is over, or if it reported none."""
        return self._state.usage
