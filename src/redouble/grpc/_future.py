"""The future that ``stub.Method.future(...)`` returns in blocking code: a thread of its own runs the policy.

Every thread that has the future may wait for it, query it and cancel it.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from threading import Event
from types import TracebackType
from typing import Any

import grpc

from redouble._drivers.workers.threads import ThreadJob
from redouble._internal.logger import log
from redouble._runtime.thread_waker import ThreadWaker
from redouble.errors import Stopped
from redouble.grpc._attempt import finish_unary
from redouble.grpc._finished_call import CallCancelled, FutureOfAny, ResolvedCall
from redouble.grpc._resend_guard import RpcResendGuard

__all__ = ["FutureCall", "run_callbacks"]


class FutureCall(grpc.Call, FutureOfAny):
    """A call whose policy runs in a thread; a future and a call of gRPC at once."""

    def __init__(self, guard: RpcResendGuard) -> None:
        self._guard = guard
        self._done = Event()
        self._call: Any = None  # the call that has ended
        self._callbacks: list[Callable[[], object]] = []
        self._lock = allocate_lock()
        guard.waker = ThreadWaker()
        ThreadJob(guard.now, self._work, (), {}).start()

    def _work(self) -> None:
        call: Any = None
        try:
            call = finish_unary(self._guard)
        except CallCancelled:
            pass
        except Exception as error:
            call = ResolvedCall(error=error)
        finally:
            with self._lock:
                if self._guard.cancelled:  # wins over the result of an attempt that ended meanwhile
                    call = ResolvedCall(error=self._guard.cancellation_error(None))
                self._call = call or ResolvedCall(
                    error=Stopped("the thread of the call ended without a result")
                )
                self._done.set()
            run_callbacks(self._callbacks)

    # ------------------------------------------------------------------- as a future

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the response and return it; raise the error of a failed call."""
        error = self.exception(timeout)
        try:
            if error is not None:
                raise error
            return self._call.result()
        finally:
            del error

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the end; return the error, or None."""
        if not self.done() and not self._done.wait(timeout):
            raise grpc.FutureTimeoutError
        if self.cancelled():
            raise grpc.FutureCancelledError
        error: Exception | None = self._call.exception()
        return error

    def traceback(self, timeout: float | None = None) -> TracebackType | None:
        """Wait for the end; return the traceback of the error, or None."""
        error = self.exception(timeout)
        return None if error is None else error.__traceback__

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call a function with the future at the end, in the thread of the call; at once if it has ended."""
        if not self.add_callback(lambda: fn(self)):
            fn(self)

    def cancel(self) -> bool:
        """Cancel the call or its delay; return False if it has ended already."""
        with self._lock:
            if self.done():
                return False
            self._guard.cancelled = True
        self._guard.cancel()
        return True

    def cancelled(self) -> bool:
        """Return True if the call was cancelled."""
        return self._guard.cancelled or (self._done.is_set() and bool(self._call.cancelled()))

    def done(self) -> bool:
        """Return True if the call has ended or was cancelled; its thread may still be running then."""
        return self._guard.cancelled or self._done.is_set()

    def running(self) -> bool:
        """Return True if the call has not ended."""
        return not self.done()

    # --------------------------------------------------------------------- as a call

    def code(self) -> Any:
        """Wait for the end; return the status code."""
        return self._ended_call().code()

    def details(self) -> Any:
        """Wait for the end; return the status message."""
        return self._ended_call().details()

    def initial_metadata(self) -> Any:
        """Wait for the end; return the initial metadata."""
        return self._ended_call().initial_metadata()

    def trailing_metadata(self) -> Any:
        """Wait for the end; return the trailing metadata."""
        return self._ended_call().trailing_metadata()

    def debug_error_string(self) -> Any:
        """Wait for the end; return gRPC's debug text."""
        return self._ended_call().debug_error_string()

    def is_active(self) -> bool:
        """Return True if the call has not ended."""
        return not self.done()

    def time_remaining(self) -> Any:
        """Return how many seconds are left for the call, or None if it has no deadline."""
        return self._guard.time_remaining()

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Call a function when the call ends; return False if it has ended already."""
        with self._lock:
            active = not self._done.is_set()
            if active:
                self._callbacks.append(callback)
        return active

    def _ended_call(self) -> Any:
        self._done.wait()
        return self._call


def run_callbacks(callbacks: list[Callable[[], object]]) -> None:
    """Call each callback once and remove it; log the errors that they raise."""
    while callbacks:
        try:
            callbacks.pop(0)()
        except Exception:
            log("a callback of a gRPC call failed", error=True)
