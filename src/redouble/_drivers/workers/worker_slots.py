"""The slots of a `Worker` with a limit: who holds one, and until when.

Rule 1: a slot is acquired by the caller, before a thread or a process begins the attempt, and in the order in
        which callers asked, in every colour.
Rule 2: it is released when the caller has left and all threads of the attempt have ended, in either order. So
        a thread that was abandoned keeps it.
Rule 3: a thread claims its job before it begins. A caller that leaves revokes a job that no thread has
        claimed: then no thread makes the call any more. One of them succeeds, by one operation of a list.
Rule 4: leaving may be repeated, because a signal handler may interrupt it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from redouble._drivers.workers.threads import ThreadJob
from redouble._engine.nested import asks_gate
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.validation import format_seconds
from redouble._runtime.backend import backend, cancel_after, in_event_loop
from redouble._runtime.clock import SYSTEM, virtual
from redouble._runtime.deadline import wait_limit
from redouble._runtime.slots import Lease, Slots
from redouble._runtime.thread_waker import ThreadWaker
from redouble._telemetry.emit import emit_layer, emit_rejected
from redouble._telemetry.observers import watch
from redouble.errors import WorkersBusy

if TYPE_CHECKING:
    from redouble._engine.worker import Worker


class WorkerLease(Lease):
    """The lease of one attempt; ``abandoned``: its caller has left, and a thread of it has not ended."""

    abandoned = False


class WorkerSlot:
    """The slot of one attempt on a worker with a limit."""

    def __init__(self, worker: Worker, slots: Slots) -> None:
        self._worker, self._slots = worker, slots
        self.lease = WorkerLease()
        self._left = False
        self._jobs: set[LimitedJob] = set()

    @asks_gate
    def acquire(self, seconds: float) -> None:
        """Wait for a slot, for at most this time, blocking this thread; or raise `WorkersBusy`."""
        if self._slots.try_acquire(self.lease):
            return
        limit = min(wait_limit(self._worker._longest_wait), seconds)
        if not limit:
            self._acquire_now("and the attempt does not wait")
        elif in_event_loop():
            self._acquire_now("and a blocking call cannot wait on the thread of an event loop")
        else:
            waker, began, clock = ThreadWaker(), SYSTEM.now(), virtual()
            until = inf if clock is None else clock.now() + limit
            try:
                self._slots.enqueue(self.lease, waker.wake, inf)
                waker.wait(limit)
            finally:
                admitted = self._slots.stop_waiting(self.lease)
            if not admitted:
                if clock is not None:
                    clock._move_to(until)  # workers take real time, and so does the wait for one
                self._reject(f"and none ended within {format_seconds(limit)}")
            self._emit_waited(began)

    @asks_gate
    async def aacquire(self, seconds: float) -> None:
        """Wait for a slot, for at most this time, in async code; or raise `WorkersBusy`."""
        if self._slots.try_acquire(self.lease):
            return
        limit = min(wait_limit(self._worker._longest_wait), seconds)
        if not limit:
            self._acquire_now("and the attempt does not wait")
        else:
            wake, woken = backend().waker()
            began = SYSTEM.now()
            try:
                self._slots.enqueue(self.lease, wake, inf)
                with cancel_after(limit):
                    await woken()
            finally:
                admitted = self._slots.stop_waiting(self.lease)
            if not admitted:
                self._reject(f"and none ended within {format_seconds(limit)}")
            self._emit_waited(began)

    def job(self, *args: Any) -> LimitedJob:
        """Return a job on a thread for this attempt; the arguments are those of a `ThreadJob`."""
        job = LimitedJob(self, *args)
        self._jobs.add(job)
        return job

    @try_from_start
    def leave(self) -> None:
        """Record that the caller waits no longer."""
        try:
            self._leave()
        except BaseException:
            self._leave()
            raise

    def ended(self, job: LimitedJob) -> None:
        """Record that a thread has ended its job."""
        self._jobs.discard(job)
        self._release_if_over()

    def _leave(self) -> None:
        self._left = True
        for job in self._jobs.copy():
            if job.revoked():
                self._jobs.discard(job)
        self.lease.abandoned = bool(self._jobs)
        self._release_if_over()

    def _release_if_over(self) -> None:
        if self._left and not self._jobs:
            self._slots.release(self.lease)

    def _acquire_now(self, why: str) -> None:
        """Acquire a slot without waiting, behind all waiters; or raise `WorkersBusy`."""
        try:
            if not self._slots.enqueue(self.lease, object, 0):
                self._reject(why)
        finally:
            self._slots.stop_waiting(self.lease)

    def _reject(self, why: str) -> NoReturn:
        worker, abandoned = self._worker, self._worker.snapshot()["abandoned"]
        limit, named = worker.limit, worker.name
        title = "the worker" if named is None else f"the worker {named}"
        busy = "1 attempt is running" if limit == 1 else f"{limit} attempts are running"
        of_them = f", of which {abandoned} abandoned" if abandoned else ""
        message = f"{title} is busy: {busy}{of_them}, {why}"
        # No variable for the error: its traceback refers to this frame, and a cycle would keep the slot.
        wait: Any = worker.wait  # a number: `Worker` has converted a timedelta
        raise emit_rejected(WorkersBusy(message, limit=limit, wait=wait), "worker", named)

    def _emit_waited(self, began: float) -> None:
        if watch.by_event["waited"]:
            emit_layer("waited", "worker", self._worker.name, delay=max(0.0, SYSTEM.now() - began))


class LimitedJob(ThreadJob):
    """A job on a thread that holds the slot of an attempt until it ends."""

    def __init__(self, slot: WorkerSlot, *args: Any) -> None:
        super().__init__(*args)
        self._slot = slot
        self._unclaimed, self._revoked = [None], list[None]()
        self._handed_over = False  # True if a thread has the job, and ends it even if it makes no call

    def start(self, seconds: float = inf) -> None:
        super().start(seconds)
        self._handed_over = True

    def perform(self) -> Callable[[], object]:
        """Make the call, unless its caller has left before it began."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return partial(self._end, object)
        return partial(self._end, super().perform())

    def _end(self, wake: Callable[[], object]) -> None:
        """Record the end, once this thread is idle again: the next attempt takes this thread."""
        try:
            self._slot.ended(self)
        finally:
            wake()

    def revoked(self) -> bool:
        """Let no thread make the call any more; return True if it is not certain that one ends the job."""
        with suppress(IndexError):
            self._revoked.extend(map(self._unclaimed.pop, (-1,)))  # one call: nothing can come in between
        return bool(self._revoked) and not self._handed_over
