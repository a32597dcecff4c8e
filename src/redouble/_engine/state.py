"""What a run knows: the bookkeeping of one logical call, and how it ends.

It counts, notes, tells and hands back. It decides nothing; that is `_run`.

The engine's page about limits: how long an attempt may take, and whose limit that is.

Rule 1: of all limits the shortest counts, and on a tie the attempt's own.
Rule 2: the attempt's own makes a failure like any other. Those of work, total and deadline end the call.
Rule 3: what is cut is the drivers' business; here is only said when, and noted that it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from redouble._engine.budget import Grant
from redouble._engine.nested import bears_exhaustion
from redouble._engine.options import Options
from redouble._engine.outcome import itself, report_of, summary_of
from redouble._engine.report import PREFIX, Report, annotate
from redouble._failures.transient import kind_of
from redouble._failures.verdict import CUT, RETRY, Ended, Kind, Verdict
from redouble._runtime.clock import SYSTEM, Clock
from redouble._telemetry.events import What
from redouble.errors import AttemptTimeout, Limit, Reason

__all__ = ["Emitter", "LimitedState", "RunState"]


STOPPED, WORKER_STILL_RUNNING = Reason.stopped, Reason.worker_still_running
INFINITY = float("inf")


class Emitter(Protocol):
    """Tells the observers what happened."""

    def __call__(self, run: RunState, what: What, error: Exception | None, delay: float | None, /) -> None:
        """Tell."""
        ...


class RunState:
    """The state of one logical call."""

    # What few calls need: written by those that do, into a dict that the others do not have.
    deadline: float = INFINITY  # when the deadline of the context is, by the clock of this call
    bound: Limit = "attempt"  # whose limit the running attempt has
    seconds: float = INFINITY  # and what it is
    tied: bool = False  # whether another one is the same
    workers_left: int = 0
    first_item: float | None = None  # how long a stream took to it
    earlier: float = 0.0  # seconds that a stream had gone on for before this run
    underway: float = 0.0  # and that its attempt had

    # fmt: off
    __slots__ = (
        "__dict__", "attempt", "attempt_started", "by_kind", "cancelling", "delays", "earliest", "exhausted",
        "granted", "instead", "last", "limit", "most", "name", "now", "ok", "pending", "policy", "reading",
        "reason", "records", "stalled", "started", "stuck", "tell", "took", "until", "value", "verdict",
        "work",
    )
    # fmt: on

    def __init__(
        self,
        policy: Options,
        started: float,
        name: str = "",
        reading: Callable[[], float] | None = None,
        cancelling: Callable[[BaseException | None], bool] | None = None,
        emit: Emitter | None = None,
        attempt: int = 1,
    ) -> None:
        """Begin with attempt 1 already running; ``attempt=0`` for a driver that calls `start`."""
        if not -INFINITY < started < INFINITY:  # a broken clock may cost retries, never an endless loop
            started = 0.0
        self.policy = policy
        self.name = name
        self.reading: Callable[[], float] = reading or (lambda: started)
        self.cancelling = cancelling
        self.tell = emit
        self.started: float = started
        self.attempt_started: float = started
        self.now: float = started
        self.earliest: float = started
        self.until = started + policy._limit
        self.attempt: int = attempt
        self.most = policy.attempts
        self.took: float = 0.0
        self.work: float = 0.0
        self.delays: Iterator[float] | None = None
        self.by_kind: dict[Kind | None, Iterator[float]] | None = None
        self.records: list[Any] = []  # what each attempt did, each followed by the delay after it
        self.verdict: Verdict = RETRY
        self.last: Exception | None = None
        self.value: object = None
        self.reason: Reason | None = None
        self.ok = False
        self.limit: Limit | None = None  # which one has cut the last attempt
        self.stuck = False  # its worker has not stopped, and none may run beside it
        self.instead = False  # an error of our own comes out, and not the operation's
        self.exhausted = False  # an inner policy's budget was
        self.unspent_grant: Grant | None = None
        self.spent_grant: Grant | None = None
        self.stalled = 0
        if not attempt and policy.budget is not None:
            policy.budget.start(self.budget_time())

    # ------------------------------------------------------------------------ the end

    def succeed(self, error: Exception | None) -> float | None:
        """End well: with a result, or with an exception that was accepted."""
        if self.policy.budget is not None:
            self.policy.budget.credit(self.spent_grant, self.budget_time())
        self.ok = True
        if self.tell is not None:
            self.tell(self, "success", error, None)
        return None

    def give_up(self, reason: Reason, error: Exception | None) -> float | None:
        """End badly: say so on the error, hand back what was not used, and answer None: no delay."""
        self.reason = reason
        if self.policy._counts is not None:
            self.policy._counts.given_up += 1
        if self.verdict is not CUT:
            self.last = None  # it may be this very error, which is about to carry this run
        if reason is WORKER_STILL_RUNNING:
            self.instead = self.stuck  # else it is an inner layer's, and says so already
            self.workers_left = self.workers_left or 1
        else:
            self.instead = self.policy.wrap or self.verdict is CUT
        if self.unspent_grant is not None:
            self.refund()
        if self.cancelling is not None:
            self.cancelling(error)  # a failed task group leaves something behind that is taken back by this
        if error is not None:
            first_stop = self.attempt == 1 and reason is STOPPED
            replaced = annotate(error, self, None if first_stop else PREFIX + summary_of(self))
            self.exhausted = replaced is not None and bears_exhaustion(replaced, self)
        if self.tell is not None:
            self.tell(self, "give_up", error, None)
        return None

    def refund(self) -> None:
        """Hand back a grant whose retry never started, however the call ended."""
        if self.unspent_grant is not None and self.policy.budget is not None:
            grant, self.unspent_grant = self.unspent_grant, None
            self.policy.budget.refund(grant, self.budget_time())

    def budget_time(self) -> float:
        """Tell the time as a budget counts it: by one clock for all who share it, though Trio has its own."""
        return self.now if self.cancelling is None or self.clock is not SYSTEM else SYSTEM.now()

    @property
    def clock(self) -> Clock:
        """Whose time this call goes by."""
        return self.policy.clock

    def limiting_limit(self) -> Limit | None:
        """Say which limit it was: that ended the call, or else that cut the last attempt."""
        if self.tied and self.limit == "attempt":
            return self.limit  # on a tie, the attempt's own
        if self.reason is Reason.work_timeout:
            return "work"
        if self.reason is not Reason.timeout or self.verdict is CUT or self.until == INFINITY:
            return self.limit
        if self.until < self.started + self.policy._limit:
            return "deadline"
        return "total" if self.policy._total == self.policy._limit else "give_up_after"

    def report(self) -> Report:
        """Build the report."""
        return report_of(self)

    def __reduce__(self) -> tuple[Callable[[Report], Report], tuple[Report]]:
        # An error carries its run as a stamp; on the way to another process it becomes its report.
        return (itself, (self.report(),))

    # -------------------------------------------------------------------- the details

    def begin_attempt(self, now: float) -> None:
        """Learn that the first attempt began later than the call, since observers were told of it before."""
        if self.started <= now < INFINITY:
            self.attempt_started = now

    def refresh_now(self) -> float:
        """Learn how late it is. Time goes forwards only: for NaN, infinity or a step back it stands still."""
        if self.now < (now := self.reading()) < INFINITY:
            self.now, self.stalled = now, 0
        return self.now

    def kind(self, error: Exception | None) -> Kind:
        """Tell the kind of failure: the verdict's, or what the error's type says."""
        return self.verdict.kind or kind_of(None if error is None else type(error))

    def shown(self, error: Exception | None, value: object = None) -> Ended:
        """Show a judge how the attempt ended."""
        elapsed, labels = self.now - self.started, self.policy.labels
        return Ended(self.attempt, error, value, elapsed, self.took, self.work, labels)


EXPIRED: dict[Limit, str] = {
    "attempt": "attempt {} took longer than {:g} s",
    "work": "attempt {} was cut after {:g} s: no work time was left",
    "total": "attempt {} was cut after {:g} s: the call's timeout",
    "deadline": "attempt {} was cut after {:g} s: the deadline",
}


class LimitedState(RunState):
    """The limits of one logical call."""

    def end_within(self, seconds: float) -> None:
        """Take in that there is a deadline, so many seconds from now."""
        self.deadline = self.refresh_now() + seconds
        self.until = min(self.until, self.deadline)

    def time_left(self, *, own: bool = True) -> float:
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

    def record_return(self, *, late: bool) -> None:
        """Take in that the running attempt is about to return: ``late`` if it was cut, or by the clock."""
        if late or self.refresh_now() - self.attempt_started >= self.seconds:
            self.limit = self.bound

    def leave_worker(self, *, alone: bool) -> None:
        """Take in that the worker of the running attempt goes on; ``alone``: no other may run beside it."""
        self.workers_left += 1
        self.stuck = alone
