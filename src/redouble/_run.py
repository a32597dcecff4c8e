"""The engine: how one logical call proceeds.

Rule 1: every decision about a call lives in this file. Drivers only call, wait and raise.
Rule 2: this file never sleeps, never reads a clock and never touches the wrapped function; it is
        told what happened and when, and answers with a number of seconds to wait, or None.
Rule 3: a run is made when something went wrong, or when somebody listens. A call that succeeds at
        once never comes here.

The order of one call: `start` (is there time?), the attempt, then `failed` or `returned`: verdict;
stop? attempts? time? nested?; draw the delay, apply the hint; does it fit?; spend the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from redouble import errors
from redouble._backoff import Backoff
from redouble._budget import Grant
from redouble._nested import nested
from redouble._options import Options
from redouble._report import PREFIX, STAMP, AttemptRecord, Outcome, Report, annotate
from redouble._transient import kind_of
from redouble._verdict import RETRY, STOP, Ended, Kind, Verdict, accepted, judge
from redouble.errors import AttemptTimeout, Reason

__all__ = ["Run"]

T = TypeVar("T")

# An unlimited policy without delays, on a clock that stands still, would never end. No real clock
# stands still for this many attempts.
MOST_STALLED = 100_000

OUTCOMES: dict[Reason, tuple[str, type[errors.RetryError]]] = {
    Reason.attempts: ("attempts exhausted", errors.AttemptsExhausted),
    Reason.backoff_ended: ("no delays left", errors.AttemptsExhausted),
    Reason.budget: ("retry budget exhausted", errors.BudgetExhausted),
    Reason.timeout: ("no time left", errors.DeadlineExceeded),
    Reason.work_timeout: ("no work time left", errors.DeadlineExceeded),
    Reason.hint_too_long: ("asked to wait too long", errors.DeadlineExceeded),
    Reason.stopped: ("not worth retrying", errors.Stopped),
    Reason.nested: ("an inner policy gave up already", errors.Stopped),
}


class Run:
    """The state of one logical call."""

    __slots__ = (
        "attempt",
        "attempt_started",
        "cancelling",
        "delays",
        "earliest",
        "granted",
        "last",
        "limit",
        "name",
        "now",
        "ok",
        "pending",
        "policy",
        "reason",
        "records",
        "stalled",
        "started",
        "until",
        "value",
        "verdict",
        "work",
    )

    def __init__(
        self,
        policy: Options,
        started: float,
        name: str = "",
        *,
        attempt: int = 1,
        cancelling: Callable[[], bool] | None = None,
    ) -> None:
        """Begin with attempt 1 already running; ``attempt=0`` for a driver that calls `start`."""
        if started != started:  # noqa: PLR0124  NaN: a broken clock may cost retries, never an endless loop
            started = 0.0
        self.policy = policy
        self.name = name
        self.started = self.attempt_started = self.now = self.earliest = started
        self.until = started + policy.limit
        self.attempt = attempt
        self.work = 0.0
        self.delays: Any = None
        self.records: list[tuple[Any, ...]] = []
        self.verdict: Verdict = RETRY
        self.last: Exception | None = None
        self.value: object = None
        self.reason: Reason | None = None
        self.limit: str | None = None
        self.ok = False
        self.pending: Grant | None = None
        self.granted: Grant | None = None
        self.cancelling = cancelling
        self.stalled = 0
        if policy.budget is not None and not attempt:
            policy.budget.start(started)

    # -------------------------------------------------------------- before an attempt

    def start(self, now: float) -> Exception | None:
        """Begin an attempt, or return what to raise because there is no time for it."""
        refusal = self.refusal(now)
        if refusal is None:
            self.begin(now)
        return refusal

    def refusal(self, now: float) -> Exception | None:
        """Return what to raise if the time is spent: the last error, or one of our own."""
        self.moved(self.earliest)  # a sleep that returns early gains nobody time
        if self.moved(now) >= self.until:
            reason = Reason.timeout
        elif self.work >= self.policy.work_limit:
            reason = Reason.work_timeout
        else:
            return None
        last, self.last = self.last, None
        self.give_up(reason, last, ended=False)
        return self.error(last) if last is None or self.policy.wrap else last

    def begin(self, now: float) -> None:
        """Count the attempt: it starts now, and so does the retry that was paid for."""
        self.attempt += 1
        self.attempt_started = self.moved(now)
        if self.pending is not None:
            self.granted, self.pending = self.pending, None

    # --------------------------------------------------------------- after an attempt

    def failed(self, error: Exception, now: float) -> float | None:
        """Take in that the attempt raised; answer with seconds to wait, or None to give up."""
        self.judge(error, now)
        delay = self.decide(error, self.now)
        return None if delay is None else self.commit(error, delay)

    def returned(self, value: object, now: float) -> float | None:
        """Take in that the attempt returned; None with ``ok`` means the value is accepted."""
        if self.accepts(value, now):
            return None
        delay = self.decide(None, self.now)
        return None if delay is None else self.commit(None, delay)

    def judge(self, error: Exception, now: float) -> None:
        """Find the verdict on an error. A rule that raises raises here, inside the driver's except."""
        self.ended(now)
        rules = self.policy.rules
        if rules.types is not None:
            verdict = RETRY if isinstance(error, rules.types) else None
        else:
            verdict = judge(rules, error, lambda: self.shown(error, None))
        if verdict is None:
            verdict = RETRY if isinstance(error, AttemptTimeout) else STOP
        self.verdict = verdict
        if self.policy.budget is not None and verdict.action != "accept":
            self.policy.budget.failed(self.kind(error), self.now)

    def accepts(self, value: object, now: float) -> bool:
        """Find the verdict on a result; an accepted one ends the call."""
        self.ended(now)
        self.value = value
        policy = self.policy
        if policy.until is not None:
            self.verdict = accepted(policy.until, self.shown(None, value))
            if self.verdict.action != "accept":
                if policy.budget is not None:
                    policy.budget.failed(self.kind(None), self.now)
                return False
        self.succeed(None)
        return True

    def decide(self, error: Exception | None, now: float) -> float | None:
        """Decide on a retry: stop? attempts? time? nested? then delay, hint, fit and budget."""
        policy, verdict = self.policy, self.verdict
        now = self.moved(now)
        if verdict.action != "retry":
            return self.succeed(error) if verdict.action == "accept" else self.give_up(Reason.stopped, error)
        if policy.attempts is not None and self.attempt >= policy.attempts:
            return self.give_up(Reason.attempts, error)
        if now >= self.until or self.stalled > MOST_STALLED:
            return self.give_up(Reason.timeout, error)
        if self.work >= policy.work_limit:
            return self.give_up(Reason.work_timeout, error)
        if self.cancelling is not None and self.cancelling():
            return self.give_up(Reason.stopped, error)
        if error is not None and (STAMP in error.__dict__ or error.__cause__ is not None):
            reason = nested(error, self)
            if reason is not None:
                return self.give_up(reason, error)
        delay = next(self.drawing(error), None)
        if delay is None:
            return self.give_up(Reason.backoff_ended, error)
        if verdict.after is not None and policy.hints.mode != "ignore":
            if verdict.after > policy.hints.ceiling:
                return self.give_up(Reason.hint_too_long, error)
            delay = self.hinted(delay, verdict.after)
        if now + delay >= self.until:
            return self.give_up(Reason.timeout, error)
        if policy.budget is not None:
            # Spent before sleeping: a refused retry must not cost the caller a wait.
            self.pending = policy.budget.spend(self.kind(error), now)
            if self.pending is None:
                return self.give_up(Reason.budget, error)
            delay = max(delay, self.pending.wait)
            if now + delay >= self.until:
                return self.give_up(Reason.timeout, error)
        return delay

    def commit(self, error: Exception | None, delay: float) -> float:
        """Note the attempt: a retry will follow."""
        self.note(error, delay)
        self.stalled = 0 if delay else self.stalled + 1
        self.earliest = self.now + delay
        self.last = error
        if error is not None:
            error.with_traceback(None)  # its frames would live on for as long as we sleep
        return delay

    # ------------------------------------------------------------------------ the end

    def succeed(self, error: Exception | None) -> None:
        """End well: with a result, or with an exception that was accepted."""
        self.ok = True
        self.note(error, None)
        if self.policy.budget is not None:
            self.policy.budget.credit(self.granted, self.now)

    def give_up(self, reason: Reason, error: Exception | None, *, ended: bool = True) -> None:
        """End badly: note why, on the error too, and hand back what was not used."""
        self.reason = reason
        if reason is Reason.timeout:
            total = self.policy.timeout is not None and self.policy.timeout == self.policy.limit
            self.limit = "total" if total else "give_up_after"
        elif reason is Reason.work_timeout:
            self.limit = "work"
        if ended:
            self.note(error, None)
        self.close()
        if error is not None:
            first_stop = reason is Reason.stopped and self.attempt == 1
            annotate(error, self, None if first_stop else PREFIX + self.summary())

    def close(self) -> None:
        """Hand back a grant whose retry never started, however the call ended."""
        if self.pending is not None and self.policy.budget is not None:
            grant, self.pending = self.pending, None
            self.policy.budget.refund(grant, self.now)

    def error(self, last: Exception | None) -> errors.RetryError:
        """Make an error of our own: there is nothing of the caller's to raise, or he wants ours."""
        assert self.reason is not None
        refused = last is None and self.attempt > 0
        kind = errors.NotAccepted if refused else OUTCOMES[self.reason][1]
        cause = "" if last is None else f": {type(last).__name__}: {text(last)}"
        error = kind(
            f"gave up {self.summary()}{cause}",
            reason=self.reason,
            report=self.report(),
            last=self.value if refused else last,
        )
        error.__cause__ = last
        annotate(error, self, None)
        return error

    def summary(self) -> str:
        """Say it in a line: for notes and messages."""
        assert self.reason is not None
        attempts = "1 attempt" if self.attempt == 1 else f"{self.attempt} attempts"
        return f"after {attempts} in {self.now - self.started:.3g} s ({OUTCOMES[self.reason][0]})"

    def report(self) -> Report:
        """Build the report."""
        return Report(
            reason=self.reason,
            attempts=self.attempt,
            elapsed=self.now - self.started,
            work_elapsed=self.work,
            limit=self.limit,
            name=self.name,
            labels=dict(self.policy.labels),
            history=tuple(record(number, *entry) for number, entry in enumerate(self.records, 1)),
        )

    def outcome(self, value: T | None, error: Exception | None) -> Outcome[T]:
        """Build the outcome; an exception that is neither accepted nor given up on came from a rule."""
        if not self.ok and self.reason is None:
            self.reason = Reason.stopped
        return Outcome(self.ok, value, error, self.report())

    def __reduce__(self) -> tuple[Any, ...]:
        # An error carries its run as a stamp; on the way to another process it becomes its report.
        return (_itself, (self.report(),))

    # -------------------------------------------------------------------- the details

    def moved(self, now: float) -> float:
        """Let time go forwards only: for a clock that gives NaN or goes back it stands still."""
        if now > self.now:
            self.now = now
            self.stalled = 0
        return self.now

    def ended(self, now: float) -> None:
        """Count the time spent in the attempt that just ended."""
        self.work += self.moved(now) - self.attempt_started

    def kind(self, error: Exception | None) -> Kind:
        """Tell the kind of failure: the verdict's, or what the error's type says."""
        return self.verdict.kind or kind_of(type(error))

    def note(self, error: Exception | None, delay: float | None) -> None:
        """Keep the attempt for the report, without keeping the error: it may hold a connection."""
        kind = None if self.ok else self.verdict.kind
        said = None if error is None else text(error)
        elapsed = self.now - self.attempt_started
        started = self.attempt_started - self.started
        self.records.append((kind, type(error), said, started, elapsed, delay, self.verdict.after))

    def shown(self, error: Exception | None, value: object) -> Ended:
        """Show a judge how the attempt ended."""
        elapsed, attempt = self.now - self.started, self.now - self.attempt_started
        return Ended(self.attempt, error, value, elapsed, attempt, self.work, self.policy.labels)

    def drawing(self, error: Exception | None) -> Iterator[float]:
        """Return this call's iterator of delays, or the one for this kind of failure."""
        recipe, chance = self.policy.recipe, self.policy.random
        if isinstance(recipe, Backoff):
            self.delays = self.delays or recipe.delays(chance)
            return self.delays
        self.delays = self.delays or {}
        kind: Kind | None = self.kind(error)
        kind = kind if kind in recipe else None
        if kind not in self.delays:
            self.delays[kind] = recipe[kind].delays(chance)
        return self.delays[kind]

    def hinted(self, delay: float, hint: float) -> float:
        """Apply what the other side asked for, spread a little so that not everybody returns at once."""
        hints = self.policy.hints
        asked = hint
        if hint and hints.spread:
            # The spread is cut to fit: a hint that fits is not lost to our own politeness.
            room = max(0.0, min(hints.spread * hint, self.until - self.now - hint))
            asked += self.policy.random.random() * room
        asked = min(asked, delay + hints.most_over)
        return asked if hints.mode == "instead" else max(delay, asked)


def text(error: Exception) -> str:
    """Return an error's text; one that cannot say it must not cost us the error."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  __str__ is the caller's code
        return "<no text: __str__ failed>"


def record(
    number: int,
    kind: Kind | None,
    error: type[BaseException],
    said: str | None,
    started: float,
    elapsed: float,
    delay: float | None,
    hint: float | None,
) -> AttemptRecord:
    """Build one record of the history from what the run kept."""
    name = None if said is None else f"{error.__module__}.{error.__qualname__}".removeprefix("builtins.")
    known = kind if said is None else kind or kind_of(error)
    return AttemptRecord(number, known, name, said, started, elapsed, delay, hint)


def _itself(report: Report) -> Report:
    return report
