"""Detection of nested retries, by the stamp that a policy leaves on the error it gave up on.

Three attempts around three attempts are nine, which neither policy asks for. The stamp is searched on the
error, along its explicit causes and in groups, so it survives ``raise X from err`` and a task group. The
implicit context is not followed: an error raised while some older, given-up error is being handled is not
nested in it. A worker that an inner policy or layer has left running is found the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakValueDictionary

from redouble._engine.options import Options
from redouble._engine.report import (
    CallStamp,
    Report,
    ResendGuard,
    left_worker,
    related_errors,
    stamp_of,
    stamp_of_response,
)
from redouble._failures.error_path import ErrorPath
from redouble._internal.codegen import is_own
from redouble._internal.logger import log
from redouble._runtime.backend import under_trio
from redouble._runtime.clock import Clock, SystemClock
from redouble.errors import Reason, WorkerStillRunning

if TYPE_CHECKING:
    from redouble._engine.run_state import RunState

F = TypeVar("F", bound=Callable[..., Any])

_gate_code: set[CodeType] = set()  # functions registered by `asks_gate`
_warned: WeakValueDictionary[int, Options] = WeakValueDictionary()  # by identity


def nested(error: BaseException, run: RunState) -> Reason | None:
    """Return the reason to stop if an inner policy gave up on this error during this attempt."""
    guard = stamp_of(error)
    # A `Retry` inside another layer of a client's policy (a `Keyed`, say) makes runs without a guard.
    if run.guard is None and isinstance(guard, ResendGuard) and (veto := guard.veto(run.verdict)) is not None:
        return veto
    stamps = list(_stamps(error, run))
    still_running = any(issubclass(type(other), WorkerStillRunning) for other in related_errors(error))
    if still_running or any(left_worker(stamp) for stamp in stamps):
        return Reason.worker_still_running  # and another attempt would run beside it
    if not stamps:
        return None
    # An exhausted budget stops the outer policies too: their retries would defeat it.
    if run.policy.nested == "stop" or any(_exhausted(stamp) for stamp in stamps):
        return Reason.nested
    if run.policy.nested == "warn":
        _warn(run.policy, stamps[0])
    return None


def carries_exhausted_budget(replaced: CallStamp | Report, error: BaseException, run: RunState) -> bool:
    """Return True if the replaced stamp reports an exhausted budget: the new one has to report it too."""
    return _exhausted(replaced) and _is_of_this_attempt(replaced, error, error, run)


def rejected_before_call(error: BaseException, run: RunState) -> bool:
    """Return True if a gate rejected the attempt before the function was called.

    The traceback decides: every frame from the attempt to the gate is one of this package. A mark that the
    gate left on the error would not be enough: the function may call something behind another gate, or raise
    an error again that a gate has raised before.
    """
    stamp = stamp_of(error)
    if stamp is not None and _has_retried(stamp) and _is_of_this_attempt(stamp, error, error, run):
        return False  # an inner policy has made attempts
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code in _gate_code:
            return True  # deeper frames are the gate's own
        if not is_own(code):
            return False
        trace = trace.tb_next
    return True


def asks_gate(function: F) -> F:
    """Register a function that asks a gate for admission: `rejected_before_call` stops at its frame."""
    _gate_code.add(cast("FunctionType", function).__code__)
    return function


def _exhausted(stamp: CallStamp | Report) -> bool:
    return stamp.reason is Reason.budget or getattr(stamp, "exhausted", False)


def _stamps(error: BaseException, run: RunState) -> Iterator[CallStamp | Report]:
    """Yield the stamps that inner policies left, in this attempt, on an error and its causes."""
    for other in related_errors(error):
        # Our HTTP clients stamp a response too, and `raise_for_status()` may have made this error from it.
        for stamp in (stamp_of(other), stamp_of_response(other)):
            if stamp is None or stamp.reason is None:
                continue
            relevant = _has_retried(stamp) or _exhausted(stamp) or left_worker(stamp)
            if relevant and _is_of_this_attempt(stamp, other, error, run):
                yield stamp


def _has_retried(stamp: CallStamp | Report) -> bool:
    """Return False for a policy that stopped at its first attempt: it does not multiply attempts."""
    attempts = stamp.attempts if isinstance(stamp, Report) else stamp.attempt
    # A client's policy without a `Retry` whose time was up: the report of a run names the limit.
    if isinstance(stamp, Report) and stamp.reason is Reason.timeout and stamp.limit is None:
        return attempts > 1
    return attempts > 1 or stamp.reason not in (Reason.stopped, Reason.committed)


def _is_of_this_attempt(
    stamp: CallStamp | Report, error: BaseException, caught: BaseException, run: RunState
) -> bool:
    """Return True if the policy that left the stamp gave up in this attempt, which failed with ``caught``.

    The path of the error decides. Where it does not tell (another thread has handed the error over), a policy
    counts that began after the attempt and has retried. It does not count if it got the same instance
    repeatedly, or if ordinary code has raised the error again: a call beside this one can share an instance.
    """
    path = ErrorPath(caught)
    below = path.leads_to(stamp, error)
    if isinstance(stamp, Report):  # from another process, or of a client's call without a run
        return below is not False
    inner = cast("RunState", stamp)
    if below is not None:
        return below
    ends_the_call = _exhausted(stamp) or left_worker(stamp)  # then a retry does harm
    if not (inner.attempt > 1 or ends_the_call):
        return False
    shared = inner.repeated or (path.raised_again and not ends_the_call)
    if shared and not path.handed_over(stamp, error) and not _is_block_inside(inner, path, run):
        return False
    one_colour = (inner.cancelling is None) == (run.cancelling is None)
    if not _share_time(inner.policy.clock, run.policy.clock) or not (one_colour or not under_trio()):
        return True  # their times cannot be compared
    return inner.started >= run.attempt_started


def _is_block_inside(inner: RunState, path: ErrorPath, run: RunState) -> bool:
    """Return True if both policies are blocks of one function, and the inner one began in this attempt."""
    driver = path.driver
    return (
        driver is not None
        and not is_own(driver.f_code)
        and inner.started > run.attempt_started
        and path.is_in_driver(inner)
    )


def _share_time(one: Clock, other: Clock) -> bool:
    """Return True if two clocks read the same time; those of our clients differ from `SYSTEM` in `sleep`."""
    return one is other or (isinstance(one, SystemClock) and isinstance(other, SystemClock))


def _warn(policy: Options, stamp: CallStamp | Report) -> None:
    if _warned.get(id(policy)) is policy:
        return
    _warned[id(policy)] = policy
    log(
        "%r retries an error on which an inner policy (%s) already gave up: attempts multiply. "
        "Retry in one place, or set nested='stop' or nested='allow'",
        policy,
        stamp.name or "unnamed",
    )
