"""What comes out of a call: the note, the report, the outcome, an error of our own.

Built from a run when it is over, or when somebody asks. Whether to give up was decided before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from redouble import errors
from redouble._engine.report import AttemptRecord, Outcome, Report, annotate
from redouble._failures.transient import kind_of
from redouble._failures.verdict import CUT, Verdict
from redouble.errors import Reason

if TYPE_CHECKING:
    from redouble._engine.state import RunState

__all__ = ["MAX_RECORDS", "error_of", "itself", "outcome_of", "report_of", "summary_of"]


T = TypeVar("T")

# What a run keeps of an attempt: the verdict, the error's type and text, when it started, how long it took.
Entry: TypeAlias = tuple[Verdict, type[Exception] | None, str | None, float, float]

# How many attempts a report remembers: a policy may go on for days.
MAX_RECORDS = 1000

STOPPED = Reason.stopped
INFINITY = float("inf")

OUTCOMES: dict[Reason, tuple[str, type[errors.RetryError]]] = {
    Reason.attempts: ("attempts exhausted", errors.AttemptsExhausted),
    Reason.backoff_ended: ("no delays left", errors.AttemptsExhausted),
    Reason.budget: ("retry budget exhausted", errors.BudgetExhausted),
    Reason.timeout: ("no time left", errors.DeadlineExceeded),
    Reason.work_timeout: ("no work time left", errors.DeadlineExceeded),
    Reason.hint_too_long: ("asked to wait too long", errors.DeadlineExceeded),
    Reason.stopped: ("not worth retrying", errors.Stopped),
    Reason.committed: ("items had been handed out", errors.Stopped),
    Reason.not_replayable: ("its body cannot be sent again", errors.Stopped),
    Reason.nested: ("an inner policy gave up already", errors.Stopped),
    Reason.worker_still_running: (
        "its worker is still running, which could ask redouble.cancelled() or be a process",
        errors.Stopped,
    ),
}


def summary_of(run: RunState) -> str:
    """Say it in a line: for notes and messages."""
    words = OUTCOMES[run.reason or STOPPED][0]
    if run.reason is Reason.timeout and run.limiting_limit() == "deadline":
        words = "the deadline has passed" if run.now >= run.deadline else "no time left before the deadline"
    if run.verdict.after is not None and _hint_exceeds_limit(run, run.verdict.after):
        words = f"asked to wait {run.verdict.after:g} s"
    plural = "" if run.attempt == 1 else "s"
    return f"after {run.attempt} attempt{plural} in {run.now - run.started:.1f} s ({words})"


def _hint_exceeds_limit(run: RunState, hint: float) -> bool:
    too_late = run.reason is Reason.timeout and not run.now + hint < run.until
    return run.reason is Reason.hint_too_long or (too_late and run.policy.hints.mode != "ignore")


def error_of(run: RunState, last: Exception | None) -> errors.RedoubleError:
    """Make an error of our own: there is nothing of the caller's to raise, or ours was asked for."""
    reason = run.reason or STOPPED
    refused = last is None and run.attempt > 0
    message = f"gave up {summary_of(run)}"
    if run.verdict is CUT:  # that its attempt was cut says nothing new; what went wrong before does
        last, run.last = run.last, None
    said = _last_error_text(run)
    if last is not None and said is not None:
        message += f": {said}"
    error: errors.RedoubleError
    if run.stuck and reason is Reason.worker_still_running:
        error = errors.WorkerStillRunning(message)
    else:
        kind = errors.NotAccepted if refused else OUTCOMES[reason][1]
        error = kind(message, reason=reason, report=report_of(run), last=run.value if refused else last)
    error.__cause__ = last
    annotate(error, run, None)
    return error


def _last_error_text(run: RunState) -> str | None:
    """Spell the last error, other than that an attempt was cut because the time of the call was up."""
    for verdict, kind, text, *_ in reversed(run.records[::2]):
        if kind is not None and verdict is not CUT:
            return f"{kind.__name__}: {_redacted(text)}"
    return None


def report_of(run: RunState) -> Report:
    """Build the report."""
    ended = run.records[::2]
    delays = [*run.records[1::2], None]
    first = run.attempt - len(ended) + 1  # of a very long call only the end is remembered
    return Report(
        reason=run.reason,
        attempts=run.attempt,
        elapsed=run.now - run.started,
        work_elapsed=run.work,
        limit=run.limiting_limit(),
        workers_left=run.workers_left,
        name=run.name,
        labels=dict(run.policy.labels),
        history=tuple(
            _record(run, number, entry, delay)
            for number, (entry, delay) in enumerate(zip(ended, delays, strict=False), first)
        ),
    )


def _record(run: RunState, number: int, entry: Entry, delay: float | None) -> AttemptRecord:
    """Build one record of the history from what the run kept."""
    verdict, error, text, started, elapsed = entry
    name = None if error is None else f"{error.__module__}.{error.__qualname__}".removeprefix("builtins.")
    text = None if text is None else _redacted(text)
    if run.ok and number == run.attempt:
        return AttemptRecord(number, None, name, text, started - run.started, elapsed, None, None)
    return AttemptRecord(
        number,
        verdict.kind or kind_of(error),
        name,
        text,
        started - run.started,
        elapsed,
        delay,
        verdict.after,
    )


def _redacted(text: str) -> str:
    """Hide secrets in addresses: what an HTTP client says of its errors often has some."""
    from redouble._telemetry.redact import redacted  # noqa: PLC0415  when somebody looks

    return redacted(text)


def outcome_of(run: RunState, value: T | None, error: Exception | None) -> Outcome[T]:
    """Build the outcome; an error that the run did not expect (a budget's, a backoff's) ends it too."""
    if not run.ok and run.reason is None:
        run.reason = STOPPED
    return Outcome(run.ok, value, error, report_of(run))


def itself(report: Report) -> Report:
    """Return the report: what a pickled run is rebuilt as."""
    return report
