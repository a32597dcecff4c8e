"""One attempt of an RPC: start it, wait for its response or its first message, and cancel it if it fails.

Each function has a blocking and an async twin. An attempt gets a copy of the caller's call details with the
time that is left and the number of earlier attempts; the caller's own details are never changed.

The limit of an attempt at a stream ends at its first message, so a timer or a cancel scope enforces it.
gRPC's own timeout covers the whole RPC and would also cut the messages after the first.
"""

from __future__ import annotations

from _thread import allocate_lock
from math import inf
from threading import Timer
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc

from redouble._drivers.stream_source import END
from redouble._runtime.backend import CancelScope, cut_after
from redouble._runtime.deadline import Deadline
from redouble.errors import AttemptTimeout
from redouble.grpc._finished_call import AIO, SYNC, Known, ResolvedCall, known
from redouble.grpc._permit import WAITING, RpcResendGuard, cancel

__all__ = [
    "PREVIOUS",
    "AttemptTimer",
    "OpenedStream",
    "aattempt_stream",
    "aattempt_unary",
    "adetails_of",
    "arun_policy",
    "attempt_stream",
    "attempt_unary",
    "awithin",
    "details_of",
    "finish_unary",
    "name_of",
    "run_policy",
    "start_rpc",
    "within",
]


def within(permit: RpcResendGuard, seconds: float) -> AttemptTimer:
    """Return the time limit of an attempt in blocking code."""
    return AttemptTimer(permit, seconds)


def awithin(_: RpcResendGuard, seconds: float) -> CancelScope:
    """Return the time limit of an attempt in async code."""
    return cut_after(seconds)


class AttemptTimer:
    """The time limit of an attempt in blocking code, with the interface of `cut_after`: cancels the RPC."""

    def __init__(self, permit: RpcResendGuard, seconds: float) -> None:
        self.cancelled_caught = self._over = False
        self._permit, self._deciding = permit, allocate_lock()
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
        with self._deciding:
            self._over = True
        return self.cancelled_caught and isinstance(error, Exception)

    def _cut(self) -> None:
        # Under the lock, so that the attempt cannot end in between: else the next attempt's RPC is cancelled.
        with self._deciding:
            if not self._over:
                self.cancelled_caught = self._permit.overdue = True
                cancel(self._permit.current)


PREVIOUS = "grpc-previous-rpc-attempts"
FIELDS = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")


class AttemptDetails(grpc.ClientCallDetails):
    """The call details of one attempt: a copy of the caller's, without the fields that those lack."""

    def __init__(self, said: object) -> None:
        for field in FIELDS:
            if hasattr(said, field):
                setattr(self, field, getattr(said, field))


def details_of(said: Any, rest: float, earlier: int) -> grpc.ClientCallDetails:
    """Copy the call details for an attempt, with its time limit and the number of earlier attempts."""
    details = AttemptDetails(said)
    if rest < inf:
        details.timeout = max(0.0, rest)
    if earlier:
        details.metadata = (*(getattr(said, "metadata", None) or ()), (PREVIOUS, str(earlier)))
    return details


def adetails_of(said: Any, rest: float, earlier: int) -> grpc.aio.ClientCallDetails:
    """Copy the call details of `grpc.aio` in the same way."""
    metadata = said.metadata
    if earlier:
        metadata = grpc.aio.Metadata(*(metadata or ()), (PREVIOUS, str(earlier)))
    return grpc.aio.ClientCallDetails(
        said.method,
        max(0.0, rest) if rest < inf else said.timeout,
        metadata,
        said.credentials,
        said.wait_for_ready,
    )


def name_of(method: str | bytes) -> str:
    """Return the name of a method as events have it: without the leading slash."""
    text = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
    return text.removeprefix("/")


class OpenedStream(NamedTuple):
    """A stream of responses: its RPC, the iterator of its messages, and the first one (`END` if none)."""

    call: Any
    items: Any
    first: Any


def start_rpc(permit: RpcResendGuard, rest: float) -> Any:
    """Start the RPC of an attempt with a time limit in seconds."""
    earlier = permit.begins()
    rpc = permit.continuation(details_of(permit.said, rest, earlier), permit.requests.anew())
    try:
        permit.goes(rpc)
        return rpc
    finally:
        del rpc  # it may be its own error, whose traceback refers to this frame


async def astart_rpc(permit: RpcResendGuard, rest: float) -> Any:
    """Start the RPC of an attempt with a time limit in seconds."""
    earlier = permit.begins()
    rpc = await permit.continuation(adetails_of(permit.said, rest, earlier), permit.requests.anew())
    try:
        permit.goes(rpc)
        return rpc
    finally:
        del rpc  # it may be its own error, whose traceback refers to this frame


# ------------------------------------------------------------------------ the policy


def run_policy(permit: RpcResendGuard) -> Any:
    """Run the policy of a call within the deadline of the call."""
    send = permit.plan.call_for(permit.plan.name)
    before = WAITING.set(permit)
    try:
        rest = permit.waits()
        if rest == inf:
            return send(permit)
        with Deadline(max(0.0, rest)):
            return send(permit)
    finally:
        WAITING.reset(before)


async def arun_policy(permit: RpcResendGuard) -> Any:
    """Run the policy of a call within the deadline of the call."""
    send = permit.plan.call_for(permit.plan.name)
    before = WAITING.set(permit)
    try:
        rest = permit.waits()
        if rest == inf:
            return await send(permit)
        with Deadline(max(0.0, rest)):
            return await send(permit)
    finally:
        WAITING.reset(before)


def finish_unary(permit: RpcResendGuard) -> Any:
    """Run the policy of a call with one response; return the RPC that succeeded."""
    try:
        response = run_policy(permit)
    except Exception as error:
        permit.concludes(error, SYNC)
        raise
    same = response is permit.response and permit.current is not None
    return permit.current if same else ResolvedCall(response)


# ------------------------------------------------------------------------ one response


def attempt_unary(permit: RpcResendGuard) -> Any:
    """Make one attempt at a call with one response."""
    rpc, over = None, False
    try:
        rpc = start_rpc(permit, permit.limit())
        permit.response = result_of(rpc)
        over = True
    except Exception as error:
        permit.failed(error)
        raise
    finally:
        if not over:
            cancel(rpc)
        rpc = None  # it may be its own error: a reference cycle with this frame
    return permit.response


async def aattempt_unary(permit: RpcResendGuard) -> Any:
    """Make one attempt at a call with one response."""
    rpc, over = None, False
    try:
        rpc = await astart_rpc(permit, permit.limit())
        permit.response = await aresult_of(rpc)
        over = True
    except Exception as error:
        permit.failed(error)
        raise
    finally:
        if not over:
            cancel(rpc)
        rpc = None  # it may be its own error: a reference cycle with this frame
    return permit.response


def result_of(call: Any) -> Any:
    """Wait for the response of an RPC in blocking code; raise its error with this traceback."""
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


# ---------------------------------------------------------------- a stream of responses


def attempt_stream(permit: RpcResendGuard) -> OpenedStream:
    """Make one attempt at a stream of responses, up to its first message."""
    rpc, items, first, over = permit.taken(), None, END, False
    seconds = permit.limit()
    cut = within(permit, seconds if seconds < permit.rest() else inf)
    try:
        with cut:
            if rpc is None:
                rpc = start_rpc(permit, permit.rest())
            items = iter(rpc)
            first = next(items, END)
        if cut.cancelled_caught:
            raise expired(seconds, SYNC)
        over = True
        return OpenedStream(rpc, items, first)
    except Exception as error:
        permit.failed(error)
        raise
    finally:
        if not over:
            cancel(rpc)
        rpc = None  # it may be its own error: a reference cycle with this frame


async def aattempt_stream(permit: RpcResendGuard) -> OpenedStream:
    """Make one attempt at a stream of responses, up to its first message."""
    rpc, items, first, over = permit.taken(), None, END, False
    seconds = permit.limit()
    cut = awithin(permit, seconds if seconds < permit.rest() else inf)
    try:
        with cut:
            if rpc is None:  # pragma: no branch  async code starts no RPC early
                rpc = await astart_rpc(permit, permit.rest())
            items = aiter(rpc)
            first = await anext(items, END)
        if cut.cancelled_caught:
            raise expired(seconds, AIO)
        over = True
        return OpenedStream(rpc, items, first)
    except Exception as error:
        permit.failed(error)
        raise
    finally:
        if not over:
            cancel(rpc)
        rpc = None  # it may be its own error: a reference cycle with this frame


def expired(seconds: float, both: Known) -> Exception:
    """Return the error of an attempt whose first message did not arrive in time."""
    error = AttemptTimeout(f"no message within {max(0.0, seconds):.3g} s", limit="attempt", seconds=seconds)
    known(error, both)
    return error
