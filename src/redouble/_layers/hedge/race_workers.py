"""The race runner for blocking code: attempts run on workers, and the caller waits for the first outcome.

Rule 1: the thread of the caller makes all decisions. An attempt hands over how it ended and wakes the caller.
Rule 2: a thread whose attempt has lost is asked to stop, a process is killed. The caller waits no longer than
        the grace period of the worker.
Rule 3: an attempt that ends when the call is over closes its own result.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from inspect import isawaitable
from math import inf
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, cast

from redouble._drivers.attempt_timeout import advance_virtual_clock, thread_job
from redouble._internal.callables import close_unawaited, reject_awaitable
from redouble._internal.logger import log
from redouble._layers.hedge.extra_calls import Call, Operation
from redouble._layers.hedge.race import CLOSE_FAILED, FIRST, HedgedCall, Race
from redouble._runtime.call_stack import EnclosingCall, calls_of_task
from redouble._runtime.clock import SYSTEM, context_clock
from redouble._runtime.deadline import time_left
from redouble.errors import Rejected, WorkerFailed

if TYPE_CHECKING:
    from redouble._drivers.workers.processes import ProcessJob
    from redouble._drivers.workers.threads import ThreadJob
    from redouble._drivers.workers.worker_slots import WorkerSlot
    from redouble._engine.worker import Worker
    from redouble._layers.hedge.shared_state import HedgeState


class Ending(AbstractContextManager["Ending", bool]):
    """How an attempt has ended; as a context manager it stores and suppresses any exception."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.value: Any = None
        self.error: BaseException | None = None

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
        self.error = error
        return True

    def take_error(self) -> BaseException | None:
        """Return the error, and drop the reference to it: a cycle, as its traceback refers to this object."""
        error, self.error = self.error, None
        return error


class WorkerRace(HedgedCall):
    """One hedged call of a blocking function."""

    def __init__(self, state: HedgeState, delay: float | None, call: Call) -> None:
        super().__init__(state, delay, call)
        self._worker = cast("Worker", state.settings.worker)  # the hedge has checked that there is one
        self._due = inf  # when the next attempt starts, by the clock of `SYSTEM`
        self._jobs: list[ThreadJob] = []
        self._slots: list[WorkerSlot] = []  # of a worker with a limit, one for each attempt
        self._lock = allocate_lock()
        # These three are changed under the lock.
        self._endings: list[Ending] = []  # in the order of time
        self._over = False  # True if the caller waits no more
        self._processes: list[ProcessJob] = []
        self._seen = 0  # how many endings the caller has recorded
        self._wakeup = allocate_lock()  # released by attempts that have ended
        self._wakeup.acquire()

    def run(self) -> Any:
        """Return or raise the first acceptable outcome, when the losers had time to end."""
        self.race = race = self.new_race()
        decided = False
        try:
            self._run_on_worker(FIRST, self._call)
            self.schedule(self._delay)
            while not race.over:
                self._wait(self._due - SYSTEM.now())
                while self._seen < len(self._endings):
                    self._record(race, self._endings[self._seen])
                    self._seen += 1
                if SYSTEM.now() >= self._due:
                    self.schedule(self.start_next())
            decided = True
        finally:
            try:
                self._end_others(race, delivered=decided)
            except BaseException:  # a signal handler has interrupted it, perhaps before it began
                self._end_others(race, delivered=False)
                raise
        return self._state.outcome(race, self.started_at)

    def calls_around(self) -> Iterable[EnclosingCall]:
        return calls_of_task(sys._getframe(1))

    def schedule(self, seconds: float | None) -> None:
        self._due = inf if seconds is None else SYSTEM.now() + seconds

    def start(self, race: Race, number: int) -> None:
        ending = Ending(number)
        try:
            self._run_on_worker(number, self.different(number))
        except (WorkerFailed, Rejected):  # no worker can be started, or as many as may be are busy
            race.record_cancelled()
        except Exception as error:  # the arguments do not fit
            ending.error = error
            self._hand_over(ending)

    def _record(self, race: Race, ending: Ending) -> None:
        error = ending.take_error()
        try:
            if error is None:
                self.record_result(race, ending.number, ending.value)
            elif isinstance(error, Exception):
                self.record_error(race, ending.number, error)
            else:
                raise error
        finally:
            del error  # a reference cycle: the traceback refers to this frame

    def _wait(self, seconds: float) -> None:
        """Wait until an attempt ends, for real seconds; a virtual clock is advanced by as many."""
        if seconds <= 0:
            return
        moment = SYSTEM.now() + seconds
        if not self._wakeup.acquire(True, seconds if seconds < TIMEOUT_MAX else -1):
            advance_virtual_clock(moment)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the caller has not noticed the last wake-up yet
            self._wakeup.release()

    # ------------------------------------------------------------------------- on workers

    def _run_on_worker(self, number: int, call: Call) -> None:
        """Start an attempt. The first one waits for a worker with a limit, and an extra one does not."""
        attempt: tuple[Any, ...] = context_clock(), self._attempt, (Ending(number), *call), {}, self._wake
        if self._worker._slots is None:
            job = thread_job()(*attempt)
        else:
            from redouble._drivers.workers.worker_slots import WorkerSlot  # noqa: PLC0415  only if used

            slot = WorkerSlot(self._worker, self._worker._slots)
            self._slots.append(slot)
            slot.acquire(inf if number == FIRST else 0.0)
            job = slot.job(*attempt)
        self._jobs.append(job)
        job.inherit()
        job.start()

    def _attempt(self, ending: Ending, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run an attempt, on its thread, and hand over how it ended."""
        with ending:
            if self._worker.kind == "process":
                ending.value = self._run_in_process(partial(fn, *args, **kwargs))
            else:
                ending.value = reject_awaitable(fn, fn(*args, **kwargs))
        if not self._hand_over(ending):
            ending.take_error()
            close(ending.value)

    def _run_in_process(self, call: partial[Any]) -> Any:
        from redouble._drivers.workers.processes import ProcessJob  # noqa: PLC0415  imported only if used

        job = ProcessJob(self._worker.start, call)
        with self._lock:
            self._processes.append(job)
            over = self._over
        if over or not job.prepare():
            raise WorkerFailed("the call was over before its process had started")
        return job.run(time_left())

    def _hand_over(self, ending: Ending) -> bool:
        """Hand over how an attempt ended; return False if the call is over."""
        with self._lock:
            if not self._over:
                self._endings.append(ending)
            return not self._over

    # -------------------------------------------------------------------------- the end

    def _end_others(self, race: Race, *, delivered: bool) -> None:
        """Stop the attempts that are running and close unused results; all results after an interruption.

        May be repeated.
        """
        with self._lock:
            self._over = True
        running = [job for job in self._jobs if not job.has_ended]
        for job in running:
            job.end(in_time=False)
        for process in self._processes:
            process.stop()
        done = False
        try:
            until = SYSTEM.now() + self._worker._grace
            while any(not job.has_ended for job in running) and (left := until - SYSTEM.now()) > 0:
                self._wait(left)
            done = delivered
        finally:
            for slot in self._slots:
                slot.leave()
            unseen = self._endings[self._seen :]
            for ending in unseen:
                ending.take_error()
            values = [*race.take_unused(delivered=done), *(ending.value for ending in unseen)]
            self._jobs.clear()
            self._endings.clear()
            if not done:
                race.clear()
            for value in {id(value): value for value in values}.values():
                close(value)


def close(result: Any) -> None:
    """Close a result that can be closed; log a failure."""
    method = getattr(result, "close", None)
    if callable(method):
        try:
            closing: object = method()
            if isawaitable(closing):
                close_unawaited(closing)
        except Exception:
            log(CLOSE_FAILED, error=True)
