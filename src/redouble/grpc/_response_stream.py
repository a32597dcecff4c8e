"""A stream of responses in blocking code: an iterator with the face of a call.

Its first attempt begins at once, as with gRPC itself, unless a layer has to be asked before. What follows a
failure happens where somebody waits for the first message, and only until that has come.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import grpc

from redouble._drivers.stream_source import END
from redouble._runtime.thread_waker import ThreadWaker
from redouble.grpc._attempt import OpenedStream, run_policy, start_rpc
from redouble.grpc._finished_call import SYNC, CallCancelled, FutureOfAny, ResolvedCall
from redouble.grpc._future import tell
from redouble.grpc._permit import RpcResendGuard, cancel

__all__ = ["ResponseStream"]


class ResponseStream(grpc.Call, FutureOfAny):
    """A stream of responses."""

    def __init__(self, permit: RpcResendGuard, *, eager: bool) -> None:
        self._permit = permit
        self._call: Any = None  # the one that its messages come by, or how it came out
        self._items: Iterator[Any] = iter(())
        self._opening = allocate_lock()  # held while somebody waits for it
        self._callbacks: list[Callable[[], object]] = []
        self._deciding = allocate_lock()
        permit.bell = ThreadWaker()
        if eager and min(permit.limit(), permit.plan.total) > 0:
            permit.early = start_rpc(permit, permit.rest())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._call is None:
            self._opened()
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            if not isinstance(self._call, ResolvedCall):
                self._permit.breaks(error)
            raise

    next = __next__

    # --------------------------------------------------------------------- as a call

    def initial_metadata(self) -> Any:
        """Wait for what the server sends first, and return it: there is no other attempt after that."""
        call = self._permit.current
        if self._call is None and call is not None:
            found = call.initial_metadata()
            if self._permit.commit(call) if found else call.is_active():
                return found
        return self._opened().initial_metadata()

    def trailing_metadata(self) -> Any:
        """Wait for the end, and return what the server sent last."""
        return self._opened().trailing_metadata()

    def code(self) -> Any:
        """Wait for the end, and return the code."""
        return self._opened().code()

    def details(self) -> Any:
        """Wait for the end, and return what the server said."""
        return self._opened().details()

    def debug_error_string(self) -> Any:
        """Wait for the end, and return what gRPC says about it."""
        return self._opened().debug_error_string()

    def cancel(self) -> bool:
        """Cancel the call, or the waiting for its next attempt; say whether it was not over yet."""
        if self._call is not None:
            return cancel(self._call)
        self._permit.cancel()
        if self._opening.acquire(blocking=False):  # nobody reads it, who would come to its end by himself
            try:
                self._open()
            finally:
                self._opening.release()
        return True

    def is_active(self) -> bool:
        """Say whether it is not over."""
        call, permit = self._call, self._permit
        if call is not None:
            return bool(call.is_active())
        return not permit.cancelled and permit.rest() > 0

    def time_remaining(self) -> Any:
        """Tell how long the call may take, or None."""
        return self._permit.remaining()

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Call a function when it is over; False if it is."""
        with self._deciding:
            if self._call is None:
                self._callbacks.append(callback)
                return True
        return bool(self._call.add_callback(callback))

    # ------------------------------------------------------------------- as a future

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, and raise the error if there is one; responses are read."""
        return self._kept().result(timeout)

    def exception(self, timeout: float | None = None) -> Any:
        """Wait for the end, and return the error, or None."""
        return self._kept().exception(timeout)

    def traceback(self, timeout: float | None = None) -> Any:
        """Wait for the end, and say where the error was raised."""
        return self._kept().traceback(timeout)

    def _kept(self) -> Any:
        """Wait for the first message, and return the call; who has cancelled it has none."""
        call = self._opened()
        if self.cancelled():
            raise grpc.FutureCancelledError
        return call

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call a function with the stream when it is over, or at once."""
        if not self.add_callback(lambda: fn(self)):
            fn(self)

    def cancelled(self) -> bool:
        """Say whether it was cancelled."""
        return self._permit.cancelled if self._call is None else bool(self._call.cancelled())

    def done(self) -> bool:
        """Say whether it is over."""
        return not self.is_active()

    def running(self) -> bool:
        """Say whether it is not over."""
        return self.is_active()

    # ------------------------------------------------------------------------ opening

    def _opened(self) -> Any:
        """Wait for the first message, and return the call that it comes by, or how it came out."""
        if self._call is None:  # it is there before anybody is called back, who may ask for it
            with self._opening:
                self._open()
        return self._call

    def _open(self) -> None:
        permit = self._permit
        if self._call is not None:
            return
        try:
            opened = _failed(permit.withdrawn(None)) if permit.cancelled else run_policy(permit)
        except CallCancelled as error:
            opened = _failed(permit.withdrawn(error))
        except Exception as error:
            permit.concludes(error, SYNC)
            opened = _failed(permit.withdrawn(error) if permit.cancelled else error)
        finally:
            cancel(permit.taken())  # which nobody has come for
        if not isinstance(opened, OpenedStream):  # a fallback, for instance
            opened = OpenedStream(ResolvedCall(), iter(opened), END)
        call, items, first = opened
        self._items = items if first is END else chain((first,), items)
        with self._deciding:
            self._call = call
        while self._callbacks:
            callback = self._callbacks.pop(0)
            if not call.add_callback(callback):
                tell([callback])


def _failed(error: Exception) -> OpenedStream:
    answer = ResolvedCall(error=error)
    return OpenedStream(answer, iter(answer.result, END), END)
