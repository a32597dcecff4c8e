"""The engine's page about limits: how long an attempt may take, and whose limit that is.

Rule 1: of all limits the shortest counts, and on a tie the attempt's own.
Rule 2: the attempt's own makes a failure like any other. Those of work, total and deadline end the call.
Rule 3: what is cut is the drivers' business; here is only said when, and noted that it happened.
"""

from __future__ import annotations

from redouble._state import State
from redouble.errors import AttemptTimeout, Limit

__all__ = ["Limits"]

INFINITY = float("inf")

EXPIRED: dict[Limit, str] = {
    "attempt": "attempt {} took longer than {:g} s",
    "work": "attempt {} was cut after {:g} s: no work time was left",
    "total": "attempt {} was cut after {:g} s: the call's timeout",
    "deadline": "attempt {} was cut after {:g} s: the deadline",
}


class Limits(State):
    """The limits of one logical call."""

    def end_within(self, seconds: float) -> None:
        """Take in that there is a deadline, so many seconds from now."""
        self.deadline = self.read() + seconds
        self.until = min(self.until, self.deadline)

    def room(self, *, own: bool = True) -> float:
        """Say how long the attempt may take from now on, and note whose limit that is.

        On a tie it is the first of these. ``own=False``: it has not begun yet, so its own does not count.
        """
        policy, now = self.policy, self.now
        shortest = policy._attempt_limit if own else INFINITY
        self.bound, self.tied = "attempt", False
        others: tuple[tuple[Limit, float], ...] = (
            ("work", policy._work_limit - self.work),
            ("total", policy._total - (now - self.started)),
            ("deadline", self.deadline - now),
        )
        for name, rest in others:
            if rest < shortest:
                self.bound, shortest, self.tied = name, rest, False
            elif rest == shortest:
                self.tied = True
        if own:
            self.attempt_started = now
        self.seconds = shortest
        return max(0.0, shortest)

    def expired(self) -> AttemptTimeout:
        """Take in that the running attempt was cut; return the error that it failed with."""
        self.limit = self.bound
        took, number = max(0.0, self.seconds), self.attempt
        return AttemptTimeout(EXPIRED[self.bound].format(number, took), limit=self.bound, seconds=took)

    def returns(self, *, late: bool) -> None:
        """Take in that the running attempt is about to return: ``late`` if it was cut, or by the clock."""
        if late or self.read() - self.attempt_started >= self.seconds:
            self.limit = self.bound

    def leave_worker(self, *, alone: bool) -> None:
        """Take in that the worker of the running attempt goes on; ``alone``: no other may run beside it."""
        self.workers_left += 1
        self.stuck = alone
