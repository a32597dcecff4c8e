"""The calls of blocking code that may be used before they end: futures, and streams of responses.

Both are a call and a future of gRPC at once, and every thread may wait for them, query them and cancel them.
"""

from __future__ import annotations

from _thread import allocate_lock
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partialmethod
from itertools import chain
from threading import Event
from typing import Any

import grpc

from redouble._drivers.opened_stream import END
from redouble._drivers.workers.threads import ThreadJob
from redouble._internal.logger import log
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout.timeout import Timeout
from redouble._runtime.thread_waker import ThreadWaker
from redouble.errors import Reason, Stopped
from redouble.grpc._attempt import OpenedStream, rpc_of, run_policy, start_rpc
from redouble.grpc._finished_call import CallCancelled, FutureOfAny, ResolvedCall
from redouble.grpc._resend_guard import RpcResendGuard, cancel


def call_unary(guard: RpcResendGuard) -> Any:
    """Run the policy of a call with one response; return the RPC that succeeded."""
    response = run_policy(guard)
    rpc = rpc_of(guard, response)
    return ResolvedCall(response) if rpc is None else rpc


def start_unary(guard: RpcResendGuard) -> Any:
    """Run the policy of a call with one response, or return its future."""
    # gRPC intercepts a call and a ``.future()`` alike; only the name of its continuation differs.
    is_future = ".future." in getattr(guard.continuation, "__qualname__", "")
    return FutureCall(guard) if is_future else call_unary(guard)


def status_of(call: BlockingCall, name: str) -> Any:
    """Wait for a call, and read its status by the method of this name."""
    return getattr(call._wait(), name)()


def outcome_of(call: BlockingCall, name: str, timeout: float | None = None) -> Any:
    """Wait for a call, and read its outcome by the method of this name."""
    ended = None if call.cancelled() else call._wait(timeout)
    if call.cancelled():
        raise grpc.FutureCancelledError
    return getattr(ended, name)(timeout)


class BlockingCall(grpc.Call, FutureOfAny):
    """A call under a policy: a call and a future of gRPC at once."""

    _call: Any = None  # the RPC that delivers the response, or the call that has ended

    def __init__(self, guard: RpcResendGuard) -> None:
        self._guard = guard
        self._callbacks: list[Callable[[], object]] = []
        self._lock = allocate_lock()
        self._waker = guard.waker = ThreadWaker()

    @abstractmethod
    def _wait(self, timeout: float | None = None) -> Any:
        """Wait for the policy; return the RPC that delivers the response, or the call that has ended."""

    def _run(self, run: Callable[[RpcResendGuard], Any]) -> Any:
        """Run the policy; return its result, or the call that has failed."""
        guard = self._guard
        try:
            if guard.cancelled:
                raise CallCancelled
            return run(guard)
        except (CallCancelled, grpc.FutureCancelledError) as error:
            return ResolvedCall(error=guard.cancellation_error(error))
        except Exception as error:
            return ResolvedCall(error=guard.cancellation_error(error) if guard.cancelled else error)

    def _run_callbacks(self) -> None:
        """Pass each callback to the call that the policy returned; run it if that call has ended."""
        while self._callbacks:
            callback = self._callbacks.pop(0)
            try:
                if not self._call.add_callback(callback):
                    callback()
            except Exception:
                log("a callback of a gRPC call failed", error=True)

    def _cancel(self) -> None:
        """Cancel the running RPC or the delay, and prevent further attempts."""
        self._guard.cancelled = True
        self._waker.wake()
        cancel(self._guard.current)

    # --------------------------------------------------------------------- as a call

    code: Any = partialmethod(status_of, "code")
    details: Any = partialmethod(status_of, "details")
    initial_metadata: Any = partialmethod(status_of, "initial_metadata")
    trailing_metadata: Any = partialmethod(status_of, "trailing_metadata")
    debug_error_string: Any = partialmethod(status_of, "debug_error_string")

    def is_active(self) -> bool:
        """Return True if the call has not ended."""
        return not self._guard.cancelled if self._call is None else bool(self._call.is_active())

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

    result: Any = partialmethod(outcome_of, "result")
    exception: Any = partialmethod(outcome_of, "exception")
    traceback: Any = partialmethod(outcome_of, "traceback")

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call a function with this object when the call ends; at once if it has ended."""
        if not self.add_callback(lambda: fn(self)):
            fn(self)

    def cancelled(self) -> bool:
        """Return True if the call was cancelled."""
        return self._guard.cancelled if self._call is None else bool(self._call.cancelled())

    def done(self) -> bool:
        """Return True if the call has ended or was cancelled; its thread may still be running then."""
        return not self.is_active()

    def running(self) -> bool:
        """Return True if the call has not ended."""
        return self.is_active()


class FutureCall(BlockingCall):
    """The future that ``stub.Method.future(...)`` returns: a thread of its own runs the policy."""

    def __init__(self, guard: RpcResendGuard) -> None:
        super().__init__(guard)
        self._ended = Event()
        ThreadJob(guard.now, self._work, (), {}).start()

    def _work(self) -> None:
        call = ResolvedCall(error=Stopped("the thread of the call ended without a result"))
        try:
            call = self._run(call_unary)
        finally:
            with self._lock:
                if self._guard.cancelled:  # wins over the result of an attempt that ended meanwhile
                    call = ResolvedCall(error=self._guard.cancellation_error(None))
                self._call = call
            self._ended.set()
            self._run_callbacks()

    def _wait(self, timeout: float | None = None) -> Any:
        if not self._ended.wait(timeout):
            raise grpc.FutureTimeoutError
        return self._call

    def cancel(self) -> bool:
        """Cancel the call or its delay; return False if it has ended already."""
        with self._lock:
            if self.done():
                return False
            self._guard.cancelled = True
        self._cancel()
        return True


class ResponseStream(BlockingCall):
    """A stream of responses, whose policy ends when the first message has arrived.

    The first attempt starts at once, as with gRPC itself, unless a layer has to admit it first. The policy
    runs in the thread that waits for the first message.
    """

    def __init__(self, guard: RpcResendGuard) -> None:
        super().__init__(guard)
        self._items: Iterator[Any] = iter(())
        self._opening = allocate_lock()  # held by the thread that runs the policy
        eager = all(isinstance(layer, Retry | Timeout) for layer in guard.plan.layers)
        if eager and min(guard.attempt_limit(), guard.plan.total) > 0:
            guard.early_rpc = start_rpc(guard, guard.call_limit())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._call is None:
            self._wait()
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            if not isinstance(self._call, ResolvedCall):
                self._guard.annotate(error, Reason.committed)
            raise

    next = __next__

    def initial_metadata(self) -> Any:
        """Wait for the initial metadata and return them; no attempt follows once the caller has them."""
        rpc = self._guard.current
        if self._call is None and rpc is not None:
            metadata = rpc.initial_metadata()
            if self._guard.commit(rpc) if metadata else rpc.is_active():
                return metadata
        return self._wait().initial_metadata()

    def is_active(self) -> bool:
        """Return True if the call has not ended."""
        return super().is_active() and (self._call is not None or self._guard.call_limit() > 0)

    def cancel(self) -> bool:
        """Cancel the call or its delay; return False if it has ended already."""
        if self._call is not None:
            return cancel(self._call)
        self._cancel()
        if self._opening.acquire(blocking=False):  # no thread runs the policy: end the call here
            try:
                self._open()
            finally:
                self._opening.release()
        return True

    def _wait(self, timeout: float | None = None) -> Any:  # noqa: ARG002  the policy's limits apply
        if self._call is None:  # set before callbacks run, because a callback may get here
            with self._opening:
                self._open()
        return self._call

    def _open(self) -> None:
        if self._call is not None:
            return
        try:
            opened = self._run(run_policy)
        finally:
            cancel(self._guard.take_early_rpc())  # no attempt has continued the early RPC
        if isinstance(opened, ResolvedCall):  # failed
            opened = OpenedStream(opened, iter(opened.result, END), END)
        elif not isinstance(opened, OpenedStream):  # the result of a fallback, for instance
            opened = OpenedStream(ResolvedCall(), iter(opened), END)
        self._items = opened.items if opened.first is END else chain((opened.first,), opened.items)
        with self._lock:
            self._call = opened.call
        self._run_callbacks()
