"""Worker threads: parked when idle, reused, and never joined at the exit of the program.

One stack of idle threads serves all policies. No exception is ever injected into a thread: a flag signals
that its attempt is over (`redouble.cancelled()`), and the thread is abandoned.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import copy_context
from math import inf
from sys import _getframe
from threading import TIMEOUT_MAX, Thread
from types import FrameType
from typing import Any

from redouble._engine.report import has_left_a_worker
from redouble._failures.error_path import hands_over
from redouble._runtime.ambient import ambient
from redouble._runtime.call_stack import EnclosingCall, InheritedCall, calls_of_task, calls_on_stack
from redouble._runtime.deadline import ACTIVE_DEADLINE, ActiveDeadline, in_force
from redouble.errors import WorkerFailed

IDLE_TIMEOUT = 10.0  # seconds after which an idle thread ends


class ThreadJob(ActiveDeadline):
    """One call of a blocking function on a thread, and the flag that its caller has stopped waiting.

    ``wake`` is called on that thread after the end of the call; without it, `run_within` and `wait` can wait.
    """

    def __init__(
        self,
        read_clock: Callable[[], float],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        wake: Callable[[], object] | None = None,
    ) -> None:
        outer = ACTIVE_DEADLINE.get()  # without super().__init__(): this is benchmarked
        self.outer = outer if outer is None else in_force(outer)
        self.until, self.clock = inf, read_clock
        self.over = False
        self._caller: FrameType | None = None  # of a blocking call, which waits until the job ends
        self._inherited: list[InheritedCall] = []  # of async code, whose callers are on no stack meanwhile
        self._fn, self._args, self._kwargs = fn, args, kwargs
        self._context = copy_context()
        self._lock = lock = allocate_lock()
        lock.acquire()
        self._wake = wake or lock.release
        self._value: Any = None
        self._error: BaseException | None = None
        self._ended_at = inf  # when it ended
        self.ended = self.stuck = False

    def start(self, seconds: float = inf) -> None:
        """Run the call on a thread, an idle one if there is one, with a deadline in this many seconds."""
        if seconds < inf:
            self.until = self.clock() + seconds
        self._context.run(ACTIVE_DEADLINE.set, self)
        taken = list[_WorkerThread]()
        try:
            taken.extend(map(_idle.pop, (-1,)))  # one call: a signal handler cannot lose the thread
            taken[0].job = self
        except IndexError:
            _WorkerThread(self).begin()
        finally:
            if taken and taken[0].job is self:
                taken[0].wake.release()
            elif taken:
                _idle.extend(taken)  # a signal handler has raised

    def run_within(self, seconds: float) -> bool:
        """Run the call and wait for its end; return True if it has ended in time."""
        in_time, self._caller = False, _getframe(1)
        try:
            self.start(seconds)
            self.wait(seconds)
            in_time = self.ended_in_time(woken=self.ended)
        finally:
            self.end(in_time=in_time)  # also after a KeyboardInterrupt
        return in_time

    def calls(self) -> Iterator[EnclosingCall]:
        """Yield the calls around the caller, while it waits."""
        if self.cancelled:
            return iter(())
        return iter(self._inherited) if self._caller is None else calls_on_stack(self._caller)

    def inherit(self) -> None:
        """Keep the calls around the caller, which is async code."""
        self._inherited = [InheritedCall(call, self.clock) for call in calls_of_task(_getframe(1))]

    def end(self, *, in_time: bool) -> None:
        """Record that the caller no longer waits; unless the call ended in time, it should stop."""
        self._caller = None  # break the cycle of the frame and this job
        if in_time:
            self.over = True
        else:
            self.cancelled = True

    def ended_in_time(self, *, woken: bool = False) -> bool:
        """Return True if the call ended in time, however late the wake-up was: its caller may have been busy.

        ``woken``: the caller was woken in time. A call that has returned is then in time, whatever the clock
        read at its end.
        """
        return self._ended_at < self.until or (woken and self._error is None)

    @property
    def has_ended(self) -> bool:
        """True if the call has ended, which another thread may have noticed or not."""
        return self._ended_at < inf

    def wait(self, seconds: float) -> None:
        """Wait for the end of the call."""
        if not self.ended:
            self.ended = self._lock.acquire(True, seconds if seconds < TIMEOUT_MAX else -1)

    @hands_over
    def result(self) -> Any:
        """Return the result of the call, or raise its error."""
        value, error = self._value, self._error
        self.discard_result()
        try:
            if error is not None:
                raise error
            return value
        finally:
            del error  # break the cycle of the error and this frame

    def discard_result(self) -> None:
        """Drop the value and the error."""
        self._value = self._error = None

    def perform(self) -> Callable[[], object]:
        """Make the call, on the thread; return the function that wakes the caller."""
        ambient.add(self)  # so that policies inside read the deadline
        with self:
            self._value = self._context.run(self._fn, *self._args, **self._kwargs)
        ambient.remove(self)
        # The caller waits for the end, so nothing here may raise: neither what the error does when it is
        # looked at, nor the clock of the call. Without a time the call counts as ended in time.
        ended_at = -inf
        with ANY_ERROR:
            self.stuck = self._error is not None and has_left_a_worker(self._error)
        with ANY_ERROR:
            ended_at = self.clock()
        if self.cancelled:
            self.discard_result()
        # A context that was copied in the call keeps this job, and need not keep what it refers to.
        wake = self._wake
        del self._fn, self._args, self._kwargs, self._context, self._wake
        self._ended_at = ended_at  # last: a thread that reads it may take the result at once
        return wake

    def __enter__(self) -> None:
        """Enter the block that makes the call."""

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
        self._error = error  # any BaseException is raised in the calling thread
        return True


class AnyError(AbstractContextManager[None, bool]):
    """A block that no error leaves."""

    def __exit__(self, *_: object) -> bool:
        return True


ANY_ERROR = AnyError()


class _WorkerThread(Thread):
    """A thread that runs one job after the other."""

    def __init__(self, job: ThreadJob) -> None:
        super().__init__(name="redouble worker", daemon=True)
        self.job: ThreadJob | None = job
        self.wake = allocate_lock()  # the idle thread waits for it; released once the next job is assigned
        self.wake.acquire()

    def begin(self) -> None:
        """Start, or raise `WorkerFailed`."""
        try:
            self.start()
        except (RuntimeError, MemoryError) as error:
            raise WorkerFailed(f"no thread could be started for a worker: {error}") from error

    def run(self) -> None:
        """Run jobs, parked in between, until idle for too long."""
        while (job := self.job) is not None:
            self.job = None
            wake = job.perform()
            del job  # it would stay alive while the thread is parked
            _idle.append(self)  # before wake(): the woken caller may assign the next job at once
            wake()
            del wake
            if not self.wake.acquire(timeout=IDLE_TIMEOUT):
                try:
                    _idle.remove(self)
                except ValueError:  # another thread has just taken this one, and assigns a job
                    self.wake.acquire()


_idle: list[_WorkerThread] = []  # last in, first out, so that surplus threads reach their timeout

# Threads do not survive a fork; a child that assigned jobs to them would wait for ever.
if hasattr(os, "register_at_fork"):  # pragma: no branch  elsewhere there is no fork
    os.register_at_fork(after_in_child=_idle.clear)
