"""The slots of a `Worker` with a limit: which attempt holds one, and until when.

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

from redouble._drivers.slot_wait import SlotWait
from redouble._drivers.workers.threads import ThreadJob
from redouble._engine.nested import asks_gate
from redouble._internal.shared_context_manager import try_from_start
from redouble._runtime.clock import virtual
from redouble._runtime.deadline import wait_limit
from redouble._runtime.slots import Lease, Slots
from redouble._runtime.thread_waker import ThreadWaker
from redouble._telemetry.emit import emit_rejected
from redouble.errors import WorkersBusy

if TYPE_CHECKING:
    from redouble._engine.worker import Worker


class WorkerSlot(SlotWait):
    """The slot of one attempt on a worker with a limit."""

    def __init__(self, worker: Worker, slots: Slots) -> None:
        self._worker, self._slots = worker, slots
        self.lease = Lease()
        self._left = False
        self._jobs: set[LimitedJob] = set()

    @asks_gate
    def acquire(self, seconds: float) -> None:
        """Wait for a slot, for at most this time, or raise `WorkersBusy`."""
        if not self._slots.try_acquire(self.lease):
            self._wait_for_slot(self.lease, min(wait_limit(self._worker._longest_wait), seconds))

    @asks_gate
    async def aacquire(self, seconds: float) -> None:
        """Wait for a slot, for at most this time, or raise `WorkersBusy`."""
        if not self._slots.try_acquire(self.lease):
            await self._await_slot(self.lease, min(wait_limit(self._worker._longest_wait), seconds))

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

    def _block(self, waker: ThreadWaker, seconds: float) -> None:
        clock = virtual()
        until = inf if clock is None else clock.now() + seconds
        waker.wait(seconds)
        if clock is not None and waker.pending:
            clock._move_to(until)  # workers take real time, and so does the wait for one

    def _kind_and_name(self) -> tuple[str, str | None]:
        return "worker", self._worker.name

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
