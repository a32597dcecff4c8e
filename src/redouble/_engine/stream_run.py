"""The engine for streams: a run that its first item commits to its attempt.

Rule 1: until its first item a stream is a call like any other.
Rule 2: the first item commits the stream to its attempt. Limits end there, the budget is credited there,
        and a later error is raised to the consumer: another attempt would yield the same items twice.
        A caller that limits more than the first item sets `limit` itself when that limit ends the stream.
"""

from __future__ import annotations

from typing import Any

from redouble._engine.run import Run
from redouble._engine.run_state import RunState
from redouble._failures.verdict import CANCELLED_BY_LIMIT
from redouble.errors import Reason

INFINITY = float("inf")
COMMITTED, TIMEOUT = Reason.committed, Reason.timeout


class StreamRun(Run):
    """The run of one stream.

    Its driver sets ``committed`` before it yields the first item, and ``credited`` if the run begins with a
    failure after items that another run has yielded.
    """

    committed = False
    credited = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tracked = True  # `track_failure` decides

    def returned(self, value: object, now: float) -> float | None:  # noqa: ARG002  an item is the caller's
        """Record that an attempt yielded a first item, or ended without one."""
        if self.now < now < INFINITY:
            self.now = now
        if self.policy.budget is not None:
            self.policy.budget.credit(self.spent_grant, self.budget_time())
        self.ok = True
        return None

    def ended(self, now: float) -> None:
        """Record that the stream ended or was closed."""
        Run.returned(self, None, now)

    def succeed(self, error: Exception | None) -> float | None:
        """End the stream with success; credit the budget unless that was done at the first item."""
        if not (self.committed or self.credited):
            return RunState.succeed(self, error)
        self.ok = True
        if self.emit is not None:
            self.emit(self, "success", error, None)
        return None

    def track_failure(self, error: Exception | None) -> Reason | None:
        """Give up whatever the verdict if the first item was yielded; the consumer has it."""
        if not self.committed:
            return super().track_failure(error)
        self.ok = False
        if self.policy._counts is not None:
            self.policy._counts.add(failures=1)
        if self.policy.budget is not None:
            self.policy.budget.failed(self.kind(error), self.budget_time())
        if self.emit is not None:
            self.emit(self, "failure", error, None)
        return TIMEOUT if self.verdict is CANCELLED_BY_LIMIT else COMMITTED
