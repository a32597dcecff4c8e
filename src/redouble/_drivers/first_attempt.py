"""The lines that every retried call goes through: the first attempt, which is nearly always the only one.

Compiled for each signature by `_shape`; `retried` chooses which. All that follows a failure is ordinary code
in `_drive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, TypeVar

from redouble._drivers.attempt import arun_limited, overdue, run_limited, thread_job
from redouble._drivers.calls import (
    Args,
    Kwargs,
    acall,
    adrive,
    call,
    drive,
    run_after_failure,
    slow_path_needed,
)
from redouble._engine.options import Options
from redouble._engine.outcome import error_of
from redouble._engine.run import Run
from redouble._internal.callables import display_name, reject_awaitable
from redouble._internal.codegen import Template, compile_wrapper
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import cancelling, cut_after
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import FastEmitter, make_emitter
from redouble._telemetry.observers import watch

__all__ = ["FIRST_ATTEMPT", "STREAM", "call_done", "compile_first_attempt"]


T = TypeVar("T")

# As long as only observers are concerned, `redouble_run` is the moment at which the call began.
FIRST_ATTEMPT = Template(
    "first attempt",
    """\
{async_}def retrying({parameters}):
    redouble_run = None
    if redouble_ambient:
        if redouble_watch.calls and not redouble_others:
            redouble_run = redouble_telling.attempt(redouble_now())
        elif redouble_concerned():
            return {await_}redouble_call(
                redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}}
            )
    redouble_started = redouble_now()
    try:
        redouble_result = {await_}redouble_fn({arguments})
    except redouble_Exception as redouble_error:
        redouble_began, redouble_run = redouble_run, redouble_Run(
            redouble_policy,
            redouble_started if redouble_run is None else redouble_run,
            redouble_name,
            redouble_now,
            redouble_cancelling,
            redouble_teller(redouble_policy) if redouble_heard or redouble_watch.entries else None,
        )
        if redouble_began is not None:
            redouble_run.begin_attempt(redouble_started)
        redouble_delay = redouble_run.failed(redouble_error, redouble_now())
        if redouble_delay is None:
            if redouble_run.instead:
                raise redouble_error_of(redouble_run, redouble_error)
            raise
    else:
        if redouble_run is not None:
            redouble_run = redouble_telling.success(
                redouble_result, redouble_run, redouble_started, redouble_now()
            )
    if redouble_run is not None:
        redouble_result = {await_}redouble_drive(
            redouble_run, redouble_delay, redouble_fn, ({positional}), {{{keywords}}}
        )
{check}    return redouble_result
""",
)

# The same with a budget, which is credited for a success, and may want to know of every call. It goes by a
# clock of its own: the one of blocking code, in all colours.
FIRST_CREDITED = Template(
    "first attempt, credited",
    FIRST_ATTEMPT.source.replace(
        "    else:\n", "    else:\n        redouble_credit(None, redouble_when())\n"
    ).replace("redouble_run.failed(", "redouble_decided(redouble_run, "),
)
FIRST_STARTED = Template(
    "first attempt, started and credited",
    FIRST_CREDITED.source.replace(
        "    redouble_started = redouble_now()\n",
        "    redouble_start(redouble_when())\n    redouble_started = redouble_now()\n",
    ),
)

# Where there may be a run already, because the attempt has gone on for too long.
FAILED = """\
    except redouble_Exception as redouble_error:
        redouble_run = redouble_run or redouble_begun(redouble_started)
        redouble_delay = redouble_run.failed(redouble_error, redouble_now())
        if redouble_delay is None:
            if redouble_run.instead:
                raise redouble_error_of(redouble_run, redouble_error)
            raise
"""

# The same where async attempts are cut: after the `with` comes only who was.
FIRST_LIMITED = Template(
    "first attempt, limited",
    """\
async def retrying({parameters}):
    if redouble_ambient and redouble_concerned():
        return await redouble_call(
            redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}}
        )
    redouble_started = redouble_now()
    redouble_run = None
    try:
        with redouble_cut_after(redouble_seconds):
            return await redouble_fn({arguments})
        redouble_run = redouble_begun(redouble_started)
        redouble_run.time_left()
        raise redouble_run.expired()
{failed}    return await redouble_drive(
        redouble_run,
        redouble_delay,
        redouble_bound(redouble_run, redouble_fn),
        ({positional}),
        {{{keywords}}},
    )
""".replace("{failed}", FAILED),
)

# The same for blocking code on a thread of its own.
FIRST_WORKED = Template(
    "first attempt, on a worker",
    """\
def retrying({parameters}):
    if redouble_ambient and redouble_concerned():
        return redouble_call(redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}})
    redouble_started = redouble_now()
    redouble_run = None
    redouble_job = redouble_Job(redouble_now, redouble_fn, ({positional}), {{{keywords}}})
    try:
        if redouble_job.within(redouble_seconds):
            redouble_result = redouble_job.result()
        else:
            redouble_run = redouble_begun(redouble_started)
            redouble_run.time_left()
            raise redouble_overdue(redouble_run, redouble_policy.worker, redouble_job)
{failed}        redouble_result = None
    if redouble_run is not None:
        redouble_result = redouble_drive(
            redouble_run,
            redouble_delay,
            redouble_bound(redouble_run, redouble_fn),
            ({positional}),
            {{{keywords}}},
        )
{check}    return redouble_result
""".replace("{failed}", FAILED),
)

# Where something must be done before the first attempt, or after a success.
EVERY_ATTEMPT = Template(
    "every attempt",
    """\
{async_}def retrying({parameters}):
    return {await_}redouble_call(redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}})
""",
)

# A generator function: what happens until its first item is ordinary code too.
STREAM = Template(
    "stream",
    """\
def retrying({parameters}):
    with redouble_Streaming(
        redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}}
    ) as redouble_streaming:
        return (yield from (yield from redouble_streaming.first()))
""",
)


def compile_first_attempt(policy: Options, fn: Callable[..., Any], *, aio: bool) -> Callable[..., Any]:
    """Return ``fn`` retried, with its own signature."""
    now = policy._anow if aio else policy._now
    whose: dict[str, Any] = {
        "name": policy.name or display_name(fn),
        "cancelling": cancelling if aio else None,
    }
    drivers: dict[str, Any] = {"call": call_done, "drive": drive, "bound": run_limited}
    if aio:
        drivers = {"call": acall, "drive": adrive, "bound": arun_limited, "cut_after": cut_after}
    if policy.worker is not None and not aio:
        drivers |= {"Job": thread_job(), "overdue": overdue}
    if policy.budget is not None:
        when = policy._now if policy.clock is SYSTEM else now
        drivers |= {"start": policy.budget.start, "credit": policy.budget.credit, "when": when}
    return compile_wrapper(
        fn,
        _template(policy, aio=aio),
        is_async=aio,
        now=now,
        Run=Run,
        teller=make_emitter,
        heard=not policy._silent,
        begun=partial(_begun, policy, now, whose),
        error_of=error_of,
        decided=run_after_failure,
        policy=policy,
        seconds=policy._cuts,
        ambient=ambient.active,
        telling=FastEmitter(policy, whose["name"]),
        concerned=slow_path_needed,
        watch=watch,
        others=ambient.others,
        **whose,
        **drivers,
    )


def _begun(policy: Options, now: Callable[[], float], whose: dict[str, Any], started: float) -> Run:
    return Run(policy, started, reading=now, emit=make_emitter(policy), **whose)


def _template(policy: Options, *, aio: bool) -> Template:
    worker = None if aio else policy.worker
    if worker is not None:
        quick = policy._plain and worker.kind == "thread" and policy.clock is SYSTEM
        return FIRST_WORKED if quick else EVERY_ATTEMPT
    if aio and policy._cuts < inf:
        return FIRST_LIMITED if policy._plain else EVERY_ATTEMPT
    if policy._credited:
        return FIRST_CREDITED if getattr(policy.budget, "_ignores_starts", False) else FIRST_STARTED
    return FIRST_ATTEMPT if policy._plain else EVERY_ATTEMPT


def call_done(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Make attempts at a plain function, whose result must not have to be awaited."""
    return reject_awaitable(fn, call(policy, name, fn, args, kwargs))
