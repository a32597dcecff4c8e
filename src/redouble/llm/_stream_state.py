"""One logical stream: what is known of it over all of its attempts. It waits for nothing."""

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
from redouble.llm._context import Call
from redouble.llm._errors import CutShort, ErrorEvent
from redouble.llm._protocols.base import Protocol
from redouble.llm._rules import table
from redouble.llm._spend.account import Account
from redouble.llm._spend.usage import Usage

__all__ = ["ChunkInspector", "StreamState"]


TEXTS = (bytes, bytearray, memoryview, str)


class StreamState:
    """What all attempts at a stream share; each wait for a chunk has its limit here (`_attempt.Bounded`)."""

    clock: Clock = SYSTEM
    late: Limit | None = None  # which limit has ended it
    cut = False  # by its reader, who was cancelled
    usage: Usage | None = None
    look: ChunkInspector | None = None  # of the attempt that is read, in async code
    _moment = inf  # by which the next chunk must have come

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
        """Begin: from now on its time counts; but without a first chunk it never began."""
        if self._call is not None:  # by `for` and by `async for`: it would be opened twice
            raise RuntimeError("this stream has been read: call model.stream(...) again for another one")
        self._call, self.account = self._begin()
        kept, cut = False, True
        try:
            yield
            kept, cut = True, False
        except Exception:
            cut = False
            raise
        finally:
            self.cut = cut
            if not kept:
                self.fail()

    @property
    def call(self) -> Call:
        """The call that it is."""
        assert self._call is not None, "it has not begun"  # noqa: S101
        return self._call

    # ----------------------------------------------------------------------- its chunks

    def told_to_our_clients(self) -> AbstractContextManager[None]:
        """Return a deadline for opening it, where nothing but what asks for one could keep the limit."""
        seconds = min(self.call.timeouts.opening, self.call.left())
        return deadline(max(0.0, seconds)) if self.worker is None and seconds < inf else nullcontext()

    @contextmanager
    def kept_by_our_sockets(self) -> Generator[None]:
        """Shorten what our blocking clients wait for: a server that sends a byte a second is cut by that."""
        before = SOCKET_DEADLINE.set(None if self._moment == inf else (self._moment, self.call._now))
        try:
            yield
        finally:
            SOCKET_DEADLINE.reset(before)

    def limited(self) -> bool:
        """Say whether there is any limit to a wait."""
        return self.call.timeouts.silence < inf or self.call.left() < inf

    def refresh_now(self) -> float:
        """Tell the time."""
        return self.call._now()

    def time_left(self, *, own: bool = True) -> float:  # noqa: ARG002  there is no other
        """Say how long the next chunk may take, and note whose limit that is."""
        call = self.call
        silence, total = call.timeouts.silence, call._until - call._now()
        self._seconds = shortest = min(silence, total, time_left() if ambient.active else inf)
        self._moment = call._now() + shortest
        self._bound: Limit = (
            "attempt" if shortest == silence else "total" if shortest == total else "deadline"
        )
        return max(0.0, shortest)

    def check(self) -> None:
        """Take in that a wait has failed: if it was time, then by the limit, whatever kept it has raised."""
        if self.call._now() >= self._moment:
            self.late = self._bound

    def expired(self) -> AttemptTimeout:
        """Take in that it took longer; return what to raise."""
        self.late = self._bound
        took = max(0.0, self._seconds)
        said = f"no chunk came for {took:g} s" if self.late == "attempt" else f"its {self.late} time was up"
        return AttemptTimeout(f"the stream was given up: {said}", limit=self.late, seconds=took)

    def leave_worker(self, *, alone: bool) -> None:
        """Take in that a worker goes on: it closes what it reads when that has ended."""

    # --------------------------------------------------------------------------- the end

    def fail(self) -> None:
        """Take in that it never began."""
        account, self.account = self.account, None
        if account is not None:
            account.fail()

    def leave(self) -> None:
        """Take in that its reader is no more: a collector has found it."""
        self.settle(cast("ChunkInspector", self.look))

    def settle(self, look: ChunkInspector) -> None:
        """Take in that it is over; what never began is dealt with by who has tried (`fail`)."""
        if not look.begun:
            return
        self.usage = look.usage()
        account, self.account = self.account, None
        if account is not None:
            account.settle(self.usage, complete=look.complete, pieces=look.pieces())


class ChunkInspector:
    """A look at each chunk of one attempt as it passes: nothing is held back, and nothing changed."""

    def __init__(self, flow: StreamState) -> None:
        self._flow = flow
        self._protocol = None if flow.protocol is None else _made(flow.protocol)
        self._error: ErrorEvent | None = None
        self.count = 0
        self.over = False

    def pending(self) -> None:
        """Raise what the last chunk has brought behind something else."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def pass_(self, chunk: object) -> None:
        """Look at a chunk that is about to be handed out; raise what it says, or what it costs too much."""
        protocol, account = self._protocol, self._flow.account
        if protocol is not None:
            error = protocol.read(chunk)
            # A piece of text may have brought something before its error: it is handed out first.
            if error is not None and not (self.count and isinstance(chunk, TEXTS)):
                raise error
            self._error = error
        self.count += 1
        if account is not None:
            account.count(self.usage(), self.pieces())

    def end(self) -> None:
        """Take in that the source came to its end; raise if that is too soon."""
        protocol = self._protocol
        if protocol is not None and not protocol.ended:
            if not self.count:
                raise CutShort("the stream ended before its first chunk")
            if protocol.known:
                raise CutShort(protocol.cut_short())
        self.over = True

    @property
    def begun(self) -> bool:
        """Whether it was handed to its reader: a chunk was, or the end of a stream that has none."""
        return self.over or self.count > 0

    @property
    def complete(self) -> bool:
        """Whether it has said that it is complete, or where that is never said, has come to its end."""
        return self.over or (self._protocol is not None and self._protocol.ended)

    def forgives(self, error: Exception) -> bool:
        """Say whether this does no harm: the stream has said that it is complete, and is broken off there."""
        if self._protocol is None or not self._protocol.ended or self._error is not None:
            return False
        verdict = table(error)
        if verdict is None or verdict.action != "retry":  # a mistake of the caller's own, for instance
            return False
        self._flow.late = None
        log("a stream went wrong after it had said that it was complete", news=True)
        return True

    @contextmanager
    def closing(self) -> Generator[None]:
        """Forgive a source that cannot be closed, if it has brought everything."""
        try:
            yield
        except Exception:
            if not self.complete:
                raise
            log("a stream that was complete could not be closed", trouble=True)

    def usage(self) -> Usage | None:
        """Tell the tokens that it has told of."""
        return None if self._protocol is None else self._protocol.usage

    def pieces(self) -> int:
        """Tell in how many pieces the answer has come so far: about a token each."""
        return self.count if self._protocol is None or not self._protocol.known else self._protocol.pieces


def _made(protocol: Callable[[], Protocol]) -> Protocol:
    made: object = protocol()
    if not isinstance(made, Protocol):
        raise UsageError(
            f"protocol={display_name(protocol)} gave {made!r}: write a function that returns a Protocol"
        )
    return made
