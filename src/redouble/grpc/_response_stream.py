"""The stream of responses of a blocking call: an iterator that is a call and a future of gRPC too.

The first attempt starts at once, as with gRPC itself, unless a layer has to admit it first. The policy runs
in the thread that waits for the first message, and ends when that message has arrived.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import grpc

from redouble._drivers.opened_stream import END
from redouble._runtime.thread_waker import ThreadWaker
from redouble.grpc._attempt import OpenedStream, run_policy, start_rpc
from redouble.grpc._finished_call import SYNC, CallCancelled, FutureOfAny, ResolvedCall
from redouble.grpc._future import run_callbacks
from redouble.grpc._resend_guard import RpcResendGuard, cancel

__all__ = ["ResponseStream"]


class ResponseStream(grpc.Call, FutureOfAny):
    """A stream of responses whose policy runs until the first message."""

    def __init__(self, guard: RpcResendGuard, *, eager: bool) -> None:
        self._guard = guard
        self._call: Any = None  # the RPC that delivers the messages, or the call that has ended
        self._items: Iterator[Any] = iter(())
        self._opening = allocate_lock()  # held by the thread that runs the policy
        self._callbacks: list[Callable[[], object]] = []
        self._lock = allocate_lock()
        guard.waker = ThreadWaker()
        if eager and min(guard.attempt_limit(), guard.plan.total) > 0:
            guard.early_rpc = start_rpc(guard, guard.call_limit())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._call is None:
            self._opened_call()
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            if not isinstance(self._call, ResolvedCall):
                self._guard.record_break(error)
            raise

    next = __next__

    # --------------------------------------------------------------------- as a call

    def initial_metadata(self) -> Any:
        """Wait for the initial metadata and return them; no attempt follows once the caller has them."""
        call = self._guard.current
        if self._call is None and call is not None:
            metadata = call.initial_metadata()
            if self._guard.commit(call) if metadata else call.is_active():
                return metadata
        return self._opened_call().initial_metadata()

    def trailing_metadata(self) -> Any:
        """Wait for the end; return the trailing metadata."""
        return self._opened_call().trailing_metadata()

    def code(self) -> Any:
        """Wait for the end; return the status code."""
        return self._opened_call().code()

    def details(self) -> Any:
        """Wait for the end; return the status message."""
        return self._opened_call().details()

    def debug_error_string(self) -> Any:
        """Wait for the end; return gRPC's debug text."""
        return self._opened_call().debug_error_string()

    def cancel(self) -> bool:
        """Cancel the call or its delay; return False if it has ended already."""
        if self._call is not None:
            return cancel(self._call)
        self._guard.cancel()
        if self._opening.acquire(blocking=False):  # no thread runs the policy: end the call here
            try:
                self._open()
            finally:
                self._opening.release()
        return True

    def is_active(self) -> bool:
        """Return True if the call has not ended."""
        call, guard = self._call, self._guard
        if call is not None:
            return bool(call.is_active())
        return not guard.cancelled and guard.call_limit() > 0

    def time_remaining(self) -> Any:
        """Return how many seconds are left for the call, or None if it has no deadline."""
        return self._guard.time_remaining()

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Call a function when the call ends; return False if it has ended already."""
        with self._lock:
            if self._call is None:
                self._callbacks.append(callback)
                return True
        return bool(self._call.add_callback(callback))

    # ------------------------------------------------------------------- as a future

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end; raise the error of a failed call. Responses are read by iterating."""
        return self._call_unless_cancelled().result(timeout)

    def exception(self, timeout: float | None = None) -> Any:
        """Wait for the end; return the error, or None."""
        return self._call_unless_cancelled().exception(timeout)

    def traceback(self, timeout: float | None = None) -> Any:
        """Wait for the end; return the traceback of the error, or None."""
        return self._call_unless_cancelled().traceback(timeout)

    def _call_unless_cancelled(self) -> Any:
        """Wait for the first message and return the RPC; raise if the call was cancelled."""
        call = self._opened_call()
        if self.cancelled():
            raise grpc.FutureCancelledError
        return call

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call a function with the stream when the call ends; at once if it has."""
        if not self.add_callback(lambda: fn(self)):
            fn(self)

    def cancelled(self) -> bool:
        """Return True if the call was cancelled."""
        return self._guard.cancelled if self._call is None else bool(self._call.cancelled())

    def done(self) -> bool:
        """Return True if the call has ended."""
        return not self.is_active()

    def running(self) -> bool:
        """Return True if the call has not ended."""
        return self.is_active()

    # ------------------------------------------------------------------------ opening

    def _opened_call(self) -> Any:
        """Wait for the first message; return the RPC that delivers it, or the call that has ended."""
        if self._call is None:  # set before callbacks run, because a callback may get here
            with self._opening:
                self._open()
        return self._call

    def _open(self) -> None:
        guard = self._guard
        if self._call is not None:
            return
        try:
            opened = _failed_stream(guard.cancellation_error(None)) if guard.cancelled else run_policy(guard)
        except CallCancelled as error:
            opened = _failed_stream(guard.cancellation_error(error))
        except Exception as error:
            guard.conclude(error, SYNC)
            opened = _failed_stream(guard.cancellation_error(error) if guard.cancelled else error)
        finally:
            cancel(guard.take_early_rpc())  # no attempt has continued the early RPC
        if not isinstance(opened, OpenedStream):  # the result of a fallback, for instance
            opened = OpenedStream(ResolvedCall(), iter(opened), END)
        call, items, first = opened
        self._items = items if first is END else chain((first,), items)
        with self._lock:
            self._call = call
        while self._callbacks:
            callback = self._callbacks.pop(0)
            if not call.add_callback(callback):
                run_callbacks([callback])


def _failed_stream(error: Exception) -> OpenedStream:
    call = ResolvedCall(error=error)
    return OpenedStream(call, iter(call.result, END), END)
