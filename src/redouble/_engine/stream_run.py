"""The engine for streams: a run that its first item commits to its attempt.

Rule 1: until its first item a stream is a call like any other.
Rule 2: the first item commits the stream to its attempt. Limits end there, the budget is credited there,
        and a later error is raised to the consumer: another attempt would yield the same items twice.
        A caller that limits more than the first item sets `limit` itself when that limit ends the stream.
"""

from __future__ import annotations

from typing import Any

from redouble._engine.run import Run
from redouble._failures.verdict import CANCELLED_BY_LIMIT
from redouble.errors import Reason

INFINITY = float("inf")
COMMITTED, TIMEOUT = Reason.committed, Reason.timeout


class StreamRun(Run):
    """The run of one stream.

    Its driver sets ``committed`` before it yields the first item. It sets ``credited`` if the run begins with
    a failure after items that another run has yielded, and been credited for.
    """

    committed = False
    credited = False
    ends_with_first_item = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tracked = True  # `track_failure` decides

    def returned(self, value: object, now: float) -> float | None:  # noqa: ARG002  an item is the caller's
        """Record that an attempt yielded a first item, or ended without one."""
        if self.now < now < INFINITY:
            self.now = now
        super().credit()
        self.credited = self.ok = True
        return None

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until the earliest limit; infinity after the first item: limits end there."""
        return INFINITY if self.committed else super().left(soft=soft)

    def ended(self, now: float) -> None:
        """Record that the stream ended or was closed."""
        Run.returned(self, None, now)

    def credit(self) -> None:
        """Credit the budget for the end of the stream, unless that was done at the first item."""
        if not self.credited:
            super().credit()

    def track_failure(self, error: Exception | None) -> Reason | None:
        """Give up whatever the verdict if the first item was yielded; the consumer has it."""
        self.ok = False
        super().track_failure(error)
        if not self.committed:
            return None
        return TIMEOUT if self.verdict is CANCELLED_BY_LIMIT else COMMITTED
