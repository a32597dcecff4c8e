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
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import grpc

from redouble._clients.plan import acall_within, call_within
from redouble._drivers.opened_stream import END
from redouble._runtime.backend import cancel_after
from redouble.errors import AttemptTimeout
from redouble.grpc._finished_call import AioFailedCall, FailedCall, as_rpc_error
from redouble.grpc._resend_guard import CURRENT_GUARD, RpcResendGuard, cancel

if TYPE_CHECKING:
    from redouble._runtime.backend import CancelScope

# ------------------------------------------------------------------------ the policy


def run_policy(guard: RpcResendGuard) -> Any:
    """Run the policy of a call within the deadline of the call."""
    send = guard.plan.call_for(guard.plan.name)
    token = CURRENT_GUARD.set(guard)
    try:
        return call_within(guard.call_limit, send, guard)
    except Exception as error:
        guard.conclude(error, FailedCall)
        raise
    finally:
        CURRENT_GUARD.reset(token)


async def arun_policy(guard: RpcResendGuard) -> Any:
    """Run the policy of a call within the deadline of the call."""
    send = guard.plan.call_for(guard.plan.name)
    token = CURRENT_GUARD.set(guard)
    try:
        return await acall_within(guard.call_limit, send, guard)
    except Exception as error:
        guard.conclude(error, AioFailedCall)
        raise
    finally:
        CURRENT_GUARD.reset(token)


async def acall_unary(guard: RpcResendGuard) -> Any:
    """Run the policy of a call with one response; return its RPC, or the response of another layer."""
    response = await arun_policy(guard)
    rpc = rpc_of(guard, response)
    return response if rpc is None else rpc


def rpc_of(guard: RpcResendGuard, response: object) -> Any:
    """Return the RPC with this response; None if another layer made the response, such as a fallback."""
    return guard.current if response is guard.response else None


# ---------------------------------------------------------------- the start of an RPC

PREVIOUS = "grpc-previous-rpc-attempts"
FIELDS = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")


class AttemptDetails(grpc.ClientCallDetails):
    """The call details of one attempt: a copy of an interceptor's own, without the fields that those lack."""

    def __init__(self, call_details: object, changes: dict[str, Any]) -> None:
        for field in FIELDS:
            if hasattr(call_details, field):
                setattr(self, field, getattr(call_details, field))
        vars(self).update(changes)


def details_of(call_details: Any, limit: float, earlier: int) -> Any:
    """Return the call details for an attempt, with its time limit and the number of earlier attempts."""
    aio = type(call_details) is grpc.aio.ClientCallDetails
    changes: dict[str, Any] = {}
    if limit < inf:
        changes["timeout"] = max(0.0, limit)
    if earlier:
        metadata: Any = getattr(call_details, "metadata", None)
        entries = (*(metadata or ()), (PREVIOUS, str(earlier)))
        of_aio = aio or isinstance(metadata, grpc.aio.Metadata)
        changes["metadata"] = grpc.aio.Metadata(*entries) if of_aio else entries
    if not changes and isinstance(call_details, tuple):  # gRPC's own, which are immutable
        return cast("Any", call_details)
    return cast("Any", call_details)._replace(**changes) if aio else AttemptDetails(call_details, changes)


def start_rpc(guard: RpcResendGuard, limit: float) -> Any:
    """Start the RPC of an attempt with a time limit in seconds."""
    details = details_of(guard.call_details, limit, guard.begin_attempt())
    guard.attach(guard.continuation(details, guard.requests.for_attempt()))
    return guard.current


async def astart_rpc(guard: RpcResendGuard, limit: float) -> Any:
    """Start the RPC of an attempt with a time limit in seconds."""
    details = details_of(guard.call_details, limit, guard.begin_attempt())
    guard.attach(await guard.continuation(details, guard.requests.for_attempt()))
    return guard.current


# ------------------------------------------------------------------------ an attempt


class OpenedStream(NamedTuple):
    """A stream of responses: its RPC, the iterator of its messages, and the first one (`END` if none)."""

    call: Any
    items: Any
    first: Any


def attempt_unary(guard: RpcResendGuard) -> Any:
    """Make one attempt at a call with one response."""
    with guard:
        guard.response = result_of(start_rpc(guard, guard.rpc_limit()))
    return guard.response


async def aattempt_unary(guard: RpcResendGuard) -> Any:
    """Make one attempt at a call with one response."""
    with guard:
        guard.response = await aresult_of(await astart_rpc(guard, guard.rpc_limit()))
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
    with guard:
        with limit:
            if guard.take_early_rpc() is None:
                start_rpc(guard, guard.call_limit())
            items = iter(guard.current)
            first = next(items, END)
        if limit.cancelled_caught:
            raise expired(seconds, FailedCall)
        return OpenedStream(guard.current, items, first)


async def aattempt_stream(guard: RpcResendGuard) -> OpenedStream:
    """Make one attempt at a stream of responses, up to its first message."""
    items, first, seconds = None, END, guard.attempt_limit()
    limit = awithin(guard, seconds if seconds < guard.call_limit() else inf)
    with guard:
        with limit:
            if guard.take_early_rpc() is None:  # pragma: no branch  async code starts no RPC early
                await astart_rpc(guard, guard.call_limit())
            items = aiter(guard.current)
            first = await anext(items, END)
        if limit.cancelled_caught:
            raise expired(seconds, AioFailedCall)
        return OpenedStream(guard.current, items, first)


def expired(seconds: float, base: type[grpc.RpcError]) -> Exception:
    """Return the error of an attempt whose first message did not arrive in time."""
    error = AttemptTimeout(f"no message within {max(0.0, seconds):.3g} s", limit="attempt", seconds=seconds)
    as_rpc_error(error, base)
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

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
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
