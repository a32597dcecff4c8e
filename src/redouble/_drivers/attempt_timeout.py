"""Enforcement of an attempt's limit: by a cancel scope in async code, on a worker for blocking code.

The drivers call these functions in place of the operation. The engine computes how long an attempt may take.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from redouble._engine.run import Run
from redouble._internal.callables import call_plain, reject_awaitable
from redouble._runtime.backend import backend, cancel_after
from redouble._runtime.clock import Clock, SystemClock, context_clock, virtual
from redouble.errors import AttemptTimeout

if TYPE_CHECKING:
    from redouble._drivers.workers.threads import ThreadJob
    from redouble._engine.worker import Worker
    from redouble._runtime.slots import Slots

    class LimitedCall(Protocol):
        """A call with a limit: a run, or one call under a `Timeout`."""

        @property
        def clock(self) -> Clock:
            """The clock that times it."""
            ...

        def refresh_now(self) -> float:
            """Read the clock and return the time."""
            ...

        def time_left(self, *, own: bool = True) -> float:
            """Return how long it may take; ``own=False``: not begun, so its own limit does not apply."""
            ...

        def expired(self) -> AttemptTimeout:
            """Record that it exceeded its limit; return the error to raise."""
            ...

        def leave_worker(self, *, alone: bool) -> None:
            """Record that its worker did not stop; ``alone``: no other may run beside it."""
            ...


T = TypeVar("T")
# Returns a job on a thread: a `ThreadJob`, or the `LimitedJob` of a slot.
MakeJob: TypeAlias = "Callable[..., ThreadJob]"


def run_limited(run: Run, fn: Callable[..., T]) -> Callable[..., T]:
    """Return the function that a driver calls for ``fn``: with limits only if the policy has a worker."""
    worker = run.policy.worker
    return partial(call_plain, fn) if worker is None else partial(run_on_worker, run, worker, fn)


def arun_limited(run: Run, fn: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Return the function that a driver calls for ``fn``: in a cancel scope if there are limits."""
    unlimited = run.policy._interrupt_limit == inf and run.deadline == inf
    return fn if unlimited else partial(run_with_cancel_scope, run, fn)


async def run_with_cancel_scope(run: Run, fn: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
    """Call ``fn`` in a cancel scope of the attempt's limit."""
    limit = cancel_after(run.time_left())
    with limit:
        result = await fn(*args, **kwargs)
        run.record_return(late=limit.cancel_called)
        return result
    raise run.expired()


# ----------------------------------------------------------------------------- workers


def run_on_worker(
    run: LimitedCall, worker: Worker, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call ``fn`` on a worker, and wait for it until the limit of the attempt.

    The wait takes real time under a virtual clock too, because a worker's duration is unknown; the virtual
    clock is then advanced by as much.
    """
    if worker._slots is not None:
        return _run_limited_worker(run, worker, worker._slots, fn, args, kwargs)
    if worker.kind == "process":
        return _run_in_process(run, worker, partial(fn, *args, **kwargs))
    seconds = run.time_left()
    until = run.refresh_now() + seconds
    return _run_job(run, worker, fn, thread_job()(_clock_of(run), fn, args, kwargs), seconds, until)


def _run_job(
    run: LimitedCall, worker: Worker, fn: Callable[..., Any], job: ThreadJob, seconds: float, until: float
) -> Any:
    """Run the job of an attempt on a thread, and wait for it; ``until``: the end of these seconds."""
    if job.run_within(seconds) and (_waits_by_system_clock(run) or job.ended_in_time()):
        return reject_awaitable(fn, job.result())
    job.end(in_time=False)
    if not job.ended and isinstance(run.clock, SystemClock):
        advance_virtual_clock(until)
    raise overdue(run, worker, job)


def _run_limited_worker(
    run: LimitedCall,
    worker: Worker,
    slots: Slots,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call ``fn`` on a worker with a limit. The wait for a thread counts as time of the attempt.

    That for a process does not, like its start.
    """
    from redouble._drivers.workers.worker_slots import WorkerSlot  # noqa: PLC0415  imported only if used

    slot, threads = WorkerSlot(worker, slots), worker.kind == "thread"
    try:
        seconds = run.time_left(own=threads)
        until = run.refresh_now() + seconds
        slot.acquire(seconds)
        if not threads:
            return _run_in_process(run, worker, partial(fn, *args, **kwargs))
        job = slot.job(_clock_of(run), fn, args, kwargs)
        return _run_job(run, worker, fn, job, max(0.0, until - run.refresh_now()), until)
    finally:
        slot.leave()


def overdue(run: LimitedCall, worker: Worker, job: ThreadJob) -> AttemptTimeout:
    """Wait for the grace period after a thread was asked to stop; return the error of its attempt."""
    until = run.refresh_now() + worker._grace
    job.wait(worker._grace)
    job.discard_result()
    if not job.ended:
        advance_virtual_clock(until)
    if not job.ended or job.stuck:  # stuck: the operation itself has left a worker running
        run.leave_worker(alone=not worker.overlap)
    return run.expired()


def _waits_by_system_clock(run: LimitedCall) -> bool:
    """Return True if the clock of the call is the system clock, which times the wait."""
    return isinstance(run.clock, SystemClock) and virtual() is None


def _clock_of(run: LimitedCall) -> Callable[[], float]:
    """Return a function that reads the clock of the call in any thread."""
    return context_clock() if isinstance(run.clock, SystemClock) else run.clock.now


def advance_virtual_clock(moment: float) -> None:
    """Advance the virtual clock of this context, if there is one, to a moment that has come in real time."""
    virtual_clock = virtual()
    if virtual_clock is not None:
        virtual_clock._move_to(moment)


def _run_in_process(run: LimitedCall, worker: Worker, call: Callable[[], Any]) -> Any:
    from redouble._drivers.workers import processes  # noqa: PLC0415  imported only if used

    def time_left() -> float:
        run.refresh_now()
        return run.time_left(own=False)

    job = processes.ProcessJob(worker.start, call)
    until = run.refresh_now() + time_left()
    try:
        if job.prepare(time_left):
            run.refresh_now()
            seconds = run.time_left()
            until = run.refresh_now() + seconds
            job.start(seconds)
            if job.wait(max(0.0, until - run.refresh_now())):  # sending the call has taken time
                return job.result()
    finally:
        job.close()
    advance_virtual_clock(until)
    raise run.expired()


def thread_job() -> type[ThreadJob]:
    """Return the class of jobs on worker threads, imported only if used."""
    from redouble._drivers.workers.threads import ThreadJob  # noqa: PLC0415

    return ThreadJob


async def arun_on_worker(
    run: LimitedCall, worker: Worker, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call ``fn`` on a worker, and await it until the limit of the attempt."""
    await backend().checkpoint()
    if worker._slots is not None:
        return await _arun_limited_worker(run, worker, worker._slots, fn, args, kwargs)
    if worker.kind == "process":
        return await _arun_in_process(run, worker, partial(fn, *args, **kwargs), thread_job())
    return await _arun_thread(run, worker, run.time_left(), thread_job(), fn, args, kwargs)


async def _arun_limited_worker(
    run: LimitedCall,
    worker: Worker,
    slots: Slots,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call ``fn`` on a worker with a limit. The wait for a thread counts as time of the attempt.

    That for a process does not, like its start.
    """
    from redouble._drivers.workers.worker_slots import WorkerSlot  # noqa: PLC0415  imported only if used

    slot, threads = WorkerSlot(worker, slots), worker.kind == "thread"
    try:
        seconds = run.time_left(own=threads)
        until = run.refresh_now() + seconds
        await slot.aacquire(seconds)
        if not threads:
            return await _arun_in_process(run, worker, partial(fn, *args, **kwargs), slot.job)
        seconds = max(0.0, until - run.refresh_now())
        return await _arun_thread(run, worker, seconds, slot.job, fn, args, kwargs)
    finally:
        slot.leave()


async def _arun_thread(
    run: LimitedCall,
    worker: Worker,
    seconds: float,
    make_job: MakeJob,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call ``fn`` on a thread, and await it for this time."""
    job, ended, in_time = await _arun_on_thread(run, seconds, make_job, fn, *args, **kwargs)
    if in_time:
        return reject_awaitable(fn, job.result())
    if not await _wait_within(worker._grace, ended) or job.stuck:
        run.leave_worker(alone=not worker.overlap)
    job.discard_result()
    raise run.expired()


async def _arun_in_process(
    run: LimitedCall, worker: Worker, call: Callable[[], Any], make_job: MakeJob
) -> Any:
    """Make a call in a process; threads wait for the process, so that the event loop does not block."""
    from redouble._drivers.workers import process_pool, processes  # noqa: PLC0415  imported only if used

    process = processes.ProcessJob(worker.start, call)
    try:
        job, _, in_time = await _arun_on_thread(run, run.time_left(own=False), make_job, process.prepare)
        if in_time:
            job.result()
            run.refresh_now()
            seconds = run.time_left()
            job, ended, in_time = await _arun_on_thread(run, seconds, make_job, process.run, seconds)
            if in_time:
                return job.result()
            process.stop()
            await _wait_within(process_pool.REAP_TIMEOUT, ended)
        raise run.expired()
    finally:
        process.stop()  # also after a cancellation, or if there is no thread for the call


async def _arun_on_thread(
    run: LimitedCall, seconds: float, make_job: MakeJob, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> tuple[ThreadJob, Callable[[], Awaitable[object]], bool]:
    """Call ``fn`` on a thread and await it; return the job, the wait for its end, and True if it is in time.

    The clock of the call decides whether it is.
    """
    wake, ended = backend().waker()
    job = make_job(_clock_of(run), fn, args, kwargs, wake)
    in_time = False
    try:
        job.inherit()
        job.start(seconds)
        woken = await _wait_within(seconds, ended)
        in_time = job.ended_in_time(woken=woken and _waits_by_system_clock(run))
    finally:
        job.end(in_time=in_time)  # also after a cancellation
    return job, ended, in_time


async def _wait_within(seconds: float, wait: Callable[[], Awaitable[object]]) -> bool:
    """Await a waker; return True if it was woken in time. Meanwhile virtual time passes as real time does."""
    virtual_clock = virtual()
    limit = cancel_after(seconds)
    if virtual_clock is not None:
        virtual_clock._count_workers(1)
    try:
        with limit:
            await wait()
    finally:
        if virtual_clock is not None:
            virtual_clock._count_workers(-1)
    return not limit.cancelled_caught
