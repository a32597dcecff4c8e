"""Records of calls without a `Run`: a call succeeded at once, or failed after part of its body was read."""

from __future__ import annotations

from typing import Any

from redouble._clients.plan import Plan
from redouble._engine.report import PREFIX, AttemptRecord, Report, RetryVeto, annotate
from redouble._engine.run_results import OUTCOMES, return_report
from redouble._failures.transient import kind_of, transient
from redouble._failures.verdict import Kind
from redouble._telemetry.redact import redacted
from redouble.errors import Reason

__all__ = ["CallRecord", "LazyCallRecord"]


class CallRecord(RetryVeto):
    """The stamp of a call without a `Run`: its attempts, duration and last error."""

    __slots__ = ("_error_facts", "_labels", "attempt", "elapsed", "name", "reason")

    reason: Reason | None  # type: ignore[assignment]

    def __init__(
        self,
        plan: Plan,
        reason: Reason | None,
        attempts: int,
        elapsed: float,
        error: Exception | None = None,
    ) -> None:
        self.name, self._labels = plan.name, dict(plan.labels)
        self.reason = reason
        self.attempt = attempts
        self.elapsed = elapsed
        self._error_facts: tuple[Kind | None, str | None, str | None] = (
            (None, None, None) if error is None else _describe_error(error)
        )

    def attach_to(self, error: Exception) -> None:
        """Stamp an error with this record and add a note."""
        plural = "" if self.attempt == 1 else "s"
        words = OUTCOMES[self.reason or Reason.stopped][0]
        annotate(
            error, self, f"{PREFIX}after {self.attempt} attempt{plural} in {self.elapsed:.1f} s ({words})"
        )

    def report(self) -> Report:
        """Build the report."""
        kind, name, text = self._error_facts
        record = AttemptRecord(self.attempt, kind, name, text, 0.0, self.elapsed, None, None)
        return Report(
            self.reason,
            self.attempt,
            self.elapsed,
            self.elapsed,
            name=self.name,
            labels=self._labels,
            history=(record,),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return return_report, (self.report(),)


class LazyCallRecord(RetryVeto):
    """The stamp of a call that succeeded at once. It keeps only the times; the report is built on request."""

    __slots__ = ("_ended", "_plan", "_started")

    def __init__(self, plan: Plan, started: float, ended: float) -> None:
        self._plan, self._started, self._ended = plan, started, ended

    def report(self) -> Report:
        """Build the report."""
        return CallRecord(self._plan, None, 1, self._ended - self._started).report()

    def __reduce__(self) -> tuple[Any, ...]:
        return return_report, (self.report(),)


def _describe_error(error: Exception) -> tuple[Kind, str, str]:
    verdict = transient(error)
    kind = None if verdict is None else verdict.kind
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return kind or kind_of(type(error)), name, redacted(str(error))
