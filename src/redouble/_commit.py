"""The engine's page about streams: what has been handed out is never taken back.

Rule 1: until its first item a stream is a call like any other; `_run` decides.
Rule 2: with the first item the attempt is the one. Limits end there, the budget is credited there, and
        a later error passes through: trying again would hand out the same items twice.
        Who limits more than that says so, and that a limit has ended it (`limit`), itself.
"""

from __future__ import annotations

from redouble._failures.verdict import CUT
from redouble._run import Run
from redouble._state import State
from redouble.errors import Reason

__all__ = ["Committing"]

COMMITTED, TIMEOUT = Reason.committed, Reason.timeout
INFINITY = float("inf")


class Committing(Run):
    """The run of one stream.

    Its driver says when it is ``committed``, about to hand out the first item; and that it is ``credited`` if
    it begins with a failure after items that another run has handed out.
    """

    committed = False
    credited = False

    def returned(self, value: object, now: float) -> float | None:  # noqa: ARG002  an item is the caller's
        """Take in that an attempt gave a first item, or came to its end without one."""
        if self.now < now < INFINITY:
            self.now = now
        if self.policy.budget is not None:
            self.policy.budget.credit(self.granted, self.budget_time())
        self.ok = True
        return None

    def ended(self, now: float) -> None:
        """Take in that the stream came to its end, or was closed."""
        Run.returned(self, None, now)

    def succeed(self, error: Exception | None) -> float | None:
        """End well; what was committed was credited then."""
        if not (self.committed or self.credited):
            return State.succeed(self, error)
        self.ok = True
        if self.tell is not None:
            self.tell(self, "success", error, None)
        return None

    def decide(self, error: Exception | None) -> float | None:
        """Try again until something was handed out; after that, give up whatever the verdict."""
        if not self.committed:
            return Run.decide(self, error)
        self.ok = False
        if self.policy._counts is not None:
            self.policy._counts.failures += 1
        if self.policy.budget is not None:
            self.policy.budget.failed(self.kind(error), self.budget_time())
        if self.tell is not None:
            self.tell(self, "failure", error, None)
        return self.over(TIMEOUT if self.verdict is CUT else COMMITTED, error)
