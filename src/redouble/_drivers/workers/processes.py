"""Calls in worker processes, which can be killed.

The function and its arguments are sent to a process, which replies with the result. An object that cannot be
pickled raises `WorkerFailed`.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from redouble._drivers.workers.pickling import pack, unpack
from redouble._drivers.workers.process_pool import REAP_TIMEOUT, WorkerProcess
from redouble._internal.callables import display_name
from redouble._telemetry.bound_fields import BOUND
from redouble.errors import WorkerFailed

__all__ = ["REAP_TIMEOUT", "AsyncJobSteps", "ProcessJob", "WorkerTraceback"]


START_TIMEOUT = 60.0  # seconds that a process may take to start, or to import a module

NAMELESS = "Write a function at the top of a module, and arguments that can be pickled"
NESTED = "Of several layers, only the innermost can run its calls in a worker process"


class WorkerTraceback(Exception):
    """The cause of an error that came from a worker process: its traceback there, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ProcessJob:
    """One call of a blocking function in a process."""

    def __init__(
        self, start: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._call = (fn, args, kwargs)
        self._process = WorkerProcess.idle(start)
        self._owned = True  # False once the process is released: another job may take it at once
        self._lock = allocate_lock()

    def is_ready(self, seconds: float) -> bool:
        """Wait until the process has started; return True if it was in time."""
        try:
            ready = self._process.is_ready(min(seconds, START_TIMEOUT))
            if not ready and seconds > START_TIMEOUT:
                raise WorkerFailed(f"a worker process was not ready after {START_TIMEOUT:g} s")
        except WorkerFailed:
            self.close()
            raise
        if not ready:
            self.release()  # it continues to start, for a later job
        return ready

    def has_loaded(self, seconds: float) -> bool:
        """Wait until the process has imported the function's module: the attempt has not begun yet."""
        fn: Any = self._call[0]
        while isinstance(fn, partial):
            fn = fn.func
        module: str | None = getattr(fn, "__module__", None)
        if module in self._process.loaded:
            return True
        self._process.load(module, self._packed(fn))
        return self.is_ready(seconds)

    def start(self, seconds: float) -> None:
        """Send the call. ``seconds`` becomes the deadline in the process."""
        self._process.send(self._packed((*self._call, seconds, dict(BOUND.get()))))

    def _packed(self, work: object) -> bytes:
        try:
            return pack(work)
        except Exception as error:
            self.release()
            fn = self._call[0]
            raise WorkerFailed(
                f"{display_name(fn)} or its arguments cannot be sent to a worker process: {error}. "
                f"{NESTED if hasattr(fn, '__wrapped__') else NAMELESS}"
            ) from error

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the call; return True if it has ended."""
        return self._process.has_reply(seconds)

    def result(self) -> Any:
        """Return the result of the call, or raise its error."""
        kind, sent, text = self._process.receive()
        self.release()
        name = display_name(self._call[0])
        if not sent:
            raise WorkerFailed(
                f"{name} cannot be called in a worker process, which failed to unpickle it: {text}"
                if kind == "unreadable"
                else f"the result or error of {name} cannot be sent back from a worker process: {text}"
            )
        try:
            payload = unpack(sent)
        except Exception as error:
            raise WorkerFailed(
                f"the result or error of {name} cannot be unpickled: {error}{text and '. It was: '}{text}"
            ) from error
        if kind == "value":
            return payload
        if not isinstance(payload, BaseException):
            raise WorkerFailed(f"the error that {name} raised cannot be unpickled. It was: {text}")
        try:
            raise payload from WorkerTraceback(text)
        finally:
            del payload  # break the cycle of the error and this frame

    def kill(self) -> None:
        """Kill the process, unless it was released, which ends a wait for its reply."""
        with self._lock:
            if self._owned:
                self._process.kill()

    def close(self) -> None:
        """Kill and end the process unless it was released: its state is unknown."""
        with self._lock:
            owned, self._owned = self._owned, False
        if owned:
            self._process.kill()
            self._process.end()

    def release(self) -> None:
        """Park the process for other jobs."""
        with self._lock:
            owned, self._owned = self._owned, False
        if owned:
            self._process.park()


class AsyncJobSteps:
    """A process job that a thread runs for async code: it prepares a process, then waits for `start`."""

    def __init__(self, make: Callable[[], ProcessJob], wake: Callable[[], object]) -> None:
        self._make, self._wake = make, wake
        self._job: ProcessJob | None = None
        self._seconds: float | None = None
        self._proceed = allocate_lock()
        self._proceed.acquire()

    def run(self) -> Any:
        """Run all steps, on the thread; in any case release or close the process."""
        try:
            self._job = job = self._make()
            job.is_ready(inf)
            job.has_loaded(inf)
            self._wake()
            self._proceed.acquire()
            if self._seconds is None:
                return job.release()
            job.start(self._seconds)
            job.wait(inf)
            return job.result()
        finally:
            self._wake()
            if self._job is not None:
                self._job.close()

    def start(self, seconds: float) -> None:
        """Let the thread make the call, with this many seconds."""
        self._seconds = seconds
        self._proceed.release()

    def stop(self) -> None:
        """End the job: kill the process if the call has begun; otherwise keep it for another job."""
        if self._seconds is None:
            self._proceed.release()
        elif self._job is not None:
            self._job.kill()
