"""Calls that a run sees from the start, because something is to be done or told before, or after a success.

Where that is only to tell observers that all goes well, there is no run until something does not. Each comes
twice, for blocking and for async code, like all drivers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TypeVar

from redouble._attempt import abound, aworked, bound
from redouble._drive import Args, Kwargs, adrive, begin, drive
from redouble._engine.options import Options
from redouble._engine.outcome import error_of
from redouble._engine.run import Run
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import cancelling
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import Quick, teller
from redouble._telemetry.observers import watch

__all__ = ["acall", "acall_blocking", "call", "decided"]

T = TypeVar("T")


def call(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Make attempts."""
    if not (policy._direct and not ambient.others):
        run = begin(Run, policy, name, aio=False)
        return drive(run, None, bound(run, fn), args, kwargs)
    now, budget = policy._now, policy.budget
    when = policy._now if policy.clock is SYSTEM else now  # budgets go by one clock in all colours
    began = now()
    if budget is not None:
        budget.start(when())
    started, telling = began, None
    if watch.of_calls():
        telling = Quick(policy, name)
        telling.attempt(began)
        started = now()
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        run = Run(policy, began, name, now, None, teller(policy))
        run.begin_attempt(started)
        delay = decided(run, error, now())
        if delay is None:
            if run.instead:
                raise error_of(run, error)  # noqa: B904  it knows its cause
            raise
    else:
        if budget is not None:
            budget.credit(None, when())
        if telling is not None:
            telling.success(result, began, started, now())
        return result
    return drive(run, delay, fn, args, kwargs)


def decided(run: Run, error: Exception, now: float) -> float | None:
    """Decide, and hand back what was paid for a retry if an observer is interrupted."""
    done = False
    try:
        delay = run.failed(error, now)
        done = True
    finally:
        if not done:
            run.hand_back()
    return delay


async def acall(policy: Options, name: str, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs) -> T:
    """Make attempts."""
    if not (policy._direct and policy._cuts == inf and not ambient.others):
        run = begin(Run, policy, name, aio=True)
        return await adrive(run, None, abound(run, fn), args, kwargs)
    now, budget = policy._anow, policy.budget
    when = policy._now if policy.clock is SYSTEM else now  # budgets go by one clock in all colours
    began = now()
    if budget is not None:
        budget.start(when())
    started, telling = began, None
    if watch.of_calls():
        telling = Quick(policy, name)
        telling.attempt(began)
        started = now()
    try:
        result = await fn(*args, **kwargs)
    except Exception as error:
        run = Run(policy, began, name, now, cancelling, teller(policy))
        run.begin_attempt(started)
        delay = decided(run, error, now())
        if delay is None:
            if run.instead:
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

    run = begin(Run, policy, name, aio=True)
    return await adrive(run, None, partial(aworked, run, policy.worker or Worker(), fn), args, kwargs)
