"""The drivers of calls: they call, wait and raise, and decide nothing.

Each has two versions side by side, for blocking and for async code; a test erases ``async`` and ``await``,
applies its table of renames, and asserts that nothing else differs.

`call` and `acall` serve functions that are not decorated, and the slow path of those that are, which the
compiled wrappers (`retrying_wrapper`) hand over. Only a plain policy makes the first attempt without a run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from redouble._drivers.attempt_timeout import arun_limited, arun_on_worker, run_limited
from redouble._engine.options import Options
from redouble._engine.report import Outcome
from redouble._engine.run import Run, Wait
from redouble._engine.run_results import error_of, outcome_of
from redouble._internal.callables import UsageError, reject_awaitable
from redouble._runtime.ambient import ATTEMPT_OVERRIDE, CREDITED_CALL, ambient
from redouble._runtime.backend import cancelling
from redouble._runtime.call_stack import EnclosingCall, holds_call, variables_of
from redouble._runtime.clock import call_reader, virtual
from redouble._runtime.deadline import ACTIVE_DEADLINE, deadline_left
from redouble._telemetry.emit import make_emitter
from redouble._telemetry.observers import watch

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
    """Begin a run, with an emitter if it has observers, and with the overrides and the deadline in force."""
    now = policy._anow if aio else policy._now
    emit = make_emitter(policy)
    if ambient.active:
        now = call_reader(policy._time, aio=aio)
    started = now() if started is None else started
    run = kind(policy, started, name, now, cancelling if aio else None, emit, attempt)
    if ambient.active:
        if (override := ATTEMPT_OVERRIDE.get()) is not None and not override.ended:
            run.max_attempts = override.attempts
        if (seconds := deadline_left()) < inf:
            run.apply_deadline(seconds)
    return run


class CallWithoutRun:
    """A call in its first attempt, which has no run."""

    __slots__ = ("_aio", "_now", "_policy", "_started", "name")
    attempt = 1
    ends_with_first_item = False

    def __init__(self, policy: Options, name: str, started: float, *, aio: bool) -> None:
        self._policy, self.name, self._started, self._aio = policy, name, started, aio
        self._now = policy._anow if aio else policy._now

    @property
    def attempts(self) -> int | None:
        """The most attempts of the call; None for no limit."""
        return self._policy.attempts

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its policy."""
        return self._policy.labels

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until its earliest limit, negative after it; ``soft``: as in `RunState.left`."""
        policy = self._policy
        shortest = policy._stated_limit
        if not soft or not (self._aio or policy.worker is not None):
            shortest = min(shortest, policy._attempt_limit, policy._work_limit)
        elif shortest == policy._total:
            return inf
        return shortest if shortest == inf else shortest - (self._now() - self._started)


CO_COROUTINE = 0x80  # the flag of `inspect`, which takes long to import


def _read_call(frame: FrameType) -> EnclosingCall | None:
    """Return the call of a frame of `drive`, of `call`, or of their twins."""
    variables = variables_of(frame)
    run: EnclosingCall | None = variables.get("run")
    if run is None and "started" in variables:
        policy, name, started = variables["policy"], variables["name"], variables["started"]
        return CallWithoutRun(policy, name, started, aio=bool(frame.f_code.co_flags & CO_COROUTINE))
    return run


for function in ("drive", "adrive", "call", "acall"):
    holds_call(function, begin_run.__code__.co_filename, _read_call)


def slow_path_needed() -> bool:
    """Return True if an observer, deadline, virtual clock or attempt override applies in this context."""
    if watch.wants_successes():
        return True
    if not ambient.others:
        return False
    return ACTIVE_DEADLINE.get() is not None or ATTEMPT_OVERRIDE.get() is not None or virtual() is not None


# ------------------------------------------------------------------------------- calls


def drive(run: Run, delay: float | None, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Make attempts until one succeeds or the run gives up; ``delay`` is the wait before the first."""
    policy = run.policy
    clock, now = policy._time, run.read_clock
    credited = in_flight = None
    if policy.budget is not None:
        credited, in_flight = run.begin_credited_call(), run.in_flight
    try:
        if credited is not None:
            CREDITED_CALL.set(credited)
        if in_flight is not None:
            in_flight.begin_call()
        while True:
            begins = run.now
            if delay:
                with Wait(run):
                    clock.sleep(delay)
                    begins = now()
            refusal = run.start(begins)
            if refusal is not None:
                raise refusal
            try:
                result = fn(*args, **kwargs)
            except Exception as error:
                delay = run.failed(error, now())
                if delay is None:
                    if run.replaces_error:
                        raise error_of(run, error)  # noqa: B904  `error_of` sets the cause
                    raise
            else:
                if not run.tracked:
                    return result  # no events to emit, nothing to check or to credit
                delay = run.returned(result, now())
                if delay is None:
                    if run.ok:
                        return result
                    raise error_of(run, None)
    finally:
        if credited is not None:
            credited[0] = None  # first: a signal handler may raise after the next call
        if in_flight is not None:
            in_flight.end()
        # The garbage collector may close a coroutine in any context.
        if credited is not None and CREDITED_CALL.get() is credited:
            CREDITED_CALL.set(credited[2])
        refusal = None  # break the cycle of the error and this frame
        if run.tracked:
            run.refund()


async def adrive(
    run: Run, delay: float | None, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs
) -> T:
    """Make attempts until one succeeds or the run gives up; ``delay`` is the wait before the first."""
    policy = run.policy
    clock, now = policy._time, run.read_clock
    credited = in_flight = None
    if policy.budget is not None:
        credited, in_flight = run.begin_credited_call(), run.in_flight
    try:
        if credited is not None:
            CREDITED_CALL.set(credited)
        if in_flight is not None:
            in_flight.begin_call()
        while True:
            begins = run.now
            if delay is not None:
                with Wait(run):
                    await clock.asleep(delay)
                    begins = now()
            refusal = run.start(begins)
            if refusal is not None:
                raise refusal
            try:
                result = await fn(*args, **kwargs)
            except Exception as error:
                delay = run.failed(error, now())
                if delay is None:
                    if run.replaces_error:
                        raise error_of(run, error)  # noqa: B904  `error_of` sets the cause
                    raise
            else:
                if not run.tracked:
                    return result  # no events to emit, nothing to check or to credit
                delay = run.returned(result, now())
                if delay is None:
                    if run.ok:
                        return result
                    raise error_of(run, None)
    finally:
        if credited is not None:
            credited[0] = None  # first: a signal handler may raise after the next call
        if in_flight is not None:
            in_flight.end()
        # The garbage collector may close a coroutine in any context.
        if credited is not None and CREDITED_CALL.get() is credited:
            CREDITED_CALL.set(credited[2])
        refusal = None  # break the cycle of the error and this frame
        if run.tracked:
            run.refund()


def drive_after_failure(run: Run, error: Exception, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Continue a call whose running attempt was not made by a driver, and has failed with this error."""
    delay = run.failed(error, run.read_clock())
    if delay is not None:
        return drive(run, delay, fn, args, kwargs)
    try:
        raise error_of(run, error) if run.replaces_error else error
    finally:
        del error  # break the cycle of the error and this frame


async def adrive_after_failure(
    run: Run, error: Exception, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs
) -> T:
    """Continue a call whose running attempt was not made by a driver, and has failed with this error."""
    delay = run.failed(error, run.read_clock())
    if delay is not None:
        return await adrive(run, delay, fn, args, kwargs)
    try:
        raise error_of(run, error) if run.replaces_error else error
    finally:
        del error  # break the cycle of the error and this frame


# ---------------------------------------------------------------------------- outcomes


def outcome(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> Outcome[T]:
    """Make attempts; return the outcome instead of raising."""
    run = begin_run(Run, policy, name, aio=False)
    try:
        value = drive(run, None, run_limited(run, fn), args, kwargs)
    except UsageError:
        raise
    except Exception as error:
        return outcome_of(run, None, error)
    if not run.ok:
        run.returned(value, run.read_clock())
    return outcome_of(run, value, None)


async def aoutcome(
    policy: Options, name: str, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs
) -> Outcome[T]:
    """Make attempts; return the outcome instead of raising."""
    run = begin_run(Run, policy, name, aio=True)
    try:
        value = await adrive(run, None, arun_limited(run, fn), args, kwargs)
    except UsageError:
        raise
    except Exception as error:
        return outcome_of(run, None, error)
    if not run.ok:
        run.returned(value, run.read_clock())
    return outcome_of(run, value, None)


def call(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Call a function with retries."""
    if policy._first != "plain" or ambient.active:
        run = begin_run(Run, policy, name, aio=False)
        return drive(run, None, run_limited(run, fn), args, kwargs)
    now = policy._now
    started = now()
    try:
        return reject_awaitable(fn, fn(*args, **kwargs))
    except Exception as error:
        run = Run(policy, started, name, now, None, make_emitter(policy))
        delay = run.failed(error, now())
        if delay is None:
            if run.replaces_error:
                raise error_of(run, error)  # noqa: B904  `error_of` sets the cause
            raise
    return drive(run, delay, run_limited(run, fn), args, kwargs)


async def acall(policy: Options, name: str, fn: Callable[..., Awaitable[T]], args: Args, kwargs: Kwargs) -> T:
    """Call a function with retries."""
    if policy._afirst != "plain" or ambient.active:
        run = begin_run(Run, policy, name, aio=True)
        return await adrive(run, None, arun_limited(run, fn), args, kwargs)
    now = policy._anow
    started = now()
    try:
        return await fn(*args, **kwargs)
    except Exception as error:
        run = Run(policy, started, name, now, cancelling, make_emitter(policy))
        delay = run.failed(error, now())
        if delay is None:
            if run.replaces_error:
                raise error_of(run, error)  # noqa: B904  `error_of` sets the cause
            raise
    return await adrive(run, delay, arun_limited(run, fn), args, kwargs)


async def acall_blocking(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    """Call a blocking function with retries, on a worker, from async code."""
    from redouble._engine.worker import Worker  # noqa: PLC0415  imported only if used

    run = begin_run(Run, policy, name, aio=True)
    return await adrive(run, None, partial(arun_on_worker, run, policy.worker or Worker(), fn), args, kwargs)
