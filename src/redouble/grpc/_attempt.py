"""One attempt: begin a call, wait for its answer or for its first message, leave nothing behind.

Each comes twice, for blocking and for async code. Whether there is another attempt is not decided here.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from redouble._drivers.stream_source import END
from redouble._runtime.deadline import Deadline
from redouble.errors import AttemptTimeout
from redouble.grpc._answer import Answer
from redouble.grpc._cut import awithin, within
from redouble.grpc._details import adetails_of, details_of
from redouble.grpc._errors import AIO, SYNC, Known, known
from redouble.grpc._permit import WAITING, Permit, cancel

__all__ = [
    "Opened",
    "aanswered",
    "amade",
    "answered",
    "aopened",
    "begun",
    "concluded",
    "made",
    "opened",
]


class Opened(NamedTuple):
    """A stream of responses that has begun: its first message, or `END`, and where the others are."""

    call: Any
    items: Any
    first: Any


def begun(permit: Permit, rest: float) -> Any:
    """Begin an attempt that may take so long."""
    earlier = permit.begins()
    rpc = permit.continuation(details_of(permit.said, rest, earlier), permit.requests.anew())
    try:
        permit.goes(rpc)
        return rpc
    finally:
        del rpc  # it may be its own error, which knows this frame


async def abegun(permit: Permit, rest: float) -> Any:
    """Begin an attempt that may take so long."""
    earlier = permit.begins()
    rpc = await permit.continuation(adetails_of(permit.said, rest, earlier), permit.requests.anew())
    try:
        permit.goes(rpc)
        return rpc
    finally:
        del rpc  # it may be its own error, which knows this frame


# ------------------------------------------------------------------------ all attempts


def made(permit: Permit) -> Any:
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


async def amade(permit: Permit) -> Any:
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


def concluded(permit: Permit) -> Any:
    """Make attempts at a call that has one response, and return the one that has succeeded."""
    try:
        response = made(permit)
    except Exception as error:
        permit.concludes(error, SYNC)
        raise
    same = response is permit.response and permit.current is not None
    return permit.current if same else Answer(response)


# ------------------------------------------------------------------------ one response


def answered(permit: Permit) -> Any:
    """Make an attempt at a call that has one response."""
    rpc, over = None, False
    try:
        rpc = begun(permit, permit.limit())
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


async def aanswered(permit: Permit) -> Any:
    """Make an attempt at a call that has one response."""
    rpc, over = None, False
    try:
        rpc = await abegun(permit, permit.limit())
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


def opened(permit: Permit) -> Opened:
    """Make an attempt at a stream of responses, up to its first message."""
    rpc, items, first, over = permit.taken(), None, END, False
    seconds = permit.limit()
    cut = within(permit, seconds if seconds < permit.rest() else inf)
    try:
        with cut:
            if rpc is None:
                rpc = begun(permit, permit.rest())
            items = iter(rpc)
            first = next(items, END)
        if cut.cancelled_caught:
            raise expired(seconds, SYNC)
        over = True
        return Opened(rpc, items, first)
    except Exception as error:
        permit.failed(error)
        raise
    finally:
        if not over:
            cancel(rpc)
        rpc = None  # it may be its own error, and that and this frame would keep each other alive


async def aopened(permit: Permit) -> Opened:
    """Make an attempt at a stream of responses, up to its first message."""
    rpc, items, first, over = permit.taken(), None, END, False
    seconds = permit.limit()
    cut = awithin(permit, seconds if seconds < permit.rest() else inf)
    try:
        with cut:
            if rpc is None:  # pragma: no branch  async code begins nothing early
                rpc = await abegun(permit, permit.rest())
            items = aiter(rpc)
            first = await anext(items, END)
        if cut.cancelled_caught:
            raise expired(seconds, AIO)
        over = True
        return Opened(rpc, items, first)
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
