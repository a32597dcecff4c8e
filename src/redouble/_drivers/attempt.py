"""One attempt under its limit: cut if it is async, on a worker if it blocks.

The drivers call these in place of the function. The engine says how long an attempt may take; here is how
that is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redouble._engine.run import Run
from redouble._runtime.backend import backend, cut_after
from redouble._runtime.clock import SYSTEM, Clock, context_clock, virtual
from redouble.errors import AttemptTimeout

if TYPE_CHECKING:
    from redouble._drivers.workers.threads import ThreadJob
    from redouble._engine.worker import Worker

__all__ = [
    "arun_limited",
    "arun_on_worker",
    "overdue",
    "run_limited",
    "run_on_worker",
    "run_with_cancel_scope",
    "thread_job",
]


T = TypeVar("T")


class LimitedCall(Protocol):
    """What has a limit: a run, or one call under a `Timeout`."""

    @property
    def clock(self) -> Clock:
        """Whose time it goes by."""
        ...

    def refresh_now(self) -> float:
        """Learn how late it is."""
        ...

    def time_left(self, *, own: bool = True) -> float:
        """Say how long it may take; ``own=False``: it has not begun, so its own limit does not count."""
        ...

    def expired(self) -> AttemptTimeout:
        """Learn that it took longer; return what to raise."""
        ...

    def leave_worker(self, *, alone: bool) -> None:
        """Learn that its worker goes on; ``alone``: no other may run beside it."""
        ...


def run_limited(run: Run, fn: Callable[..., T]) -> Callable[..., T]:
    """Return what a driver calls for ``fn``: blocking code has limits only on a worker."""
    return fn if run.policy.worker is None else partial(run_on_worker, run, run.policy.worker, fn)


def arun_limited(run: Run, fn: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Return what a driver calls for ``fn``."""
    return fn if run.policy._cuts == inf and run.deadline == inf else partial(run_with_cancel_scope, run, fn)


async def run_with_cancel_scope(run: Run, fn: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
    """Call ``fn``, for no longer than it may take."""
    limit = cut_after(run.time_left())
    with limit:
        result = await fn(*args, **kwargs)
        run.record_return(late=limit.cancel_called)
        return result
    raise run.expired()


# ----------------------------------------------------------------------------- workers


def run_on_worker(
    run: LimitedCall, worker: Worker, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call ``fn`` on a worker, and wait for it no longer than it may take."""
    if worker.kind == "process":
        return _run_in_process(run, worker, fn, args, kwargs)
    job = thread_job()(_clock_of(run), fn, args, kwargs)
    if _run_in_time(run, job, run.time_left()):
        return job.result()
    raise overdue(run, worker, job)


def overdue(run: LimitedCall, worker: Worker, job: ThreadJob) -> AttemptTimeout:
    """Give a thread that was told to stop a little time; return what its attempt failed with."""
    until = run.refresh_now() + worker._grace
    job.wait(worker._grace)
    job.discard_result()
    if not job.ended:
        _advance_virtual_clock(until)
    if not job.ended or job.stuck:  # which it is if it has left another one itself
        run.leave_worker(alone=not worker.overlap)
    return run.expired()


def _run_in_time(run: LimitedCall, job: ThreadJob, seconds: float) -> bool:
    """Have a job done, and wait for it by the clock of the call; say whether it has ended in time.

    Nobody knows how long a worker takes, so the waiting is real under a clock of a test too, which is then
    moved by as much.
    """
    until = run.refresh_now() + seconds
    if job.run_within(seconds) and (_waits_by_system_clock(run) or job.ended_in_time()):
        return True
    job.end(in_time=False)
    if not job.ended and run.clock is SYSTEM:
        _advance_virtual_clock(until)
    return False


def _waits_by_system_clock(run: LimitedCall) -> bool:
    """Say whether the clock of the call is the one that the waiting goes by."""
    return run.clock is SYSTEM and virtual() is None


def _clock_of(run: LimitedCall) -> Callable[[], float]:
    """Return what tells the time of the call, in any thread."""
    return context_clock() if run.clock is SYSTEM else run.clock.now


def _advance_virtual_clock(moment: float) -> None:
    test = virtual()
    if test is not None:
        test._reach(moment)


def _run_in_process(
    run: LimitedCall, worker: Worker, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    from redouble._drivers.workers import processes as _processes  # noqa: PLC0415  for those who use them

    job = _processes.ProcessJob(worker.start, fn, args, kwargs)
    until = run.refresh_now() + run.time_left(own=False)
    try:
        for step in (job.is_ready, job.has_loaded):
            if not step(run.time_left(own=False)):
                break
            run.refresh_now()
        else:
            seconds = run.time_left()
            until = run.refresh_now() + seconds
            job.start(seconds)
            if job.wait(max(0.0, until - run.refresh_now())):  # sending it may have taken its time
                return job.result()
    finally:
        job.close()
    _advance_virtual_clock(until)
    raise run.expired()


def thread_job() -> type[ThreadJob]:
    """Return the jobs of worker threads, which are imported by whoever uses them."""
    from redouble._drivers.workers.threads import ThreadJob  # noqa: PLC0415

    return ThreadJob


async def arun_on_worker(
    run: LimitedCall, worker: Worker, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call ``fn`` on a worker, and await it no longer than it may take."""
    await backend().checkpoint()
    if worker.kind == "process":
        return await _arun_in_process(run, worker, fn, args, kwargs)
    ring, ended = backend().waker()
    job = thread_job()(_clock_of(run), fn, args, kwargs, ring)
    in_time = False
    try:
        seconds = run.time_left()
        job.start(seconds)
        heard = await _wait_within(seconds, ended)
        # What counts is when it ended, and not when we hear of it: the loop may have been busy.
        in_time = job.ended_in_time() or (heard and job.succeeded() and _waits_by_system_clock(run))
    finally:
        job.end(in_time=in_time)  # it may also have been cancelled
    if in_time:
        return job.result()
    if not await _wait_within(worker._grace, ended) or job.stuck:
        run.leave_worker(alone=not worker.overlap)
    job.discard_result()
    raise run.expired()


async def _arun_in_process(
    run: LimitedCall, worker: Worker, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Do the same in a process; a thread sees to it, so that nobody else has to wait."""
    from redouble._drivers.workers import processes as _processes  # noqa: PLC0415  for those who use them

    (ring, ended), (ring_ready, ready) = backend().waker(), backend().waker()
    steps = _processes.AsyncJobSteps(
        partial(_processes.ProcessJob, worker.start, fn, args, kwargs), ring_ready
    )
    job = thread_job()(context_clock(), steps.run, (), {}, ring)
    job.then = steps.stop
    is_ready = in_time = False
    try:
        job.start()
        is_ready = await _wait_within(run.time_left(own=False), ready)
        if is_ready:
            run.refresh_now()
            seconds = run.time_left()
            job.until = job.reading() + seconds
            steps.start(seconds)
            in_time = await _wait_within(seconds, ended) or job.ended_in_time()
    finally:
        job.end(in_time=in_time)  # it may also have been cancelled
    if in_time:
        return job.result()
    if is_ready:
        await _wait_within(_processes.REAP_TIMEOUT, ended)
    raise run.expired()


async def _wait_within(seconds: float, heard: Callable[[], Awaitable[object]]) -> bool:
    """Wait for a bell; say whether it was heard in time. The clock of a test is held meanwhile."""
    test = virtual()
    limit = cut_after(seconds)
    if test is not None:
        test._hold(1)
    try:
        with limit:
            await heard()
    finally:
        if test is not None:
            test._hold(-1)
    return not limit.cancelled_caught
