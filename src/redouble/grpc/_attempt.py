"""One attempt of an RPC: start it, wait for its response or its first message, and cancel it if it fails.

Each function has a blocking and an async twin. An attempt gets the caller's call details with the time that
is left and the number of earlier attempts; the caller's own details are never changed.

The limit of an attempt at a stream ends at its first message, so a timer or a cancel scope enforces it.
gRPC's own timeout covers the whole RPC and would also cut the messages after the first.
"""

from __future__ import annotations

from _thread import allocate_lock
from math import inf
from threading import Timer
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import grpc

from redouble._drivers.opened_stream import END
from redouble._runtime.backend import CancelScope, cancel_after
from redouble._runtime.deadline import Deadline
from redouble.errors import AttemptTimeout
from redouble.grpc._finished_call import AIO, SYNC, ErrorClasses, as_rpc_error
from redouble.grpc._resend_guard import CURRENT_GUARD, RpcResendGuard, cancel

__all__ = [
    "AttemptTimer",
    "OpenedStream",
    "aattempt_stream",
    "aattempt_unary",
    "arun_policy",
    "attempt_stream",
    "attempt_unary",
    "details_of",
    "rpc_of",
    "run_policy",
    "start_rpc",
]

# ------------------------------------------------------------------------ the policy


def run_policy(guard: RpcResendGuard) -> Any:
    """Run the policy of a call within the deadline of the call."""
    send = guard.plan.call_for(guard.plan.name)
    token = CURRENT_GUARD.set(guard)
    try:
        limit = guard.start_policy()
        if limit == inf:
            return send(guard)
        with Deadline(max(0.0, limit)):
            return send(guard)
    except Exception as error:
        guard.conclude(error, SYNC)
        raise
    finally:
        CURRENT_GUARD.reset(token)


async def arun_policy(guard: RpcResendGuard) -> Any:
    """Run the policy of a call within the deadline of the call."""
    send = guard.plan.call_for(guard.plan.name)
    token = CURRENT_GUARD.set(guard)
    try:
        limit = guard.start_policy()
        if limit == inf:
            return await send(guard)
        with Deadline(max(0.0, limit)):
            return await send(guard)
    except Exception as error:
        guard.conclude(error, AIO)
        raise
    finally:
        CURRENT_GUARD.reset(token)


def rpc_of(guard: RpcResendGuard, response: object) -> Any:
    """Return the RPC with this response; None if another layer made the response, such as a fallback."""
    return guard.current if response is guard.response else None


# ---------------------------------------------------------------- the start of an RPC

PREVIOUS = "grpc-previous-rpc-attempts"
FIELDS = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")


class AttemptDetails(grpc.ClientCallDetails):
    """The call details of one attempt: a copy of the caller's, without the fields that those lack."""

    def __init__(self, call_details: object) -> None:
        for field in FIELDS:
            if hasattr(call_details, field):
                setattr(self, field, getattr(call_details, field))


def details_of(call_details: Any, limit: float, earlier: int) -> grpc.ClientCallDetails:
    """Return the call details for an attempt, with its time limit and the number of earlier attempts."""
    if limit == inf and not earlier and isinstance(call_details, tuple):  # gRPC's own, which are immutable
        return cast("grpc.ClientCallDetails", call_details)
    details = AttemptDetails(call_details)
    if limit < inf:
        details.timeout = max(0.0, limit)
    if earlier:
        details.metadata = (*(getattr(call_details, "metadata", None) or ()), (PREVIOUS, str(earlier)))
    return details


def adetails_of(call_details: Any, limit: float, earlier: int) -> grpc.aio.ClientCallDetails:
    """Return the call details of `grpc.aio` in the same way."""
    timeout, metadata = max(0.0, limit) if limit < inf else call_details.timeout, call_details.metadata
    if earlier:
        metadata = grpc.aio.Metadata(*(metadata or ()), (PREVIOUS, str(earlier)))
    fields = call_details.method, timeout, metadata, call_details.credentials, call_details.wait_for_ready
    return grpc.aio.ClientCallDetails(*fields)


def start_rpc(guard: RpcResendGuard, limit: float) -> Any:
    """Start the RPC of an attempt with a time limit in seconds."""
    details = details_of(guard.call_details, limit, guard.begin_attempt())
    guard.attach(guard.continuation(details, guard.requests.for_attempt()))
    return guard.current


async def astart_rpc(guard: RpcResendGuard, limit: float) -> Any:
    """Start the RPC of an attempt with a time limit in seconds."""
    details = adetails_of(guard.call_details, limit, guard.begin_attempt())
    guard.attach(await guard.continuation(details, guard.requests.for_attempt()))
    return guard.current


# ------------------------------------------------------------------------ an attempt


class OpenedStream(NamedTuple):
    """A stream of responses: its RPC, the iterator of its messages, and the first one (`END` if none)."""

    call: Any
    items: Any
    first: Any


class AttemptScope:
    """A ``with`` block for one attempt: if it fails, the RPC is cancelled and the guard records the error.

    The RPC may be the error, whose traceback refers to the frames of the attempt: only the guard keeps it.
    """

    def __init__(self, guard: RpcResendGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        """Enter the scope."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if error is not None:
            cancel(self._guard.current)
            if isinstance(error, Exception):
                self._guard.record_failure(error)


def attempt_unary(guard: RpcResendGuard) -> Any:
    """Make one attempt at a call with one response."""
    with AttemptScope(guard):
        guard.response = result_of(start_rpc(guard, guard.attempt_limit()))
    return guard.response


async def aattempt_unary(guard: RpcResendGuard) -> Any:
    """Make one attempt at a call with one response."""
    with AttemptScope(guard):
        guard.response = await aresult_of(await astart_rpc(guard, guard.attempt_limit()))
    return guard.response


def result_of(call: Any) -> Any:
    """Wait for the response of an RPC in blocking code and return it, or raise its error from here."""
    # gRPC passes an exception raised by an interceptor behind this one on as if it were an RPC.
    error = call.exception() if hasattr(call, "exception") else call
    try:
        if error is not None:
            raise error
        return call.result()
    finally:
        del call, error


def aresult_of(call: Any) -> Any:
    """Return the awaitable of the response of an RPC in async code: the RPC itself."""
    return call


def attempt_stream(guard: RpcResendGuard) -> OpenedStream:
    """Make one attempt at a stream of responses, up to its first message."""
    items, first, seconds = None, END, guard.attempt_limit()
    limit = AttemptTimer(guard, seconds if seconds < guard.call_limit() else inf)
    with AttemptScope(guard):
        with limit:
            if guard.take_early_rpc() is None:
                start_rpc(guard, guard.call_limit())
            items = iter(guard.current)
            first = next(items, END)
        if limit.cancelled_caught:
            raise expired(seconds, SYNC)
        return OpenedStream(guard.current, items, first)


async def aattempt_stream(guard: RpcResendGuard) -> OpenedStream:
    """Make one attempt at a stream of responses, up to its first message."""
    items, first, seconds = None, END, guard.attempt_limit()
    limit = awithin(guard, seconds if seconds < guard.call_limit() else inf)
    with AttemptScope(guard):
        with limit:
            if guard.take_early_rpc() is None:  # pragma: no branch  async code starts no RPC early
                await astart_rpc(guard, guard.call_limit())
            items = aiter(guard.current)
            first = await anext(items, END)
        if limit.cancelled_caught:
            raise expired(seconds, AIO)
        return OpenedStream(guard.current, items, first)


def expired(seconds: float, classes: ErrorClasses) -> Exception:
    """Return the error of an attempt whose first message did not arrive in time."""
    error = AttemptTimeout(f"no message within {max(0.0, seconds):.3g} s", limit="attempt", seconds=seconds)
    as_rpc_error(error, classes)
    return error


def awithin(_: RpcResendGuard, seconds: float) -> CancelScope:
    """Return the time limit of an attempt in async code."""
    return cancel_after(seconds)


class AttemptTimer:
    """The time limit of an attempt in blocking code: cancels the RPC. Has the interface of `cancel_after`."""

    def __init__(self, guard: RpcResendGuard, seconds: float) -> None:
        self.cancelled_caught = self._ended = False
        self._guard, self._lock = guard, allocate_lock()
        self._timer = None if seconds == inf else Timer(max(0.0, seconds), self._cut)

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._ended = True
        return self.cancelled_caught and isinstance(error, Exception)

    def _cut(self) -> None:
        # Under the lock, so that the attempt cannot end in between: else the next attempt's RPC is cancelled.
        with self._lock:
            if not self._ended:
                self.cancelled_caught = self._guard.timed_out = True
                cancel(self._guard.current)
