"""One attempt: begin a call, wait for its answer or for its first message, leave nothing behind.

Each comes twice, for blocking and for async code. Whether there is another attempt is not decided here.

A limit of one attempt at a stream, up to its first message: it ends the call that is under way.

A limit of the whole rpc, which gRPC knows, would also end the messages after the first.

What an attempt is called with: the caller's own details, the time that is left, and its number.

Nothing of the caller's is changed. Whether there may be an attempt is not known here.
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
    """Return what cuts an attempt in blocking code."""
    return AttemptTimer(permit, seconds)


def awithin(_: RpcResendGuard, seconds: float) -> CancelScope:
    """Return what cuts an attempt in async code."""
    return cut_after(seconds)


class AttemptTimer:
    """A limit in blocking code, with the face of `cut_after`: the call is cancelled when time is up."""

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
        # All of it before the attempt may end, or the call that is cancelled would be that of the next one.
        with self._deciding:
            if not self._over:
                self.cancelled_caught = self._permit.overdue = True
                cancel(self._permit.current)


PREVIOUS = "grpc-previous-rpc-attempts"
FIELDS = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")


class AttemptDetails(grpc.ClientCallDetails):
    """The details of one attempt. What the caller's do not have, these do not have either."""

    def __init__(self, said: object) -> None:
        for field in FIELDS:
            if hasattr(said, field):
                setattr(self, field, getattr(said, field))


def details_of(said: Any, rest: float, earlier: int) -> grpc.ClientCallDetails:
    """Say it anew, for an attempt that may take so long and has so many before it."""
    details = AttemptDetails(said)
    if rest < inf:
        details.timeout = max(0.0, rest)
    if earlier:
        details.metadata = (*(getattr(said, "metadata", None) or ()), (PREVIOUS, str(earlier)))
    return details


def adetails_of(said: Any, rest: float, earlier: int) -> grpc.aio.ClientCallDetails:
    """Do the same for `grpc.aio`."""
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
    """Return the name of a method, as in events: without the slash that it begins with."""
    text = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
    return text.removeprefix("/")


class OpenedStream(NamedTuple):
    """A stream of responses that has begun: its first message, or `END`, and where the others are."""

    call: Any
    items: Any
    first: Any


def start_rpc(permit: RpcResendGuard, rest: float) -> Any:
    """Begin an attempt that may take so long."""
    earlier = permit.begins()
    rpc = permit.continuation(details_of(permit.said, rest, earlier), permit.requests.anew())
    try:
        permit.goes(rpc)
        return rpc
    finally:
        del rpc  # it may be its own error, which knows this frame


async def astart_rpc(permit: RpcResendGuard, rest: float) -> Any:
    """Begin an attempt that may take so long."""
    earlier = permit.begins()
    rpc = await permit.continuation(adetails_of(permit.said, rest, earlier), permit.requests.anew())
    try:
        permit.goes(rpc)
        return rpc
    finally:
        del rpc  # it may be its own error, which knows this frame


# ------------------------------------------------------------------------ all attempts


def run_policy(permit: RpcResendGuard) -> Any:
    """Make attempts, as the policy says, within the time of the call."""
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
    """Make attempts, as the policy says, within the time of the call."""
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
    """Make attempts at a call that has one response, and return the one that has succeeded."""
    try:
        response = run_policy(permit)
    except Exception as error:
        permit.concludes(error, SYNC)
        raise
    same = response is permit.response and permit.current is not None
    return permit.current if same else ResolvedCall(response)


# ------------------------------------------------------------------------ one response


def attempt_unary(permit: RpcResendGuard) -> Any:
    """Make an attempt at a call that has one response."""
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
        rpc = None  # it may be its own error, and that and this frame would keep each other alive
    return permit.response


async def aattempt_unary(permit: RpcResendGuard) -> Any:
    """Make an attempt at a call that has one response."""
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
        rpc = None  # it may be its own error, and that and this frame would keep each other alive
    return permit.response


def result_of(call: Any) -> Any:
    """Wait for the response of a call in blocking code, or raise its error from here."""
    # An error that is no call, of an interceptor behind ours, is handed on by gRPC as if it were one.
    error = call.exception() if hasattr(call, "exception") else call
    try:
        if error is not None:
            raise error
        return call.result()
    finally:
        del call, error


def aresult_of(call: Any) -> Any:
    """Return what waits for the response of a call in async code: the call itself."""
    return call


# ---------------------------------------------------------------- a stream of responses


def attempt_stream(permit: RpcResendGuard) -> OpenedStream:
    """Make an attempt at a stream of responses, up to its first message."""
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
        rpc = None  # it may be its own error, and that and this frame would keep each other alive


async def aattempt_stream(permit: RpcResendGuard) -> OpenedStream:
    """Make an attempt at a stream of responses, up to its first message."""
    rpc, items, first, over = permit.taken(), None, END, False
    seconds = permit.limit()
    cut = awithin(permit, seconds if seconds < permit.rest() else inf)
    try:
        with cut:
            if rpc is None:  # pragma: no branch  async code begins nothing early
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
        rpc = None  # it may be its own error, and that and this frame would keep each other alive


def expired(seconds: float, both: Known) -> Exception:
    """Make the error of an attempt whose first message has not come in time."""
    error = AttemptTimeout(f"no message within {max(0.0, seconds):.3g} s", limit="attempt", seconds=seconds)
    known(error, both)
    return error
