"""`StreamState`: shared by all attempts at a logical stream. `ChunkInspector`: the checks of one attempt.

This module never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import inf
from typing import cast

from redouble._clients.socket_deadline import SOCKET_DEADLINE
from redouble._engine.worker import Worker
from redouble._internal.callables import UsageError, display_name
from redouble._internal.logger import log
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import SYSTEM, Clock
from redouble._runtime.deadline import deadline, time_left
from redouble.errors import AttemptTimeout, Limit
from redouble.llm._current_call import Call
from redouble.llm._errors import CutShort, ErrorEvent
from redouble.llm._protocols.base import Protocol
from redouble.llm._rules import table
from redouble.llm._spend.account import Account
from redouble.llm._spend.usage import Usage

__all__ = ["ChunkInspector", "StreamState"]


TEXTS = (bytes, bytearray, memoryview, str)


class StreamState:
    """The state of one logical stream, shared by its attempts, with the limits of each wait for a chunk."""

    clock: Clock = SYSTEM
    expired_limit: Limit | None = None  # the limit that ended the stream
    cancelled = False  # its reader was cancelled
    usage: Usage | None = None
    inspector: ChunkInspector | None = None  # of the current attempt, in async code
    _chunk_due = inf  # the time by which the next chunk must arrive

    def __init__(
        self, begin: Callable[[], tuple[Call, Account | None]], protocol: Callable[[], Protocol] | None
    ) -> None:
        self._begin = begin
        self.protocol = protocol
        self.worker: Worker | None = None
        self.account: Account | None = None
        self._call: Call | None = None

    @contextmanager
    def opening(self) -> Generator[None]:
        """Start the call and its time; if no first chunk arrives, only its request is committed."""
        if self._call is not None:  # read twice: by `for` and by `async for`, for instance
            raise RuntimeError("this stream has been read: call model.stream(...) again for another one")
        self._call, self.account = self._begin()
        opened, cancelled = False, True
        try:
            yield
            opened, cancelled = True, False
        except Exception:
            cancelled = False
            raise
        finally:
            self.cancelled = cancelled
            if not opened:
                self.fail()

    @property
    def call(self) -> Call:
        """The call of this stream."""
        assert self._call is not None, "the stream has not been opened"  # noqa: S101
        return self._call

    # --------------------------------------------------------------------------- chunks

    def opening_deadline(self) -> AbstractContextManager[None]:
        """Return a deadline for opening; a no-op if a worker enforces the limit."""
        seconds = min(self.call.timeouts.opening, self.call.left())
        return deadline(max(0.0, seconds)) if self.worker is None and seconds < inf else nullcontext()

    @contextmanager
    def socket_deadline(self) -> Generator[None]:
        """Limit the socket waits of redouble's blocking clients: a server may send single bytes for ever."""
        before = SOCKET_DEADLINE.set(None if self._chunk_due == inf else (self._chunk_due, self.call._now))
        try:
            yield
        finally:
            SOCKET_DEADLINE.reset(before)

    def is_limited(self) -> bool:
        """Return True if waiting for a chunk has any limit."""
        return self.call.timeouts.silence < inf or self.call.left() < inf

    def refresh_now(self) -> float:
        """Return the time."""
        return self.call._now()

    def time_left(self, *, own: bool = True) -> float:  # noqa: ARG002  all limits are its own
        """Return the seconds left for the next chunk, and record which limit that is."""
        call = self.call
        silence, total = call.timeouts.silence, call._ends_at - call._now()
        self._chunk_seconds = shortest = min(silence, total, time_left() if ambient.active else inf)
        self._chunk_due = call._now() + shortest
        self._chunk_limit: Limit = (
            "attempt" if shortest == silence else "total" if shortest == total else "deadline"
        )
        return max(0.0, shortest)

    def check(self) -> None:
        """Record the limit that a failed wait has reached: the error may be the client's own timeout."""
        if self.call._now() >= self._chunk_due:
            self.expired_limit = self._chunk_limit

    def expired(self) -> AttemptTimeout:
        """Record the limit of an expired wait; return the error to raise."""
        self.expired_limit = self._chunk_limit
        seconds = max(0.0, self._chunk_seconds)
        cause = (
            f"no chunk came for {seconds:g} s"
            if self.expired_limit == "attempt"
            else f"its {self.expired_limit} time was up"
        )
        return AttemptTimeout(f"the stream was given up: {cause}", limit=self.expired_limit, seconds=seconds)

    def leave_worker(self, *, alone: bool) -> None:
        """Do nothing when the worker is abandoned: it closes its source when the read has ended."""

    # ------------------------------------------------------------------------------ end

    def fail(self) -> None:
        """Commit the request of a stream that never delivered anything."""
        account, self.account = self.account, None
        if account is not None:
            account.fail()

    def abandon(self) -> None:
        """Settle the spend of a stream whose reader was cancelled or garbage-collected."""
        self.settle(cast("ChunkInspector", self.inspector))

    def settle(self, inspector: ChunkInspector) -> None:
        """Settle the spend of a stream that is over; one that delivered nothing is left to `fail`."""
        if not inspector.delivered:
            return
        self.usage = inspector.usage()
        account, self.account = self.account, None
        if account is not None:
            account.settle(self.usage, complete=inspector.complete, pieces=inspector.pieces())


class ChunkInspector:
    """The checks of one attempt on each chunk before it is delivered; it delays and changes no chunk."""

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self._protocol = None if state.protocol is None else _make_protocol(state.protocol)
        self._pending_error: ErrorEvent | None = None
        self.count = 0
        self.ended = False

    def raise_pending(self) -> None:
        """Raise the error event that followed content in the previous chunk."""
        error, self._pending_error = self._pending_error, None
        if error is not None:
            raise error

    def inspect(self, chunk: object) -> None:
        """Inspect a chunk before it is delivered; raise its error event, or `SpendExceeded`."""
        protocol, account = self._protocol, self._state.account
        if protocol is not None:
            error = protocol.read(chunk)
            # A piece of text may have content before its error event: the content is delivered first.
            if error is not None and not (self.count and isinstance(chunk, TEXTS)):
                raise error
            self._pending_error = error
        self.count += 1
        if account is not None:
            account.record_progress(self.usage(), self.pieces())

    def end(self) -> None:
        """Record the end of the source; raise `CutShort` if the stream is incomplete."""
        protocol = self._protocol
        if protocol is not None and not protocol.ended:
            if not self.count:
                raise CutShort("the stream ended before its first chunk")
            if protocol.known:
                raise CutShort(protocol.cut_short())
        self.ended = True

    @property
    def delivered(self) -> bool:
        """True if a chunk was delivered to the reader, or the end of an empty stream."""
        return self.ended or self.count > 0

    @property
    def complete(self) -> bool:
        """True if the end marker has come, or the end of a stream without one."""
        return self.ended or (self._protocol is not None and self._protocol.ended)

    def tolerates(self, error: Exception) -> bool:
        """Return True if an error is harmless: the connection broke after the end marker."""
        if self._protocol is None or not self._protocol.ended or self._pending_error is not None:
            return False
        verdict = table(error)
        if verdict is None or verdict.action != "retry":  # a bug in the caller's code, for instance
            return False
        self._state.expired_limit = None
        log("a stream failed after its end marker", info=True)
        return True

    @contextmanager
    def closing(self) -> Generator[None]:
        """Log, rather than raise, an error of closing the source if the stream is complete."""
        try:
            yield
        except Exception:
            if not self.complete:
                raise
            log("a stream that was complete could not be closed", error=True)

    def usage(self) -> Usage | None:
        """Return the tokens reported so far."""
        return None if self._protocol is None else self._protocol.usage

    def pieces(self) -> int:
        """Return the number of pieces of the answer received so far: about a token each."""
        return self.count if self._protocol is None or not self._protocol.known else self._protocol.pieces


def _make_protocol(protocol: Callable[[], Protocol]) -> Protocol:
    created: object = protocol()
    if not isinstance(created, Protocol):
        raise UsageError(f"protocol={display_name(protocol)} returned {created!r}: return a Protocol")
    return created
