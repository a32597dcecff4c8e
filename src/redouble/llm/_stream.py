"""Guarded streams: the chunks of one attempt, each inspected before it is delivered.

Rule 1: nothing is buffered and nothing is read ahead; the delivered chunks are a prefix of one source.
Rule 2: the limits on silence and on the total time end a wait: in async code by cancellation, in blocking
        code by abandoning the worker.
Rule 3: a stream that ends without its end marker is incomplete.

`BlockingStream` and `AsyncStream` are a `GuardedStream` in two colours.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from redouble._clients.socket_deadline import SOCKET_DEADLINE
from redouble._drivers.attempt_timeout import overdue, run_on_worker
from redouble._drivers.opened_stream import END, AsyncSource, Source, close_failed
from redouble._drivers.workers.threads import ThreadJob
from redouble._engine.worker import Worker
from redouble._internal.callables import UsageError, display_name
from redouble._internal.logger import log
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import backend
from redouble._runtime.clock import SYSTEM, Clock, virtual
from redouble._runtime.deadline import ACTIVE_DEADLINE, ActiveDeadline, cancelled, deadline_left
from redouble.errors import AttemptTimeout, Limit
from redouble.llm._call import CURRENT, Call, in_context, leave
from redouble.llm._errors import CutShort, ErrorEvent
from redouble.llm._protocols.base import Protocol, ProtocolFactory
from redouble.llm._protocols.builtin import TEXTS
from redouble.llm._rules import table
from redouble.llm._spend.usage import Usage
from redouble.llm._stream_adapters import asource_of, source_of

if TYPE_CHECKING:
    from redouble._runtime.backend import CancelScope

T = TypeVar("T")


class GuardedStream(Generic[T]):
    """The chunks of one attempt: each is inspected before it is delivered, and neither delayed nor changed.

    This class never waits: it holds the limits of each wait for a chunk, and settles the spend at the end.
    """

    clock: Clock = SYSTEM
    usage: Usage | None = None  # of a stream that is over
    expired_limit: Limit | None = None  # the limit that ended the stream
    ended = False  # the source came to its end
    count = 0  # chunks
    opened: object = None  # the stream of the SDK, or whatever else is iterated over
    _pending_error: ErrorEvent | None = None  # followed content in the chunk delivered last
    _chunk_due = inf  # the time by which the next chunk must arrive

    def __init__(
        self, call: Call, opens: Callable[[], Any], protocol: ProtocolFactory | None, worker: Worker | None
    ) -> None:
        self._call, self._open, self._worker = call, opens, worker
        self._protocol = None if protocol is None else _make_protocol(protocol)
        self._silence = call.timeouts.silence

    # --------------------------------------------------------------------------- chunks

    def inspect(self, chunk: object) -> None:
        """Inspect a chunk before it is delivered; raise its error event, or `SpendExceeded`."""
        protocol, account = self._protocol, self._call._account
        if protocol is not None:
            error = protocol.read(chunk)
            if error is not None:
                # A piece of text may have content before its error event: the content is delivered first.
                if not self.count or not isinstance(chunk, TEXTS):
                    raise error
                self._pending_error = error
        self.count += 1
        if account is not None:
            account.record_progress(None if protocol is None else protocol.usage, self._pieces())

    def end(self) -> None:
        """Record the end of the source; raise `CutShort` if the stream is incomplete."""
        protocol = self._protocol
        if protocol is not None and not protocol.ended:
            if not self.count:
                raise CutShort("the stream ended before its first chunk")
            if protocol.known:
                raise CutShort(protocol.cut_short())
        self.ended = True

    def tolerates(self, error: Exception) -> bool:
        """Return True if an error is harmless: the connection broke after the end marker."""
        verdict = table(error) if self._is_complete() else None
        if verdict is None or verdict.action != "retry":  # a bug in the caller's code, for instance
            return False
        self.expired_limit = None
        log("a stream failed after its end marker", info=True)
        return True

    # --------------------------------------------------------------------------- limits

    def time_left(self, *, own: bool = True) -> float:  # noqa: ARG002  all limits are its own
        """Return the seconds left for the next chunk, and record which limit that is."""
        call, silence = self._call, self._silence
        now = call._now()
        if call._around_ends_at < call._stream_ends_at:
            call.begin_stream()
        total = call._ends_at - now
        self._chunk_seconds = shortest = min(silence, total, deadline_left(), call._around_ends_at - now)
        self._chunk_due = now + shortest
        self._chunk_limit: Limit = (
            "attempt" if shortest == silence else "total" if shortest == total else "deadline"
        )
        return shortest if shortest > 0 else 0.0

    def refresh_now(self) -> float:
        """Return the time."""
        return self._call._now()

    def expired(self) -> AttemptTimeout:
        """Record the limit of an expired wait; return the error to raise."""
        self.expired_limit = limit = self._chunk_limit
        seconds = max(0.0, self._chunk_seconds)
        cause = f"no chunk came for {seconds:g} s" if limit == "attempt" else f"its {limit} time was up"
        return AttemptTimeout(f"the stream was given up: {cause}", limit=limit, seconds=seconds)

    def leave_worker(self, *, alone: bool) -> None:
        """Do nothing when the worker is abandoned: it closes its source when the read has ended."""

    # ------------------------------------------------------------------------------ end

    def settle(self) -> None:
        """Settle the spend of a stream that is over, unless it delivered nothing."""
        if self.ended or self.count:
            self.usage = None if self._protocol is None else self._protocol.usage
            if self.usage is not None:
                self._call._meter.count(self.usage)
            if self._call._account is not None:
                self._call._account.settle(self.usage, self._pieces(), complete=self._is_complete())

    @contextmanager
    def closing(self) -> Generator[None]:
        """Log, rather than raise, an error of closing the source if the stream is complete."""
        try:
            yield
        except Exception:
            if not self._is_complete():
                raise
            log("a stream that was complete could not be closed", error=True)

    def _is_complete(self) -> bool:
        """Return True if the end marker has come, or the end of a stream without one."""
        return self.ended or (self._protocol is not None and self._protocol.ended)

    def _pieces(self) -> int:
        """Return the number of pieces of the answer received so far: about a token each."""
        return self.count if self._protocol is None or not self._protocol.known else self._protocol.pieces


class BlockingStream(GuardedStream[T], Iterator[T]):
    """The guarded chunks of one attempt, in blocking code.

    The source runs in a context of its own: variables that a generator sets stay for its next chunk, which
    another thread may read.
    """

    _source: Source[T] | None = None
    _busy = _closed = False

    def __next__(self) -> T:
        if (pending := self._pending_error) is not None:
            self._pending_error = None
            raise pending
        chunk: T = END
        try:
            chunk = self._open_and_read() if self._source is None else self._read_next()
        except Exception as error:
            if not self.tolerates(error):
                raise
        if chunk is END:
            self.end()
            raise StopIteration
        self.inspect(chunk)
        return chunk

    def _open_and_read(self) -> Any:
        """Open the source and read its first chunk; the driver runs this on the policy's worker, if any."""
        self._lock, self._context = allocate_lock(), copy_context()
        self._context.run(CURRENT.set, self._call)
        self._deadline = ACTIVE_DEADLINE.get()
        if self._worker is None:
            self._chunk_due = self._call._now() + min(self._call.timeouts.opening, self._call.left())
        chunk = self._read_on_this_thread()
        if cancelled():  # the attempt has timed out: nothing else would close the source
            self.close()
            raise AttemptTimeout("the stream began too late")
        return chunk

    def _read_next(self) -> Any:
        seconds = self.time_left()
        if not seconds:
            raise self.expired()
        if self._worker is None or seconds == inf:
            try:
                return self._read_on_this_thread()
            except Exception:
                if self._call._now() >= self._chunk_due:  # it may be the client's own timeout
                    self.expired_limit = self._chunk_limit
                raise
        if ambient.active and virtual() is not None:
            return run_on_worker(self, self._worker, self._read_on_worker)
        job = ThreadJob(self._call._now, self._read_on_worker, (), {})
        if job.run_within(seconds):
            return job.result()
        raise overdue(self, self._worker, job)

    def _read_on_this_thread(self) -> Any:
        """Read a chunk; a deadline is enforced by clients that read it, such as redouble's own."""
        if self._chunk_due == inf:
            return self._context.run(self._read, ACTIVE_DEADLINE.get())
        limit = ActiveDeadline(self._chunk_due, self._call._now)
        try:
            ambient.add(limit)
            return self._context.run(self._read, limit)
        finally:
            limit.over = True
            ambient.remove(limit)

    def _read_on_worker(self) -> Any:
        """Read a chunk; if the reader closed the stream meanwhile, close the source."""
        with self._lock:
            if self._closed:
                return END
            self._busy = True
        try:
            return self._context.run(self._read, ACTIVE_DEADLINE.get())
        finally:
            with self._lock:
                self._busy, closed = False, self._closed
            if closed:
                self._context.run(close_failed, cast("Source[T]", self._source))

    def _read(self, limit: ActiveDeadline | None) -> Any:
        """Read a chunk, in the context of the source; open the source before the first one."""
        if ACTIVE_DEADLINE.get() is self._deadline:  # else the source has set its own
            ACTIVE_DEADLINE.set(limit)
            self._deadline = limit
        # For redouble's own blocking clients: a server may send single bytes for ever.
        due = None if self._chunk_due == inf else (self._chunk_due, self._call._now)
        before = SOCKET_DEADLINE.set(due)
        try:
            if self._source is not None:
                return next(self._source.items, END)
            self._source = source_of(self._open, self._open())
            self.opened = self._source.stream
            return self._source.first()
        except StopIteration:
            return END
        finally:
            SOCKET_DEADLINE.reset(before)

    def close(self) -> None:
        """Close the source; if it is being read, the reading thread closes it."""
        if self._source is None:
            return
        with self._lock:
            self._closed, busy = True, self._busy
        try:
            self.settle()
        finally:
            if not busy:
                with self.closing():
                    self._context.run(self._source.close)

    def __del__(self) -> None:
        if self._source is not None and self._source.is_open:
            self._context.run(close_failed, self._source)


class AsyncStream(GuardedStream[T], AsyncIterator[T]):
    """The guarded chunks of one attempt, in async code."""

    _source: AsyncSource[T] | None = None

    async def __anext__(self) -> T:
        if (pending := self._pending_error) is not None:
            self._pending_error = None
            raise pending
        before = CURRENT.get()
        CURRENT.set(self._call)
        chunk: T = END
        try:
            if self._source is None:
                chunk = await self._open_and_read()
            else:
                seconds = self.time_left()
                if not seconds:
                    raise self.expired()
                limit = self._cancel_after(seconds)
                with limit:
                    chunk = await anext(self._source.items, END)
                if limit.cancelled_caught:
                    raise self.expired()
        except Exception as error:
            if not self.tolerates(error):
                raise
        finally:
            leave(self._call, before)
        if chunk is END:
            self.end()
            raise StopAsyncIteration
        self.inspect(chunk)
        return chunk

    async def _open_and_read(self) -> Any:
        """Open the source and read its first chunk, within the limits of the policy."""
        self._cancel_after: Callable[[float], CancelScope] = backend().cancel_after
        try:
            self._source = await asource_of(self._open, self._open())
            self.opened = self._source.stream
            return await self._source.afirst()
        except StopAsyncIteration:
            return END

    async def asend(self, value: object, /) -> T:  # noqa: ARG002  no source receives it, as in blocking code
        """Return the next chunk: the driver treats this stream as an async generator."""
        return await self.__anext__()

    async def athrow(self, error: BaseException, /) -> T:
        """Raise the error that the reader throws."""
        raise error

    async def aclose(self) -> None:
        """Close the source."""
        try:
            self.settle()
        finally:
            if self._source is not None:
                with in_context(self._call), self.closing():
                    await self._source.aclose()


def _make_protocol(protocol: ProtocolFactory) -> Protocol:
    created: object = protocol()
    if not isinstance(created, Protocol):
        raise UsageError(f"protocol={display_name(protocol)} returned {created!r}: return a Protocol")
    return created
