"""The results of a run: the note on its error, the report, the outcome, the error that replaces another.

They are built from a run that has ended, or when a caller asks for them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from redouble import errors
from redouble._engine.report import PREFIX, AttemptRecord, Outcome, Report, annotate
from redouble._failures.transient import kind_of
from redouble._failures.verdict import CANCELLED_BY_LIMIT, Verdict
from redouble.errors import Reason

if TYPE_CHECKING:
    from redouble._engine.run_state import RunState

T = TypeVar("T")

# The record of an attempt in a run: verdict, type and text of the error, start, end.
Entry: TypeAlias = tuple[Verdict, type[Exception] | None, str | None, float, float]

STOPPED, TIMEOUT, ATTEMPTS = Reason.stopped, Reason.timeout, Reason.attempts
NO_TIME = 0.05  # seconds: less is "0.0 s" in a summary

WAIT_FAILED = "the wait for the next attempt was interrupted"
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
        "its worker is still running: let it check redouble.cancelled(), or use a process",
        errors.Stopped,
    ),
}


def note_of(run: RunState) -> str:
    """Return the note on the error that the run gave up on."""
    if run.reason is ATTEMPTS and run.now - run.started < NO_TIME:
        return _note_of_fast_failures(run.attempt)  # formatting it takes longer than a failed attempt
    return PREFIX + summary_of(run)


@lru_cache(maxsize=64)
def _note_of_fast_failures(attempts: int) -> str:
    return PREFIX + summary(attempts, 0.0, OUTCOMES[ATTEMPTS][0])


def summary_of(run: RunState) -> str:
    """Return one line that summarises the run, for notes and messages."""
    words = WAIT_FAILED if run.wait_failed else OUTCOMES[run.reason or STOPPED][0]
    if run.reason is TIMEOUT and run.limiting_limit() == "deadline":
        words = "the deadline has passed" if run.now >= run.deadline else "no time left before the deadline"
    if run.verdict.after is not None and _hint_exceeds_limit(run, run.verdict.after):
        words = f"asked to wait {run.verdict.after:g} s"
    return summary(run.attempt, run.now - run.started, words)


def summary(attempts: int, elapsed: float, words: str) -> str:
    """Return one line that summarises a call."""
    return f"after {attempts} attempt{'' if attempts == 1 else 's'} in {elapsed:.1f} s ({words})"


def _hint_exceeds_limit(run: RunState, hint: float) -> bool:
    too_late = run.reason is Reason.timeout and not run.now + hint < run.until
    return run.reason is Reason.hint_too_long or (too_late and run.policy.hints.mode != "ignore")


def error_of(run: RunState, last: Exception | None) -> errors.RedoubleError:
    """Return the error of this package to raise: no error of the caller's exists, or `wrap` asks for ours."""
    reason = run.reason or STOPPED
    refused = last is None and run.attempt > 0 and _last_result_was_refused(run)
    message = f"gave up {summary_of(run)}"
    if run.verdict is CANCELLED_BY_LIMIT:  # the error of the attempt before it is the informative one
        last, run.last = run.last, None
    text = _last_error_text(run)
    if last is not None and text is not None:
        message += f": {text}"
    error: errors.RedoubleError
    if run.stuck and reason is Reason.worker_still_running:
        error = errors.WorkerStillRunning(message)
    else:
        kind = errors.NotAccepted if refused else OUTCOMES[reason][1]
        error = kind(message, reason=reason, report=report_of(run), last=run.value if refused else last)
    error.__cause__ = last
    annotate(error, run, None)
    return error


def _last_result_was_refused(run: RunState) -> bool:
    """Return True if the last attempt returned; False if it failed, and no error of it is left."""
    return bool(run.records) and run.records[(len(run.records) - 1) // 2 * 2][1] is None


def _last_error_text(run: RunState) -> str | None:
    """Return type and text of the last error, without that of an attempt cancelled by the call's limit."""
    for verdict, kind, text, *_ in reversed(run.records[::2]):
        if kind is not None and verdict is not CANCELLED_BY_LIMIT:
            return f"{kind.__name__}: {_shown(text)}"
    return None


def report_of(run: RunState) -> Report:
    """Build the report."""
    ended = run.records[::2]
    delays = [*run.records[1::2], None]
    first = run.attempt - len(ended) + 1  # only the last attempts of a very long call are recorded
    texts: dict[str, str] = {}  # most attempts of a call fail with the same text
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
            _record(run, number, entry, delay, texts)
            for number, (entry, delay) in enumerate(zip(ended, delays, strict=False), first)
        ),
        usage=dict(run.usage),
    )


def _record(
    run: RunState, number: int, entry: Entry, delay: float | None, texts: dict[str, str]
) -> AttemptRecord:
    """Return the public record of one attempt."""
    verdict, error, text, started, ended = entry
    succeeded = run.ok and number == run.attempt
    name = None if error is None else f"{error.__module__}.{error.__qualname__}".removeprefix("builtins.")
    if text is not None:
        text = str.__str__(text)  # of a subclass, whose hash may raise
        text = texts[text] if text in texts else texts.setdefault(text, _shown(text))
    kind = None if succeeded else verdict.kind or kind_of(error)
    hint = None if succeeded else verdict.after
    return AttemptRecord(number, kind, name, text, started - run.started, ended - started, delay, hint)


def _shown(text: str) -> str:
    """Return the text of an error as it may be written: without secrets, on one line."""
    from redouble._redaction.rendering import shown  # noqa: PLC0415  imported only when a report is read

    return shown(text)


def outcome_of(run: RunState, value: T | None, error: Exception | None) -> Outcome[T]:
    """Return the outcome; an error that the run did not record (a backoff's) means `stopped`."""
    if not run.ok and run.reason is None:
        run.reason = STOPPED
    return Outcome(run.ok, value, error, report_of(run))


def return_report(report: Report) -> Report:
    """Return the report: a pickled run is unpickled as its report."""
    return report
