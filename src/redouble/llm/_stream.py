"""Answer: the chunks of one logical stream, opened with retries and handed out under guard.

The stream guard: hands on the chunks of any iterator, and sees to it that they are what they seem.

Rule 1: a chunk that was handed out is never taken back: what goes wrong after the first ends the stream.
Rule 2: nothing is held back and nothing is read ahead; what is handed out is a prefix of one source's chunks.
Rule 3: silence, and the time of the whole call, end a wait: an async one is cut, a blocking one on a worker.
Rule 4: a stream that ends before it says so did not end.

Opening and the first chunk are a call like any other, under the limits of its policy: `_answer` has it made
by the driver of streams. `Guarded` and `AsyncGuarded` are the same in two colours.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeVar, cast

from redouble._drivers.async_items import AsyncItems, has_own_end
from redouble._drivers.attempt import run_on_worker
from redouble._drivers.stream_source import END, AsyncSource, Source, aclose_failed, close_failed
from redouble._drivers.streams import Opener, Stream
from redouble._engine.options import Options
from redouble._engine.run import StreamRun
from redouble._internal.public import public
from redouble._runtime.backend import cut_after
from redouble._runtime.deadline import MOMENT, ActiveDeadline, CancellableDeadline, cancelled, deadline
from redouble.errors import AttemptTimeout
from redouble.llm._context import CallContext
from redouble.llm._errors import CutShort
from redouble.llm._spend.usage import Usage
from redouble.llm._stream_source import asource_of, source_of
from redouble.llm._stream_state import ChunkInspector, StreamState

__all__ = ["Answer", "AsyncGuardedStream", "GuardedStream"]


T = TypeVar("T")


class GuardedStream(Iterator[T]):
    """The chunks of one attempt, in blocking code."""

    def __init__(self, flow: StreamState, open: Callable[[], Any]) -> None:  # noqa: A002
        self._flow, self._open = flow, open
        self._source: Source[T] | None = None
        self._lock = allocate_lock()
        self._busy = self._closed = False
        self._context: Context | None = None  # that of the source, if it is read on a worker
        self._look = ChunkInspector(flow)

    def __next__(self) -> T:
        self._look.pending()
        try:
            chunk: T = self._first() if self._source is None else self._next()
        except Exception as error:
            if not self._look.forgives(error):
                raise
            chunk = END
        if chunk is END:
            self._look.end()
            raise StopIteration
        self._look.pass_(chunk)
        return chunk

    def _first(self) -> Any:
        """Open the source and take its first chunk, on the worker of the policy if it has one."""
        if self._flow.worker is not None:
            self._context = copy_context()
        chunk = self._inside(self._begun)
        if cancelled():  # nobody waits for it any more, so nobody would close it
            self.close()
            raise AttemptTimeout("the stream began too late")
        return chunk

    def _begun(self) -> Any:
        with CallContext(self._flow.call), self._flow.told_to_our_clients():
            self._source = source = source_of(self._open, self._open())
            try:
                return source.first()
            except StopIteration:
                return END

    def _inside(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call something of the source: what a generator sets in its context is there for its next chunk."""
        return fn(*args) if self._context is None else self._context.run(fn, *args)

    def _next(self) -> Any:
        flow = self._flow
        if not flow.limited():
            return self._take()
        seconds = flow.time_left()
        if not seconds:
            raise flow.expired()
        if flow.worker is not None:
            return run_on_worker(flow, flow.worker, self._take)
        with deadline(seconds):  # what asks for it keeps it: our clients do
            try:
                return self._take()
            except Exception:
                flow.check()
                raise

    def _take(self) -> Any:
        """Take a chunk, on a worker perhaps; whoever has stopped waiting for it left the closing to us."""
        with self._lock:
            if self._closed or self._source is None:
                return END
            source, self._busy = self._source, True
        try:
            return self._inside(self._taken, source, MOMENT.get())
        finally:
            with self._lock:
                self._busy, closed = False, self._closed
            if closed:
                self._inside(close_failed, source)

    def _taken(self, source: Source[T], limit: ActiveDeadline | None) -> Any:
        before = MOMENT.get()
        if before is None or isinstance(before, CancellableDeadline):  # unless it has set one itself
            MOMENT.set(limit)
        with CallContext(self._flow.call), self._flow.kept_by_our_sockets():
            return next(source.items, END)

    def close(self) -> None:
        """Close the source; one that is being read is closed by who reads it."""
        with self._lock:
            self._closed, busy = True, self._busy
        try:
            self._flow.settle(self._look)
        finally:
            if self._source is not None and not busy:
                self._inside(self._shut, self._source)

    def _shut(self, source: Source[T]) -> None:
        with CallContext(self._flow.call), self._look.closing():
            source.close()

    def __del__(self) -> None:
        if self._source is not None and not self._closed:
            self._inside(close_failed, self._source)


class AsyncGuardedStream(AsyncIterator[T]):
    """The chunks of one attempt, in async code."""

    def __init__(self, flow: StreamState, open: Callable[[], Any]) -> None:  # noqa: A002
        self._flow, self._open = flow, open
        self._source: AsyncSource[T] | None = None
        self.ag_running = False  # as an async generator has it
        flow.look = self._look = ChunkInspector(flow)

    async def __anext__(self) -> T:
        if self.ag_running:
            raise RuntimeError("anext(): asynchronous generator is already running")
        self._look.pending()
        self.ag_running = cut = True
        try:
            chunk: T = await (self._afirst() if self._source is None else self._anext())
            cut = False
        except Exception as error:
            cut = False
            if not self._look.forgives(error):
                raise
            chunk = END
        finally:
            self.ag_running = False
            if cut and self._look.count:
                await self._leave()
        if chunk is END:
            self._look.end()
            raise StopAsyncIteration
        self._look.pass_(chunk)
        return chunk

    async def _afirst(self) -> Any:
        """Open the source and take its first chunk, for as long as the policy lets it."""
        with CallContext(self._flow.call):
            found = self._open()
            self._source = source = await asource_of(self._open, found)
            try:
                return await source.afirst()
            except StopAsyncIteration:
                return END

    async def _anext(self) -> Any:
        source = cast("AsyncSource[T]", self._source)
        seconds = self._flow.time_left()
        if seconds:
            with CallContext(self._flow.call), cut_after(seconds):
                return await anext(source.items, END)
        raise self._flow.expired()

    async def asend(self, value: object, /) -> T:  # noqa: ARG002  as in blocking code nobody receives it
        """Take the next chunk: a reader may take it for the async generator that it stands for."""
        return await self.__anext__()

    async def athrow(self, kind: Any, *more: Any) -> T:
        """Raise what a reader throws: it has gone wrong over there."""
        raise more[0] if more and more[0] is not None else kind

    async def _leave(self) -> None:
        """Close the source at once: its reader was cancelled."""
        self._flow.cut = True
        await aclose_failed(cast("AsyncSource[T]", self))  # it is closed as one is

    async def aclose(self) -> None:
        """Close the source."""
        try:
            self._flow.settle(self._look)
        finally:
            if self._source is not None:
                with CallContext(self._flow.call), self._look.closing():
                    await self._source.aclose()

    def may_wait(self) -> bool:
        """Say whether closing it may have to wait."""
        return self._source is not None and self._source.may_wait()

    @property
    def has_own_end(self) -> bool:
        """Whether a garbage collector that finds it finalises its source too."""
        return self._source is not None and has_own_end(self._source.items)


class StreamOpener(Opener[T]):
    """Opens the sources of one guarded stream."""

    def __init__(
        self,
        flow: StreamState,
        policy: Options,
        name: str,
        open: Callable[[], Any],  # noqa: A002
        *,
        aio: bool = False,
    ) -> None:
        guarded = partial(AsyncGuardedStream[T], flow, open) if aio else partial(GuardedStream[T], flow, open)
        super().__init__(policy, name, guarded, aio=aio)
        self._flow = flow

    def open(self) -> tuple[Source[T], T]:
        """Open a source, with retries, and take its first chunk."""
        with self._flow.opening():
            return super().open()

    async def aopen(self) -> tuple[AsyncSource[T], T]:
        """Open a source, with retries, and take its first chunk."""
        with self._flow.opening():
            return await super().aopen()

    def failed(self, error: Exception, *, final: bool = False) -> bool:
        """Take note that a source failed after its first chunk: the stream is over."""
        self._cut = self._cut or self._flow.cut
        cast("StreamRun", self._run).limit = self._flow.late
        return super().failed(error, final=final)

    def cut(self, error: BaseException | None) -> None:
        """Tell nobody, but settle what it took."""
        super().cut(error)
        self._flow.leave()

    def ended(self) -> None:
        """Take note that a source came to its end, or was closed."""
        self._cut = self._cut or self._flow.cut
        super().ended()

    def _refuse(self) -> None:
        """Refuse nothing: its source may be read on a worker."""


class GuardedItems(AsyncItems[T]):
    """The chunks of a guarded stream in async code: one whose reader was cancelled never looks complete."""

    __slots__ = ("_flow",)

    def __init__(self, opening: StreamOpener[T], flow: StreamState) -> None:
        super().__init__(opening)
        self._flow = flow

    async def __anext__(self, take: Any = None, thrown: object = None) -> T:
        if self._flow.cut:
            raise CutShort("the stream was cancelled, and closed")
        return await super().__anext__(take, thrown)


@public("redouble.llm")
class Answer(Stream[T], Generic[T]):
    """The chunks of one answer, for ``for`` or ``async for``, as what opens it demands.

    It is closed at its end; to close it early, use it in a ``with`` or ``async with``.
    """

    def __init__(
        self,
        flow: StreamState,
        policy: Options,
        name: str,
        open: Callable[[], Any],  # noqa: A002
    ) -> None:
        make = partial(StreamOpener[T], flow, policy, name, open)
        super().__init__(make)
        self._async_items = GuardedItems(make(aio=True), flow)
        self._flow = flow

    @property
    def usage(self) -> Usage | None:
        """The tokens that it took, once it is over and if it said so."""
        return self._flow.usage
