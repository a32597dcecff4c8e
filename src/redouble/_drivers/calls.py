"""The drivers of calls: they call, wait and raise, and decide nothing.

Each comes twice, for blocking and for async code, side by side; a test erases ``async`` and ``await``,
applies its table of renames, and asserts that nothing else differs.

Calls that a run sees from the start, because something is to be done or told before, or after a success.

Where that is only to tell observers that all goes well, there is no run until something does not. Each comes
twice, for blocking and for async code, like all drivers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Any, TypeAlias, TypeVar

from redouble._drivers.attempt import arun_limited, arun_on_worker, run_limited
from redouble._engine.options import Options
from redouble._engine.outcome import error_of, outcome_of
from redouble._engine.report import Outcome
from redouble._engine.run import Run
from redouble._runtime.ambient import ATTEMPT_OVERRIDE, ambient
from redouble._runtime.backend import cancelling
from redouble._runtime.clock import SYSTEM, call_reader, virtual
from redouble._runtime.deadline import MOMENT, time_left
from redouble._telemetry.emit import FastEmitter, make_emitter
from redouble._telemetry.observers import watch

__all__ = [
    "Args",
    "Kwargs",
    "acall",
    "acall_blocking",
    "adrive",
    "aoutcome",
    "begin_run",
    "call",
    "drive",
    "outcome",
    "run_after_failure",
    "slow_path_needed",
]


R = TypeVar("R", bound=Run)
T = TypeVar("T")
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]


def begin_run(
    kind: type[R],
    policy: Options,
    name: str,
    *,
    aio: bool,
    attempt: int = 0,
    started: float | None = None,
) -> R:
    """Begin a run; one that nobody listens to has nothing to tell."""
    now = policy._anow if aio else policy._now
    tell = make_emitter(policy)
    if ambient.active:
        now = call_reader(policy._time, aio=aio)
    started = now() if started is None else started
    run = kind(policy, started, name, now, cancelling if aio else None, tell, attempt)
    if ambient.active:
        if (said := ATTEMPT_OVERRIDE.get()) is not None and not said.over:
            run.max_attempts = said.most
        if (rest := time_left()) < inf:
            run.apply_deadline(rest)
    return run


def slow_path_needed() -> bool:
    """Say whether anything ambient that is at work anywhere is at work here."""
    if watch.of_calls():
        return True
    if not ambient.others:
        return False
    return MOMENT.get() is not None or ATTEMPT_OVERRIDE.get() is not None or virtual() is not None


# ------------------------------------------------------------------------------- calls


def drive(run: Run, delay: float | None, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Make attempts until one succeeds or the run says no; ``delay`` is what to wait for the first."""
    policy = run.policy
    clock, now = policy._time, run.reading
    try:
        while True:
            if delay:
                clock.sleep(delay)
            refusal = run.start(now())
            if refusal is not None:
                raise refusal
            try:
                result = fn(*args, **kwargs)
            except Exception as error:
                delay = run.failed(error, now())
                if delay is None:
                    if run.replaces_error:
                        raise error_of(run, error)  # noqa: B904  it knows its cause
                    raise
            else:
                if run.emit is None and policy._plain:
                    return result  # there is nobody to tell, and nothing to check or to credit
                delay = run.returned(result, now())
                if delay is None:
                    if run.ok:
                        return result
                    raise error_of(run, None)
    finally:
        refusal = None  # or this frame and its error would keep each other alive
        if run.unspent_grant is not None:
            run.refund()


async def adrive(
    run: Run, delay: float | None, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs
) -> T:
    """Make attempts until one succeeds or the run says no; ``delay`` is what to wait for the first."""
    policy = run.policy
    clock, now = policy._time, run.reading
    try:
        while True:
            if delay is not None:
                await clock.asleep(delay)
            refusal = run.start(now())
            if refusal is not None:
                raise refusal
            try:
                result = await fn(*args, **kwargs)
            except Exception as error:
                delay = run.failed(error, now())
                if delay is None:
                    if run.replaces_error:
                        raise error_of(run, error)  # noqa: B904  it knows its cause
                    raise
            else:
                if run.emit is None and policy._plain:
                    return result  # there is nobody to tell, and nothing to check or to credit
                delay = run.returned(result, now())
                if delay is None:
                    if run.ok:
                        return result
                    raise error_of(run, None)
    finally:
        refusal = None  # or this frame and its error would keep each other alive
        if run.unspent_grant is not None:
            run.refund()


# ---------------------------------------------------------------------------- outcomes


def outcome(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> Outcome[T]:
    """Make attempts, and tell how it ended instead of raising."""
    run = begin_run(Run, policy, name, aio=False)
    try:
        value = drive(run, None, run_limited(run, fn), args, kwargs)
    except Exception as error:
        return outcome_of(run, None, error)
    if not run.ok:
        run.returned(value, run.reading())
    return outcome_of(run, value, None)


async def aoutcome(
    policy: Options, name: str, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs
) -> Outcome[T]:
    """Make attempts, and tell how it ended instead of raising."""
    run = begin_run(Run, policy, name, aio=True)
    try:
        value = await adrive(run, None, arun_limited(run, fn), args, kwargs)
    except Exception as error:
        return outcome_of(run, None, error)
    if not run.ok:
        run.returned(value, run.reading())
    return outcome_of(run, value, None)


def call(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Make attempts."""
    if not (policy._direct and not ambient.others):
        run = begin_run(Run, policy, name, aio=False)
        return drive(run, None, run_limited(run, fn), args, kwargs)
    now, budget = policy._now, policy.budget
    when = policy._now if policy.clock is SYSTEM else now  # budgets go by one clock in all colours
    began = now()
    if budget is not None:
        budget.start(when())
    started, telling = began, None
    if watch.of_calls():
        telling = FastEmitter(policy, name)
        telling.attempt(began)
        started = now()
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        run = Run(policy, began, name, now, None, make_emitter(policy))
        run.begin_attempt(started)
        delay = run_after_failure(run, error, now())
        if delay is None:
            if run.replaces_error:
                raise error_of(run, error)  # noqa: B904  it knows its cause
            raise
    else:
        if budget is not None:
            budget.credit(None, when())
        if telling is not None:
            telling.success(result, began, started, now())
        return result
    return drive(run, delay, fn, args, kwargs)


def run_after_failure(run: Run, error: Exception, now: float) -> float | None:
    """Decide, and hand back what was paid for a retry if an observer is interrupted."""
    done = False
    try:
        delay = run.failed(error, now)
        done = True
    finally:
        if not done:
            run.refund()
    return delay


async def acall(policy: Options, name: str, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs) -> T:
    """Make attempts."""
    if not (policy._direct and policy._cuts == inf and not ambient.others):
        run = begin_run(Run, policy, name, aio=True)
        return await adrive(run, None, arun_limited(run, fn), args, kwargs)
    now, budget = policy._anow, policy.budget
    when = policy._now if policy.clock is SYSTEM else now  # budgets go by one clock in all colours
    began = now()
    if budget is not None:
        budget.start(when())
    started, telling = began, None
    if watch.of_calls():
        telling = FastEmitter(policy, name)
        telling.attempt(began)
        started = now()
    try:
        result = await fn(*args, **kwargs)
    except Exception as error:
        run = Run(policy, began, name, now, cancelling, make_emitter(policy))
        run.begin_attempt(started)
        delay = run_after_failure(run, error, now())
        if delay is None:
            if run.replaces_error:
                raise error_of(run, error)  # noqa: B904  it knows its cause
            raise
    else:
        if budget is not None:
            budget.credit(None, when())
        if telling is not None:
            telling.success(result, began, started, now())
        return result
    return await adrive(run, delay, fn, args, kwargs)


async def acall_blocking(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Make attempts at blocking code, on a worker."""
    from redouble._engine.worker import Worker  # noqa: PLC0415  for those who use one

    run = begin_run(Run, policy, name, aio=True)
    return await adrive(run, None, partial(arun_on_worker, run, policy.worker or Worker(), fn), args, kwargs)
