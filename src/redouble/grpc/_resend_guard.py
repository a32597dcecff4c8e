"""The resend guard of one RPC: the state of a logical call, and the veto against further attempts.

The guard is the `ResendGuard` of the runs of its policy, so the engine consults it before every retry. It
vetoes a retry that the policy would allow if the server's pushback forbids retries, if the caller has
cancelled the call or received a part of the response, or if the requests cannot be sent again.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from typing import Any, cast

import grpc

from redouble._clients.client_call import ClientCall
from redouble._clients.plan import Plan
from redouble._engine.report import annotate
from redouble._engine.run_results import OUTCOMES
from redouble._failures.grpc_trailers import requested_delay
from redouble._failures.verdict import Verdict
from redouble._runtime.clock import SYSTEM, context_clock, virtual
from redouble._runtime.deadline import times_left_for_stream, uninterrupted_time_left
from redouble._runtime.thread_waker import ThreadWaker
from redouble.errors import Reason, Stopped
from redouble.grpc._finished_call import CANCELLED, CallCancelled, CancelledCall, as_rpc_error
from redouble.grpc._request_stream import RequestSource

INTERRUPTION = 0.05  # seconds, in which a limit that is reached interrupts the call
SLACK = 0.01  # seconds: too short for another attempt after one that exceeded its deadline


class RpcResendGuard(ClientCall):
    """The state of one logical call: its deadline, its attempts, and whether another one may follow."""

    current: Any = None  # the RPC object of the running or the successful attempt
    response: Any = None  # the response of ``current``
    forbidden = False  # the server's pushback forbids a retry
    timed_out = False  # the attempt timed out: its RPC is cancelled as soon as it is attached
    deadline_exceeded = False  # the last attempt ended with DEADLINE_EXCEEDED
    committed = False  # the caller has received a part of the response
    cancelled = False  # the caller has cancelled the call; in blocking code, where there is no task to cancel
    waker: ThreadWaker | None = None  # interrupts a delay when another thread cancels the call
    early_rpc: Any = None  # the RPC of a first attempt that started before the policy runs

    def __init__(
        self, plan: Plan, continuation: Callable[..., Any], call_details: Any, requests: RequestSource
    ) -> None:
        super().__init__(plan, context_clock())
        self.requests = requests
        self.continuation, self.call_details = continuation, call_details
        self.request = call_details
        timeout = getattr(call_details, "timeout", None)
        left, left_for_stream = times_left_for_stream()
        self.deadline = self.started + min(inf if timeout is None else timeout, left_for_stream)
        self._interrupted_at = self.started + left
        self._lock = allocate_lock()

    # ----------------------------------------------------------------------------- time

    def call_limit(self) -> float:
        """Return how many seconds are left for the whole call, including the messages of a stream."""
        return inf if self.deadline == inf else max(0.0, self.deadline - self.now())

    def attempt_limit(self) -> float:
        """Return the time limit of an attempt, in seconds; of a stream, the limit until its first message."""
        return min(self.call_limit(), uninterrupted_time_left())

    def rpc_limit(self) -> float:
        """Return the time limit that gRPC is told for an attempt with one response, and tells the server.

        A limit around the call that interrupts it does so first, since it knows better which limit it is.
        """
        return min(self.attempt_limit(), max(0.0, self._interrupted_at - self.now()) + INTERRUPTION)

    def time_remaining(self) -> float | None:
        """Return how many seconds are left for the call, or None if it has no deadline, as gRPC does."""
        return None if self.deadline == inf else self.call_limit()

    def sleep(self, seconds: float) -> None:
        """Wait for a delay; raise `CallCancelled` if the caller cancels the call meanwhile."""
        if self.waker is None or virtual() is not None:
            SYSTEM.sleep(seconds)
        else:
            self.waker.wait(seconds)
        if self.cancelled:
            raise CallCancelled

    # ------------------------------------------------------------------------ attempts

    def begin_attempt(self) -> int:
        """Record the start of an attempt; return the number of earlier ones."""
        if self.cancelled:
            raise CallCancelled
        # The engine calls `veto` before a retry; a user's own layer that calls twice does not.
        if self.sends and (reason := self._reason()) is not None:
            raise self.record_failure(Stopped(f"no other attempt: {OUTCOMES[reason][0]}", reason=reason))
        self.sends += 1
        self.forbidden = self.deadline_exceeded = False
        return self.sends - 1

    def attach(self, call: Any) -> None:
        """Record the RPC object of the running attempt."""
        self.current = call
        if self.cancelled or self.timed_out:  # while the RPC was being created
            cancel(call)

    def take_early_rpc(self) -> Any:
        """Return the early RPC, if any, to the attempt that continues it; a second call returns None."""
        call, self.early_rpc = self.early_rpc, None
        return call

    def __enter__(self) -> None:
        """Enter the block of an attempt: if it fails, its RPC is cancelled and its error recorded."""

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if error is not None:
            cancel(self.current)
            if isinstance(error, Exception):
                self.record_failure(error)

    def record_failure(self, error: Exception) -> Exception:
        """Stamp this guard on the error of an attempt; raise `CallCancelled` if the call was cancelled."""
        with self._lock:
            self.current = None  # the RPC object may be the error itself
        self.timed_out = False
        self.forbidden = (delay_of(error) or 0.0) < 0
        self.deadline_exceeded = code_of(error) is grpc.StatusCode.DEADLINE_EXCEEDED
        super().record_failure(error)
        self.error = None  # it may be the RPC object, and its frames may refer to this guard
        if self.cancelled:
            raise CallCancelled from error
        return error

    def commit(self, call: Any) -> bool:
        """Record that the caller receives a part of this RPC; return False if it is no longer current."""
        with self._lock:
            is_current = self.current is call
            self.committed = self.committed or is_current
            return is_current

    # ------------------------------------------------------------------ before a retry

    def veto(self, verdict: Verdict, /) -> Reason | None:  # noqa: ARG002  the reason is not in the verdict
        """Return the reason for which another attempt is vetoed, or None."""
        if self.deadline_exceeded and self.attempt_limit() <= SLACK:
            return Reason.timeout
        return self._reason()

    def _reason(self) -> Reason | None:
        with self._lock:
            if self.cancelled or self.forbidden:
                return Reason.stopped
            if self.committed:
                return Reason.committed
            self.current = None
        return None if self.requests.can_resend() else Reason.not_replayable

    # ----------------------------------------------------------------- after the end

    def conclude(self, error: Exception, base: type[grpc.RpcError]) -> None:
        """Annotate the error that the call raises, and make an error of redouble a `grpc.RpcError` too."""
        self.replace_stamp(error)
        as_rpc_error(error, base)

    def cancellation_error(self, error: BaseException | None) -> Exception:
        """Return the error of a call that the caller has cancelled; ``error`` is how its policy ended."""
        ended = error.__cause__ if isinstance(error, CallCancelled) else error
        if code_of(ended) is grpc.StatusCode.CANCELLED:
            cancelled = cast("Exception", ended)
        else:
            cancelled = CancelledCall(CANCELLED)
            cancelled.__cause__ = ended
        annotate(cancelled, self.report_for(Reason.stopped, cancelled), None)
        return cancelled


# The guard of the call whose policy runs in this context: cancelling the call interrupts its delay.
CURRENT_GUARD: ContextVar[RpcResendGuard | None] = ContextVar("redouble_grpc_guard", default=None)


def cancel(call: Any) -> bool:
    """Cancel an RPC if it has ``cancel``: an interceptor behind this one may return any iterator."""
    stop = getattr(call, "cancel", None)
    return stop is not None and bool(stop())


def code_of(error: Any) -> object:
    """Return the status code of a `grpc.RpcError`, or None."""
    try:
        return error.code() if isinstance(error, grpc.RpcError) else None
    except Exception:  # the error has no code
        return None


def delay_of(error: object) -> float | None:
    """Return the seconds that the server asks the client to wait, negative if it forbids a retry, or None."""
    if not isinstance(error, grpc.RpcError):
        return None
    try:
        return requested_delay(cast("Any", error).trailing_metadata())
    except Exception:  # the error has no metadata
        return None
