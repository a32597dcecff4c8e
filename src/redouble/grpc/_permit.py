"""What one call has done, and the permission to make another attempt, asked before every retry.

It is the mark that an interceptor of ours leaves on the error of each attempt. Whatever a policy says, there
is no other attempt if the server has said so, if the caller has seen something of the answer, has cancelled
the call, or has sent what cannot be sent again.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from math import inf
from typing import Any, cast

import grpc

from redouble._clients.call_record import CallRecord
from redouble._clients.plan import Plan
from redouble._engine.outcome import OUTCOMES, itself
from redouble._engine.report import STAMP, Report, RetryVeto, annotate, stamp_of
from redouble._failures.retry_after import milliseconds
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import SYSTEM, context_clock, virtual
from redouble._runtime.deadline import time_left
from redouble._runtime.thread_waker import ThreadWaker
from redouble.errors import Reason, Stopped
from redouble.grpc._finished_call import CANCELLED, CallCancelled, CancelledCall, Known, known
from redouble.grpc._request_stream import RequestSource

__all__ = ["PUSHBACK", "WAITING", "RpcResendGuard", "cancel", "forbids", "pushback"]

PUSHBACK = "grpc-retry-pushback-ms"
SLACK = 0.01  # second of which nothing would come, once an attempt has used up its time


class RpcResendGuard(RetryVeto):
    """What one logical call has done, and may do."""

    asked = True

    sends = 0  # attempts that have begun
    current: Any = None  # the call of the attempt that is under way, or has succeeded
    response: Any = None  # of that
    forbidden = False  # the server has said: do not retry
    overdue = False  # the attempt has had its time, and is to be cancelled as soon as it has a call
    late = False  # the last attempt has used up its time
    committed = False  # the caller has seen something of the answer
    cancelled = False  # by the caller, who has no task to cancel
    bell: ThreadWaker  # to be heard by who waits for a delay, where another thread may cancel the call
    early: Any = None  # the call of a first attempt that has begun before anybody waits for it
    patience = inf  # when the policy's time for the whole call is up

    def __init__(
        self,
        plan: Plan,
        continuation: Callable[[Any, Any], Any],
        said: Any,
        requests: RequestSource,
    ) -> None:
        self.plan, self.requests = plan, requests
        self.continuation, self.said = continuation, said
        self.now = now = context_clock()
        self.started = now()
        timeout = getattr(said, "timeout", None)
        rest = time_left() if ambient.active else inf
        self.until = self.started + min(inf if timeout is None else timeout, rest)
        self._deciding = allocate_lock()

    # ----------------------------------------------------------------------------- time

    def waits(self) -> float:
        """Take in that the policy begins, and its time with it; tell how long the call may take."""
        self.patience = self.now() + self.plan.total
        return self.rest()

    def rest(self) -> float:
        """Tell how long the call may take from now on, its messages included."""
        return self.until - self.now()

    def limit(self) -> float:
        """Tell how long the attempt may take, up to its first message at least."""
        shortest = min(self.until, self.patience)
        rest = inf if shortest == inf else shortest - self.now()
        return min(rest, time_left()) if ambient.active else rest

    def remaining(self) -> float | None:
        """Tell how long the call may take from now on, or None, as gRPC does."""
        return None if self.until == inf else max(0.0, self.rest())

    def sleep(self, seconds: float) -> None:
        """Wait for a delay, unless the caller cancels the call."""
        if virtual() is None:
            self.bell.wait(seconds)
        else:
            SYSTEM.sleep(seconds)
        if self.cancelled:
            raise CallCancelled

    # -------------------------------------------------------------------- of an attempt

    def begins(self) -> int:
        """Take in that an attempt begins; return how many there were before it."""
        if self.cancelled:
            raise CallCancelled
        # A policy has asked; a layer of the caller's own that calls twice has not.
        if self.sends and (reason := self._reason()) is not None:
            raise self.failed(Stopped(f"no other attempt: {OUTCOMES[reason][0]}", reason=reason))
        self.sends += 1
        self.forbidden = self.late = False
        return self.sends - 1

    def goes(self, call: Any) -> None:
        """Take in what the attempt is going by."""
        self.current = call
        if self.cancelled or self.overdue:  # in between
            cancel(call)

    def taken(self) -> Any:
        """Return the call that has begun early, for the attempt that goes on with it."""
        call, self.early = self.early, None
        return call

    def failed(self, error: Exception) -> Exception:
        """Leave the mark on an attempt's error, for whoever is about to retry; or end the call."""
        with self._deciding:
            self.current = None  # it may be the error itself
        self.overdue = False
        self.forbidden = forbids(error)
        self.late = code_of(error) is grpc.StatusCode.DEADLINE_EXCEEDED
        with suppress(Exception):  # it takes no marks: then nobody asks until the next attempt begins
            vars(error)[STAMP] = self
        if self.cancelled:
            raise CallCancelled from error
        return error

    def commit(self, call: Any) -> bool:
        """Take in that the caller sees something of this call; False if it is too late for that."""
        with self._deciding:
            if self.current is not call:
                return False
            self.committed = True
            return True

    def cancel(self) -> None:
        """Cancel what is under way, and begin nothing from now on."""
        self.cancelled = True
        self.bell.wake()
        cancel(self.current)

    # ------------------------------------------------------------------ before a retry

    def check(self, run: Any, /) -> Reason | None:  # noqa: ARG002
        """Answer why there must be no other attempt, if so."""
        if self.late and self.limit() <= SLACK:
            return Reason.timeout
        return self._reason()

    def _reason(self) -> Reason | None:
        with self._deciding:
            if self.cancelled or self.forbidden:
                return Reason.stopped
            if self.committed:
                return Reason.committed
            self.current = None
        return None if self.requests.again() else Reason.not_replayable

    # ------------------------------------------------------------------ once it is over

    def concludes(self, error: Exception, both: Known) -> None:
        """Take in what comes out: an error of ours about it is gRPC's too."""
        if stamp_of(error) is self:
            annotate(error, self._story(Reason.stopped, error), None)
        known(error, both)

    def withdrawn(self, error: BaseException | None) -> Exception:
        """Return what comes out of a call that the caller has cancelled, however it has ended."""
        ended = error.__cause__ if isinstance(error, CallCancelled) else error
        if code_of(ended) is grpc.StatusCode.CANCELLED:
            cancelled = cast("Exception", ended)
        else:
            cancelled = CancelledCall(CANCELLED)
            cancelled.__cause__ = ended
        annotate(cancelled, self._story(Reason.stopped, cancelled), None)
        return cancelled

    def breaks(self, error: Exception) -> None:
        """Say on an error that the caller has had some of the answer already."""
        self._story(Reason.committed, error).tell(error)

    def report(self) -> Report:
        """Build the report as it is now, for those who look at an error before the policy has decided."""
        return self._story(Reason.stopped, None).report()

    def __reduce__(self) -> tuple[Any, ...]:
        return itself, (self.report(),)

    def _story(self, reason: Reason, error: Exception | None) -> CallRecord:
        return CallRecord(self.plan, reason, self.sends, self.now() - self.started, error)


# The call of this thread, which may be cancelled while it waits for a delay.
WAITING: ContextVar[RpcResendGuard | None] = ContextVar("redouble_grpc_waiting", default=None)


def cancel(call: Any) -> bool:
    """Cancel a call, if it can be cancelled: what others hand us may be any iterator."""
    stop = getattr(call, "cancel", None)
    return stop is not None and bool(stop())


def code_of(error: Any) -> object:
    """Return the code of an error of gRPC's."""
    try:
        return error.code() if isinstance(error, grpc.RpcError) else None
    except Exception:  # it has none to show
        return None


def pushback(error: object) -> float | None:
    """Return how many seconds the server asks for, if it does; below zero if it wants no retry."""
    try:
        said = cast("Any", error).trailing_metadata() if isinstance(error, grpc.RpcError) else None
        asked = [milliseconds(value) for key, value in said or () if key == PUSHBACK]
    except Exception:  # it has none to show
        return None
    if None in asked:  # a negative number, or none at all
        return -1.0
    return asked[-1] if asked else None


def forbids(error: object) -> bool:
    """Say whether the server wants no retry."""
    return (pushback(error) or 0.0) < 0
