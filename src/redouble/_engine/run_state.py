"""The state of one logical call: counters, records, limits, and the two ways in which it ends.

Whether to retry is decided by the subclass `Run`. Rules for the limits of an attempt:

Rule 1: the shortest limit applies; on a tie, the attempt's own.
Rule 2: exceeding the attempt's own limit is a failure like any other. Exceeding the limit of work, of the
        whole call or of the deadline ends the call.
Rule 3: drivers interrupt attempts. The state computes when, and records that it happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redouble._engine.nested import carries_exhausted_budget
from redouble._engine.options import MAX_TEXTS, SHORT_TEXT, Options
from redouble._engine.report import Report, ResendGuard, annotate
from redouble._engine.run_results import Entry, note_of, report_of, return_report
from redouble._failures.transient import kind_of
from redouble._failures.verdict import CANCELLED_BY_LIMIT, RETRY, Ended, Kind, Verdict
from redouble._internal.logger import call_hook
from redouble._redaction.rendering import shortened
from redouble._runtime.ambient import CREDITED_CALL, CreditedCall, credited_call
from redouble._runtime.clock import SYSTEM, Clock
from redouble._runtime.deadline import time_left_around
from redouble._telemetry.events import NO_USAGE, What
from redouble.errors import AttemptTimeout, Limit, Reason

if TYPE_CHECKING:
    from redouble._engine.budgets.budget_protocol import Grant
    from redouble._engine.budgets.retries_in_flight import CallInFlight

STOPPED, WORKER_STILL_RUNNING = Reason.stopped, Reason.worker_still_running
INFINITY = float("inf")

EXPIRED: dict[Limit, str] = {
    "attempt": "attempt {} took longer than {:g} s",
    "work": "attempt {} was cut after {:g} s: no work time was left",
    "total": "attempt {} was cut after {:g} s: the call's timeout",
    "deadline": "attempt {} was cut after {:g} s: the deadline",
}


# Emits an event of a run to its observers: the run, what happened, its error and the delay that follows.
Emitter: TypeAlias = Callable[["RunState", What, Exception | None, float | None], None]


def no_clock() -> float:
    """Return minus infinity, which `refresh_now` ignores: the only times are those that the driver passes."""
    return -INFINITY


class RunState:
    """The state of one logical call."""

    # Attributes that few calls need. They are class defaults: only a call that sets one has a `__dict__`.
    deadline: float = INFINITY  # time of the context's deadline, by the clock of this call
    binding_limit: Limit = "attempt"  # which limit of the running attempt is the shortest
    binding_seconds: float = INFINITY  # the length of that limit
    limits_tied: bool = False  # True if another limit has the same length
    workers_left: int = 0
    stuck: bool = False  # True if the attempt's worker has not stopped and no other may run beside it
    stalled: int = 0  # attempts that failed at one moment, in a call without a limit of attempts
    moved: float = -INFINITY  # that moment
    delays_by_kind: dict[Kind | None, Iterator[float]] | None = None
    worked: float = 0.0  # the duration of the first ``counted`` entries of the records, see `work`
    counted: int = 0
    texts_length: int = 0  # the characters of the long texts in the records
    value: object = None  # the result of the last attempt, if it returned
    ends_with_first_item: bool = False  # True if its limits end with the first item of a stream
    ok: bool = False
    replaces_error: bool = False  # True if the driver raises `error_of` instead of the operation's error
    refused_delay: float | None = None  # the delay that a refused retry would have had
    wait_failed: bool = False  # True if the wait before an attempt has raised
    repeated: bool = False  # True if the last two attempts failed with one and the same exception instance
    exhausted: bool = False  # True if the budget of an inner policy was exhausted
    credited_call: CreditedCall | None = None  # what credits the budget: this call, or one around it
    credits: bool = True  # False if it is one around it, or if the policy never credits its budget
    in_flight: CallInFlight | None = None  # this call, if its budget limits the retries in flight
    guard: ResendGuard | None = None  # of one of our clients, which decides whether a request is sent again
    first_item: float | None = None  # seconds until the first item of a stream
    elapsed_before: float = 0.0  # seconds from the start of a stream to the start of this run
    attempt_elapsed_before: float = 0.0  # seconds that the stream's attempt had taken before this run
    usage: Mapping[str, float] = NO_USAGE  # what the operation has used so far, such as tokens

    # fmt: off
    __slots__ = (
        "__dict__", "attempt", "attempt_started", "cancelling", "delays", "earliest", "emit",
        "last", "limit", "max_attempts", "name", "now", "policy", "read_clock", "reason", "records",
        "spent_grant", "started", "tracked", "unspent_grant", "until", "verdict",
    )
    # fmt: on

    spent_grant: Grant | None  # these two exist only if there is a budget
    unspent_grant: Grant | None

    def __init__(
        self,
        policy: Options,
        started: float,
        name: str = "",
        read_clock: Callable[[], float] = no_clock,
        cancelling: Callable[[BaseException | None], bool] | None = None,
        emit: Emitter | None = None,
        attempt: int = 1,
    ) -> None:
        """Begin with attempt 1 running; ``attempt=0`` for a driver that calls `Run.start` before each one.

        ``read_clock`` reads the clock of the call. ``cancelling``, in async code only, returns True if the
        task is being cancelled.
        """
        if not -INFINITY < started < INFINITY:  # a broken clock may cost retries, never an endless loop
            started = 0.0
        self.policy = policy
        self.name = name
        self.read_clock = read_clock
        self.cancelling = cancelling
        self.emit = emit
        self.started: float = started
        self.attempt_started: float = started
        self.now: float = started
        self.earliest: float = started
        self.until = started + policy._limit
        self.attempt: int = attempt
        self.max_attempts = policy._max_attempts
        self.delays: Iterator[float] | None = None
        self.records: list[Any] = []  # a `run_results.Entry` for each attempt, each followed by its delay
        self.verdict: Verdict = RETRY
        self.last: Exception | None = None
        self.reason: Reason | None = None
        self.limit: Limit | None = None  # the limit that the last attempt exceeded
        # True if more than the rules, the attempts and the time concern this call: see `Options._tracked`
        self.tracked: bool = emit is not None or policy._tracked
        if policy.budget is not None:
            self.unspent_grant = self.spent_grant = None
            self.credited_call = credited_call(policy.budget)
            self.credits = policy._credits and self.credited_call is None
            if policy._in_flight is not None:
                self.in_flight = policy._in_flight.call(counted=self.credits)
            if self.credits and not attempt:
                call_hook(policy.budget, "start", self.budget_time())
        if policy.limits_each_call:
            self.max_attempts = policy.attempts_of_call(self.budget_time())

    # ------------------------------------------------------------------------ the end

    def succeed(self, error: Exception | None) -> float | None:
        """End the call with success: with a result, or with an exception that a rule accepted."""
        self.credit()
        self.ok = True
        if self.emit is not None:
            self.emit(self, "success", error, None)
        return None

    def credit(self) -> None:
        """Credit the budget for a success: once for each logical call, with the grant of its last retry."""
        if self.policy.budget is None:
            return
        call, grant = self.credited_call, self.spent_grant
        if call is not None:
            if not self.credits and call[0] is not None:
                call[1] = grant or call[1]  # the call around this one credits the budget
                return
            grant = call[1] or grant
        credit = partial(call_hook, self.policy.budget, "credit", grant, self.budget_time())
        if self.guard is None:
            credit()
        else:
            self.guard.succeeded(credit)

    def begin_credited_call(self) -> CreditedCall | None:
        """Return what `CREDITED_CALL` holds while a driver makes this call; None: the one around it does.

        The driver sets it, and ends and restores it. A task that the call has started, and that runs on,
        credits the budget itself then.
        """
        if not self.credits:
            return None
        call, around = self.credited_call, CREDITED_CALL.get()
        if call is None or call is not around:
            self.credited_call = call = [None, None if call is None else call[1], around]
        call[0] = self.policy.budget
        return call

    def give_up(self, reason: Reason, error: Exception | None) -> float | None:
        """End the call with failure: annotate the error, refund an unspent grant, return None: no delay."""
        self.reason = reason
        if self.verdict is CANCELLED_BY_LIMIT:
            self.replaces_error = True
        else:
            if error is not None and error is self.last:
                self.repeated = True
            self.last = None  # it may be this very error, which will refer to this run: a cycle
        if reason is WORKER_STILL_RUNNING:
            self.replaces_error = self.stuck  # else the worker is an inner layer's, and so is the error
            self.workers_left = self.workers_left or 1
        elif self.policy.wrap:
            self.replaces_error = True
        if self.tracked:
            if self.policy._counts is not None:
                self.policy._counts.add(given_up=1)
            self.refund()
        if self.cancelling is not None:
            self.cancelling(error)  # which undoes the cancellation request that a failed task group leaves
        if error is not None:
            first_stop = reason is STOPPED and self.attempt == 1 and not self.wait_failed
            replaced = annotate(error, self, None if first_stop else note_of(self))
            if replaced is not None and carries_exhausted_budget(replaced, error, self):
                self.exhausted = True
        if self.emit is not None:
            self.emit(self, "give_up", error, self.refused_delay)
        return None

    def refund(self) -> None:
        """Return a grant whose retry never started to the budget, however the call ended."""
        if self.policy.budget is not None and self.unspent_grant is not None:
            grant, self.unspent_grant = self.unspent_grant, None
            call_hook(self.policy.budget, "refund", grant, self.budget_time())

    def take_back_start(self) -> None:
        """Take back the start of the call, which was refused at its first attempt: it never ran."""
        budget = self.policy.budget
        take_back = getattr(type(budget), "_take_back_start", None)  # a `RetryBudget` has it
        if take_back is not None and self.credits and not self.records:
            take_back(budget)

    def budget_time(self) -> float:
        """Return the time for the budget: calls that share a budget use one clock, also under Trio."""
        return self.now if self.cancelling is None or self.clock is not SYSTEM else SYSTEM.now()

    @property
    def clock(self) -> Clock:
        """The clock that times this call."""
        return self.policy.clock

    @property
    def attempts(self) -> int | None:
        """The most attempts of this call; None for no limit."""
        return None if self.max_attempts == INFINITY else int(self.max_attempts)

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its policy."""
        return self.policy.labels

    def limiting_limit(self) -> Limit | None:
        """Return the limit that ended the call, or else the one that the last attempt exceeded."""
        if self.limits_tied and self.limit == "attempt":
            return self.limit  # on a tie, the attempt's own
        if self.reason is Reason.work_timeout:
            return "work"
        if self.reason is not Reason.timeout or self.verdict is CANCELLED_BY_LIMIT or self.until == INFINITY:
            return self.limit or self.limit_of_layer()
        if self.until < self.started + self.policy._limit:
            return "deadline"
        return "total" if self.policy._total == self.policy._limit else "give_up_after"

    def limit_of_layer(self) -> Limit | None:
        """Return "attempt" if the call gave up after a layer inside it (a `Timeout`) ended an attempt."""
        if self.reason is None or not self.records:
            return None
        kind: type[Exception] | None = self.records[(len(self.records) - 1) // 2 * 2][1]
        return "attempt" if kind is not None and issubclass(kind, AttemptTimeout) else None

    def report(self) -> Report:
        """Build the report."""
        return report_of(self)

    def __reduce__(self) -> tuple[Callable[[Report], Report], tuple[Report]]:
        # An error carries its run as a stamp; pickled, the run becomes its report.
        return (return_report, (self.report(),))

    # --------------------------------------------------------------------- the limits

    def apply_deadline(self, seconds: float) -> None:
        """Limit the call to this many seconds from now: the deadline of the context."""
        self.deadline = self.refresh_now() + seconds
        self.until = min(self.until, self.deadline)

    def limit_by_calls_around(self) -> float:
        """Start no attempt after the limits of the calls around this one; return the time of its end."""
        self.until = min(self.until, self.now + time_left_around(self, sys._getframe(2)))
        return self.until

    def time_left(self, *, own: bool = True) -> float:
        """Return how long the attempt may take from now on; record which limit that is.

        On a tie it is the first of the four below. ``own=False``: the attempt has not begun, so its own limit
        does not apply.
        """
        policy, now = self.policy, self.now
        shortest = policy._attempt_limit if own else INFINITY
        self.binding_limit, self.limits_tied = "attempt", False
        others: tuple[tuple[Limit, float], ...] = (
            ("work", policy._work_limit - self.work),
            ("total", policy._total - (now - self.started)),
            ("deadline", self.deadline - now),
        )
        for name, left in others:
            if left < shortest:
                self.binding_limit, shortest, self.limits_tied = name, left, False
            elif left == shortest:
                self.limits_tied = True
        if own:
            self.attempt_started = now
        self.binding_seconds = shortest
        return max(0.0, shortest)

    def is_reached(self, slack: float) -> bool:
        """Return True if no more than ``slack`` seconds are left of the time that `time_left` returned."""
        return self.refresh_now() - self.attempt_started >= self.binding_seconds - slack

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until the earliest limit of the running attempt, negative after it.

        For code inside the attempt; ``soft``: only of the limits that do not interrupt it.
        """
        policy, now = self.policy, self.refresh_now()
        if soft and self.guard is not None:
            return INFINITY  # a client applies the limits of its own policy itself
        whole = policy._stated_limit - (now - self.started)
        if soft and (self.cancelling is not None or policy.worker is not None):
            return whole if policy._stated_limit < policy._total else INFINITY
        took = now - self.attempt_started
        return min(policy._attempt_limit - took, policy._work_limit - self.work - took, whole)

    def expired(self) -> AttemptTimeout:
        """Record that the running attempt exceeded its limit; return the error it failed with."""
        self.limit, self.tracked = self.binding_limit, True
        took, number = max(0.0, self.binding_seconds), self.attempt
        return AttemptTimeout(
            EXPIRED[self.binding_limit].format(number, took), limit=self.binding_limit, seconds=took
        )

    def record_return(self, *, late: bool) -> None:
        """Record that the running attempt returns; ``late``: after its limit, whatever the clock reads."""
        if late or self.refresh_now() - self.attempt_started >= self.binding_seconds:
            self.limit, self.tracked = self.binding_limit, True

    def leave_worker(self, *, alone: bool) -> None:
        """Record that the attempt's worker did not stop; ``alone``: no other may run beside it."""
        self.workers_left += 1
        self.stuck = alone
        self.tracked = True

    # -------------------------------------------------------------------- the details

    def begin_attempt(self, now: float) -> None:
        """Record that the first attempt began later than the call: observers were called in between."""
        if self.started <= now < INFINITY:
            self.attempt_started = now

    def refresh_now(self) -> float:
        """Read the clock and return the time. NaN, infinity and steps back are ignored."""
        if self.now < (now := self.read_clock()) < INFINITY:
            self.now = now
        return self.now

    @property
    def took(self) -> float:
        """The duration of the last attempt that has ended; 0 before that."""
        if not self.records:
            return 0.0
        entry: Entry = self.records[(len(self.records) - 1) // 2 * 2]
        return entry[4] - entry[3]

    @property
    def work(self) -> float:
        """The duration of all attempts that have ended."""
        while self.counted < len(self.records):
            entry: Entry = self.records[self.counted]
            self.worked += entry[4] - entry[3]
            self.counted += 2
        return self.worked

    def drop_first_record(self) -> None:
        """Drop the record of the first attempt, and its delay: a call may make attempts for days."""
        self.worked = self.work  # which counts it
        self.counted -= 2
        del self.records[:2]

    def bound_text(self, text: str) -> str:
        """Return the bounded text of an error, to record it; shorten earlier ones once they are many.

        Texts of some kilobytes in every record would be megabytes on one exception.
        """
        if self.texts_length > MAX_TEXTS:
            self.texts_length = 0
            for number, entry in enumerate(self.records[::2]):
                verdict, kind, earlier, started, ended = cast("Entry", entry)
                if earlier is not None and len(earlier) > SHORT_TEXT:
                    earlier = shortened(earlier, SHORT_TEXT)
                    self.records[number * 2] = (verdict, kind, earlier, started, ended)
        text = shortened(text)
        self.texts_length += len(text)
        return text

    def kind(self, error: Exception | None) -> Kind:
        """Return the kind of failure: the verdict's, or else that of the error's type."""
        return self.verdict.kind or kind_of(None if error is None else type(error))

    def attempt_result(self, error: Exception | None, value: object = None) -> Ended:
        """Return how the attempt ended, for a rule to judge."""
        elapsed, took = self.now - self.started, self.now - self.attempt_started
        return Ended(self.attempt, error, value, elapsed, took, self.work + took, self.policy.labels)
