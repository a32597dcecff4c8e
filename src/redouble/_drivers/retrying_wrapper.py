"""Templates of retrying wrappers, which make the attempts inline, since most calls need no second one.

`compile_retrying` chooses a template by the policy and compiles it for the signature of the function
(`compile_wrapper`). `Run` makes the decisions, as everywhere. The wrapper of a plain policy loops by itself;
all others continue after a failure with `drive` and `adrive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redouble._drivers.attempt_timeout import arun_limited, overdue, run_limited, thread_job
from redouble._drivers.calls import (
    CallWithoutRun,
    acall,
    adrive,
    begin_run,
    call,
    drive,
    slow_path_needed,
)
from redouble._engine.options import FirstAttempt, Options
from redouble._engine.run import Run, Wait
from redouble._engine.run_results import error_of
from redouble._internal.callables import call_plain, display_name
from redouble._internal.codegen import FILENAME_PREFIX, Template, compile_wrapper
from redouble._internal.logger import call_hook, is_own
from redouble._runtime.ambient import CREDITED_CALL, ambient, credited_call
from redouble._runtime.backend import cancel_after, cancelling
from redouble._runtime.call_stack import EnclosingCall, holds_call, variables_of
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import FastEmitter, make_emitter
from redouble._telemetry.observers import watch

if TYPE_CHECKING:
    from redouble._drivers.streams import OpenStream

T = TypeVar("T")

# `redouble_began` is the time at which the call began if observers get its events, else None. Later attempts
# are made here too, unless more than the rules, the attempts and the time concern the call (`Run.tracked`).
ATTEMPTS = Template(
    "attempts",
    """\
{async_}def retrying({parameters}):
    redouble_began = redouble_run = None
    if redouble_ambient:
        if redouble_watch.calls and not redouble_others:
            redouble_began = redouble_fast_emitter.attempt(redouble_now())
        elif redouble_slow_path_needed():
            return {await_}redouble_call(
                redouble_policy, redouble_name, redouble_fn, ({positional}), {keyword_dict}
            )
    redouble_started = redouble_now()
    while True:
        try:
            redouble_result = {await_}redouble_fn({arguments})
            {check}
        except redouble_Exception as redouble_error:
            if redouble_run is None:
                redouble_run = redouble_Run(
                    redouble_policy,
                    redouble_started if redouble_began is None else redouble_began,
                    redouble_name,
                    redouble_now,
                    redouble_cancelling,
                    redouble_make_emitter(redouble_policy)
                    if redouble_has_hooks or redouble_watch.entries
                    else None,
                )
                if redouble_began is not None:
                    redouble_run.begin_attempt(redouble_started)
                    redouble_began = None
            redouble_delay = redouble_run.failed(redouble_error, redouble_now())
            if redouble_delay is None:
                if redouble_run.replaces_error:
                    raise redouble_error_of(redouble_run, redouble_error)
                raise
        else:
            break
        if redouble_run.tracked:
            redouble_result = {await_}redouble_drive(
                redouble_run, redouble_delay, redouble_checked_fn, ({positional}), {keyword_dict}
            )
            break
        if redouble_delay or redouble_aio:
            with redouble_Wait(redouble_run):
                {await_}redouble_sleep(redouble_delay)
                redouble_begins = redouble_now()
            redouble_error = redouble_run.start(redouble_begins)
            if redouble_error is not None:
                try:
                    raise redouble_error
                finally:
                    redouble_error = None  # break the cycle of the error and this frame
        else:  # an untracked run, which has just found time left
            redouble_run.attempt += 1
            redouble_run.attempt_started = redouble_run.now
    if redouble_began is not None:
        redouble_fast_emitter.success(redouble_result, redouble_began, redouble_started, redouble_now())
    return redouble_result
""",
)


def _credited(title: str, start: str = "") -> Template:
    """Return the template for a budget, which is credited for each success unless a call around this one is.

    A signal handler may raise after every call of a function. So the statement that ends the entry is the
    first in its `finally`, and calls nothing: an entry that is over does no harm. The garbage collector may
    close a coroutine in any context, where nothing is to be restored. Budgets read the clock of blocking code
    in every colour.
    """
    first, last = "    while True:\n", "            redouble_run.attempt_started = redouble_run.now\n"
    source = ATTEMPTS.source
    loop = source[source.index(first) : source.index(last) + len(last)]
    indented = "".join(f"    {line}" for line in loop.splitlines(keepends=True))
    within = f"""\
    redouble_around = redouble_credited_call.get()
    redouble_own = redouble_around is None or redouble_call_of(redouble_budget) is None
    redouble_credited = [redouble_budget, None, redouble_around]
    try:
        if redouble_own:
{start}            redouble_credited_call.set(redouble_credited)
{indented}\
    finally:
        redouble_credited[0] = None  # the call is over; a task that it has started may run on
        if not redouble_aio or redouble_credited_call.get() is redouble_credited:
            redouble_credited_call.set(redouble_around)
"""
    began = "                    if redouble_began is not None:\n"
    success = "            else:\n                break\n"
    credit = """\
            else:
                if redouble_own:
                    redouble_credit(redouble_credited[1], redouble_budget_now())
                break
"""
    return ATTEMPTS.derive(title, (loop, within)).derive(
        title,
        (began, f"                    redouble_run.credits = redouble_own\n{began}"),
        (success, credit),
    )


ATTEMPTS_CREDITED = _credited("attempts, credited")
ATTEMPTS_STARTED = _credited(
    "attempts, started and credited", "            redouble_start(redouble_budget_now())\n"
)


def _counted(title: str, credited: Template) -> Template:
    """Return the template for a budget that limits the retries in flight, and so counts calls.

    The key of the call is added and discarded by one operation each. Under a view of a budget that is never
    credited, only the retries count.
    """
    entered = "            redouble_credited_call.set(redouble_credited)\n"
    ended = "        if not redouble_aio or redouble_credited_call.get() is redouble_credited:\n"
    return credited.derive(
        title,
        (
            "redouble_own = redouble_around is None or redouble_call_of(redouble_budget) is None\n",
            """\
redouble_own = redouble_credits and (
        redouble_around is None or redouble_call_of(redouble_budget) is None
    )
    redouble_key = redouble_object()
""",
        ),
        (entered, f"{entered}            redouble_begin_call(redouble_key)\n"),
        (
            "redouble_run.credits = redouble_own\n",
            """\
redouble_run.credits = redouble_own
                    redouble_run.in_flight = redouble_counter.call(counted=False)
""",
        ),
        (
            ended,
            f"""\
        redouble_end_call(redouble_key)
        if redouble_run is not None:
            redouble_run.in_flight.end()
{ended}""",
        ),
    )


ATTEMPTS_COUNTED = _counted("attempts, counted and credited", ATTEMPTS_CREDITED)
ATTEMPTS_STARTED_COUNTED = _counted("attempts, started, counted and credited", ATTEMPTS_STARTED)

# The handler of a failure where the run exists already if the attempt has exceeded its limit.
FAILED = """\
    except redouble_Exception as redouble_error:
        redouble_run = redouble_run or redouble_begin_run(started=redouble_started)
        redouble_delay = redouble_run.failed(redouble_error, redouble_now())
        if redouble_delay is None:
            if redouble_run.replaces_error:
                raise redouble_error_of(redouble_run, redouble_error)
            raise
"""

# The same where a cancel scope limits async attempts: the code after the `with` runs only if the scope has
# cancelled the attempt.
FIRST_LIMITED = Template(
    "first attempt, limited",
    """\
async def retrying({parameters}):
    if redouble_ambient and redouble_slow_path_needed():
        return await redouble_call(
            redouble_policy, redouble_name, redouble_fn, ({positional}), {keyword_dict}
        )
    redouble_started = redouble_now()
    redouble_run = None
    try:
        with redouble_cancel_after(redouble_seconds):
            return await redouble_fn({arguments})
        redouble_run = redouble_begin_run(started=redouble_started)
        redouble_run.time_left()
        raise redouble_run.expired()
"""
    + FAILED
    + """\
    return await redouble_drive(
        redouble_run,
        redouble_delay,
        redouble_run_limited(redouble_run, redouble_fn),
        ({positional}),
        {keyword_dict},
    )
""",
)

# The same for blocking code on a thread of its own.
FIRST_WORKED = Template(
    "first attempt, on a worker",
    """\
def retrying({parameters}):
    if redouble_ambient and redouble_slow_path_needed():
        return redouble_call(redouble_policy, redouble_name, redouble_fn, ({positional}), {keyword_dict})
    redouble_started = redouble_now()
    redouble_run = None
    redouble_job = redouble_Job(redouble_now, redouble_fn, ({positional}), {keyword_dict})
    try:
        if redouble_job.run_within(redouble_seconds):
            redouble_result = redouble_job.result()
            {check}
        else:
            redouble_run = redouble_begin_run(started=redouble_started)
            redouble_run.time_left()
            raise redouble_overdue(redouble_run, redouble_policy.worker, redouble_job)
"""
    + FAILED
    + """\
        redouble_result = None
    if redouble_run is not None:
        redouble_result = redouble_drive(
            redouble_run,
            redouble_delay,
            redouble_run_limited(redouble_run, redouble_fn),
            ({positional}),
            {keyword_dict},
        )
    return redouble_result
""",
)

# For a policy with work to do before the first attempt or after a success.
EVERY_ATTEMPT = Template(
    "every attempt",
    """\
{async_}def retrying({parameters}):
    return {await_}redouble_call(redouble_policy, redouble_name, redouble_fn, ({positional}), {keyword_dict})
""",
)


def _read_call(frame: FrameType) -> EnclosingCall | None:
    """Return the call of a frame of one of these wrappers."""
    variables, names = variables_of(frame), frame.f_globals
    run: EnclosingCall | None = variables.get("redouble_run")
    if run is not None:
        return run
    if (stream := variables.get("redouble_streaming")) is not None:
        return cast("OpenStream[Any]", stream).call()
    started = variables.get("redouble_started")
    if started is None:
        return None  # another driver makes the call
    aio = names["redouble_cancelling"] is not None
    return CallWithoutRun(names["redouble_policy"], names["redouble_name"], started, aio=aio)


holds_call("retrying", FILENAME_PREFIX, _read_call)

# For a generator function: everything until its first item is ordinary code too (`OpenStream`).
STREAM = Template(
    "stream",
    """\
def retrying({parameters}):
    with redouble_Streaming(
        redouble_policy, redouble_name, redouble_fn, ({positional}), {keyword_dict}
    ) as redouble_streaming:
        return (yield from (yield from redouble_streaming.first()))
""",
)

# For blocking and for async code.
TEMPLATES: dict[FirstAttempt, tuple[Template, Template]] = {
    "plain": (ATTEMPTS, ATTEMPTS),
    "credited": (ATTEMPTS_CREDITED, ATTEMPTS_CREDITED),
    "started": (ATTEMPTS_STARTED, ATTEMPTS_STARTED),
    "counted": (ATTEMPTS_COUNTED, ATTEMPTS_COUNTED),
    "started and counted": (ATTEMPTS_STARTED_COUNTED, ATTEMPTS_STARTED_COUNTED),
    "limited": (FIRST_WORKED, FIRST_LIMITED),
    "tracked": (EVERY_ATTEMPT, EVERY_ATTEMPT),
}


def compile_retrying(policy: Options, fn: Callable[..., Any], *, aio: bool) -> Callable[..., Any]:
    """Return a function with the signature of ``fn`` that retries it."""
    now = policy._anow if aio else policy._now
    name = policy.name or display_name(fn)
    drivers: dict[str, Any] = {"call": call, "drive": drive, "run_limited": run_limited}
    if aio:
        drivers = {"call": acall, "drive": adrive, "run_limited": arun_limited, "cancel_after": cancel_after}
    drivers["checked_fn"] = fn if aio else partial(call_plain, fn)
    if policy.worker is not None and not aio:
        drivers |= {"Job": thread_job(), "overdue": overdue}
    if policy.budget is not None:
        budget_now = policy._now if policy.clock is SYSTEM else now
        drivers |= {"start": policy.budget.start, "credit": policy.budget.credit, "budget_now": budget_now}
        if not is_own(policy.budget):  # then it may raise
            drivers["start"] = partial(call_hook, policy.budget, "start")
            drivers["credit"] = partial(call_hook, policy.budget, "credit")
        drivers |= {"budget": policy.budget, "credited_call": CREDITED_CALL, "call_of": credited_call}
        if (counter := policy._in_flight) is not None:
            drivers |= {"credits": policy._credits, "counter": counter, "object": object}
            drivers |= {"begin_call": counter.calls.add, "end_call": counter.calls.discard}
    return compile_wrapper(
        fn,
        TEMPLATES[policy._afirst if aio else policy._first][aio],
        is_async=aio,
        aio=aio,
        now=now,
        sleep=policy._time.asleep if aio else policy._time.sleep,
        Wait=Wait,
        Run=Run,
        make_emitter=make_emitter,
        has_hooks=policy._has_hooks,
        begin_run=partial(begin_run, Run, policy, name, aio=aio, attempt=1),
        error_of=error_of,
        policy=policy,
        name=name,
        cancelling=cancelling if aio else None,
        seconds=policy._interrupt_limit,
        ambient=ambient.active,
        fast_emitter=FastEmitter(policy, name),
        slow_path_needed=slow_path_needed,
        watch=watch,
        others=ambient.others,
        **drivers,
    )
