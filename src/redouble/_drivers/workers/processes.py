"""Calls in worker processes, which can be killed.

The function and its arguments are sent to a process, which replies with the result. An object that cannot be
pickled raises `WorkerFailed`.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock
from collections.abc import Callable
from math import inf
from typing import Any

from redouble._drivers.workers.pickling import pack, unpack
from redouble._drivers.workers.process_pool import WorkerProcess
from redouble._internal.callables import display_name, without_partials
from redouble._redaction.rendering import described, shown_end, without_secrets
from redouble._runtime.clock import context_clock
from redouble._runtime.deadline import inherited_calls
from redouble._runtime.priority import PRIORITY
from redouble._telemetry.bound_fields import BOUND
from redouble.errors import WorkerFailed

PREPARING, PREPARED, CALLING = range(3)  # the steps of a job

NAMELESS = "Write a function at the top of a module, and arguments that can be pickled"
NESTED = "Of several layers, only the innermost can run its calls in a worker process"


class WorkerTraceback(Exception):
    """The cause of an error that came from a worker process: its traceback there, as text without secrets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def __str__(self) -> str:
        return f"\n{without_secrets(self._text)}"

    def __reduce__(self) -> tuple[type[WorkerTraceback], tuple[str]]:
        return WorkerTraceback, (without_secrets(self._text),)


class ProcessJob:
    """One call of a blocking function in a process."""

    def __init__(self, start: str, call: Callable[[], Any]) -> None:
        self._start, self._call = start, call
        self._step, self._stopped = PREPARING, False
        self._owned = False  # True while it has a process; once released, another job may take it at once
        self._lock = allocate_lock()

    def prepare(self, time_left: Callable[[], float] = lambda: inf) -> bool:
        """Take or start a process and let it import the function's module; return True if that is in time.

        The attempt has not begun yet.
        """
        self._process = WorkerProcess.idle(self._start)
        self._owned = True
        fn = without_partials(self._call)
        module: str | None = getattr(fn, "__module__", None)
        prepared = False
        try:
            ready = self._process.is_ready(time_left())
            if ready and module not in self._process.loaded:
                self._process.load(module, self._packed(fn))
                ready = self._process.is_ready(time_left())
            prepared = True
        finally:
            if not prepared:
                self.close()
        with self._lock:
            self._step = PREPARED
        if self._stopped or not ready:  # it continues to start, for a later job
            self.release()
        return ready

    def stop(self) -> None:
        """Stop the job on another thread than its own: kill the process if the call has begun.

        Otherwise the process serves another job, as soon as it is prepared.
        """
        with self._lock:
            self._stopped, step = True, self._step
            if step == CALLING and self._owned:
                self._process.kill()  # which ends a wait for its reply
        if step == PREPARED:
            self.release()

    def run(self, seconds: float) -> Any:
        """Make the call, however long it takes, with a prepared process; return its result."""
        with self._lock:
            if self._stopped:
                return None
            self._step = CALLING
        try:
            self.start(seconds)
            return self.result()
        finally:
            self.close()

    def start(self, seconds: float) -> None:
        """Send the call. ``seconds`` becomes the deadline in the process."""
        calls = inherited_calls(sys._getframe(1), context_clock())
        self._process.send(self._packed((self._call, seconds, calls, dict(BOUND.get()), PRIORITY.get())))

    def _packed(self, work: object) -> bytes:
        try:
            return pack(work)
        except Exception as error:
            self.release()
            raise WorkerFailed(
                f"{display_name(self._call)} or its arguments cannot be sent to a worker process: "
                f"{described(error)}. "
                f"{NESTED if hasattr(without_partials(self._call), '__wrapped__') else NAMELESS}"
            ) from error

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the call; return True if it has ended."""
        return self._process.has_reply(seconds)

    def result(self) -> Any:
        """Return the result of the call, or raise its error."""
        kind, sent, text = self._process.receive()
        self.release()
        name = display_name(self._call)
        if not sent:
            raise WorkerFailed(
                f"{name} cannot be called in a worker process, which failed to unpickle it: {shown_end(text)}"
                if kind == "unreadable"
                else f"the result or error of {name} cannot be sent back from a worker process: "
                f"{shown_end(text)}"
            )
        try:
            payload = unpack(sent)
        except Exception as error:
            raise WorkerFailed(
                f"the result or error of {name} cannot be unpickled: {described(error)}"
                f"{text and '. It was: '}{shown_end(text)}"
            ) from error
        if kind == "value":
            return payload
        if not isinstance(payload, BaseException):
            raise WorkerFailed(f"the error that {name} raised cannot be unpickled. It was: {shown_end(text)}")
        try:
            raise payload from WorkerTraceback(text)
        finally:
            del payload  # break the cycle of the error and this frame

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
