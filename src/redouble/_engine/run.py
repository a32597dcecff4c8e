"""The engine: how one logical call proceeds.

Rule 1: every decision about a call lives in this file, apart from how long an attempt may take (`RunState`).
        Drivers only call, wait and raise.
Rule 2: this file never sleeps, has no clock and never touches the wrapped function. Its methods receive what
        happened and when, and return a number of seconds to wait, or None. It calls the driver's clock reader
        only after it has run code of the caller's (rules, observers), which may take time.
Rule 3: a run is created when an attempt fails, or when observers want events. A call that succeeds at once
        creates none. This code is benchmarked too, so it calls few helpers.

Rules for streams (`StreamRun`):

Rule 4: until its first item a stream is a call like any other.
Rule 5: the first item commits the stream to its attempt. Limits end there, the budget is credited there,
        and a later error is raised to the consumer: another attempt would yield the same items twice.
        A caller that limits more than the first item sets `limit` itself when that limit ends the stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from redouble._engine.backoff import Backoff
from redouble._engine.nested import nested, rejected_before_call
from redouble._engine.report import STAMP, annotate
from redouble._engine.run_results import MAX_RECORDS, error_of
from redouble._engine.run_state import RunState
from redouble._failures.verdict import (
    ACCEPT,
    CANCELLED_BY_LIMIT,
    RETRY,
    STOP,
    Verdict,
    judge,
    judge_result,
    with_retry_after,
)
from redouble.errors import AttemptTimeout, Reason, Rejected, WorkerStillRunning

__all__ = ["Run", "StreamRun"]


# An unlimited policy without delays, on a clock that stands still, would never end. No real clock
# stands still for this many attempts.
MAX_STALLED = 100_000

INFINITY = float("inf")
MARKED: tuple[type[Exception], ...] = (ExceptionGroup, WorkerStillRunning)

# The method of the base class: an exception class of the caller may override it.
set_traceback = BaseException.with_traceback

# Reading a member off its enum costs a call of its own on Python 3.11.
STOPPED, ATTEMPTS, BUDGET = Reason.stopped, Reason.attempts, Reason.budget
TIMEOUT, WORK_TIMEOUT = Reason.timeout, Reason.work_timeout
BACKOFF_ENDED, HINT_TOO_LONG = Reason.backoff_ended, Reason.hint_too_long
WORKER_STILL_RUNNING = Reason.worker_still_running


class Run(RunState):
    """One logical call: its state, and the decisions about it."""

    # ------------------------------------------------- steps 1 and 2: before an attempt

    def start(self, now: float) -> Exception | None:
        """Begin an attempt, or return the error to raise because no time is left for it."""
        if self.earliest > self.now:
            self.now = self.earliest  # a sleep that returns early gains no time
        if self.now < now < INFINITY:
            self.now, self.stalled = now, 0
        if self.emit is not None and self.now < self.until and self.work < self.policy._work_limit:
            self.emit(self, "before_attempt", None, None)
            self.refresh_now()
        if self.now >= self.until or self.work >= self.policy._work_limit:
            return self.no_time_left()
        self.attempt += 1
        self.attempt_started = self.now
        if self.limit is not None:
            self.limit, self.limits_tied = None, False
        if self.unspent_grant is not None:
            self.spent_grant, self.unspent_grant = self.unspent_grant, None
        return None

    def no_time_left(self) -> Exception:
        """Give up between attempts; return the last error, or a `RetryError` if there is none."""
        last = self.last
        self.give_up(TIMEOUT if self.now >= self.until else WORK_TIMEOUT, last)
        # Raised in a generator or an async loop, these would look like its regular end.
        if last is None or self.policy.wrap or isinstance(last, StopIteration | StopAsyncIteration):
            return error_of(self, last)
        return last

    # --------------------------------------------- steps 4 and 5: an attempt has ended

    def failed(self, error: Exception, now: float) -> float | None:
        """Record that the attempt raised; return the seconds to wait, or None to end the call."""
        if self.now < now < INFINITY:
            self.now, self.stalled = now, 0
        self.took = took = self.now - self.attempt_started
        self.work += took
        self.value = None
        # The record keeps the text and not the error, which may refer to a connection, or to this run.
        try:
            text = str(error)
        except Exception:
            text = "<no text: __str__ failed>"
        # The type decides, as in `except`: the `__class__` of the error may be overridden.
        kind = type(error)
        types = self.policy._types
        verdict: Verdict | None
        if self.limit is not None and self.limit != "attempt":
            verdict = CANCELLED_BY_LIMIT  # the call is over, whatever a rule would decide
        elif types is not None:
            verdict = RETRY if issubclass(kind, types) else None
        else:
            try:
                verdict = judge(self.policy._rules, error, self.attempt_result)
            except Exception as broken:
                self.records.append((STOP, kind, text, self.attempt_started, took))
                self.rule_failed(broken, error)
                raise
            self.refresh_now()
        if verdict is None:
            verdict = RETRY if issubclass(kind, AttemptTimeout) else STOP
        if verdict.after is None and issubclass(kind, Rejected):
            verdict = with_retry_after(verdict, error)
        self.verdict = verdict
        self.records.append((verdict, kind, text, self.attempt_started, took))
        return self.succeed(error) if verdict.action == "accept" else self.decide(error)

    def returned(self, value: object, now: float) -> float | None:
        """Record that the attempt returned; None with ``ok`` means that the value is accepted."""
        if self.now < now < INFINITY:
            self.now, self.stalled = now, 0
        self.took = took = self.now - self.attempt_started
        self.work += took
        self.value = value
        self.verdict = ACCEPT
        if self.policy.until is not None:
            try:
                self.verdict = judge_result(self.policy.until, self.attempt_result(None, value))
            except Exception as broken:
                self.records.append((STOP, None, None, self.attempt_started, took))
                self.rule_failed(broken, None)
                raise
            self.refresh_now()
        self.records.append((self.verdict, None, None, self.attempt_started, took))
        return self.succeed(None) if self.verdict.action == "accept" else self.decide(None)

    def reopen(self) -> None:
        """Take a success back: the running attempt has not ended, and may still fail."""
        self.ok = False
        self.records.pop()
        self.work -= self.took

    def rule_failed(self, broken: Exception, error: Exception | None) -> None:
        """End the call because a rule raised; stamp its error, which propagates, and the operation's."""
        self.verdict, self.reason = STOP, STOPPED
        self.refresh_now()
        for exc in (broken, error):
            if exc is not None:
                annotate(exc, self, None)

    # ----------------------------------------------------- steps 5 to 10: the decision

    def decide(self, error: Exception | None) -> float | None:
        """Return the delay before the next attempt, or give up and return None."""
        policy = self.policy
        verdict, budget = self.verdict, policy.budget
        emit, counts = self.emit, policy._counts
        if counts is not None:
            counts.failures += 1
        if budget is not None:
            refused = isinstance(error, Rejected) and rejected_before_call(error, self)
            if (verdict.action == "retry" and not refused) or not getattr(budget, "_only_retried", False):
                budget.failed(self.kind(error), self.budget_time())
            if refused and self.spent_grant is not None:
                # A gate rejected the attempt, so nothing was retried.
                self.unspent_grant, self.spent_grant = self.spent_grant, None
                self.refund()
        if emit is not None:
            emit(self, "failure", error, None)
            self.refresh_now()

        # 6. stop? attempts? time? nested?
        now, until = self.now, self.until
        reason = None
        if verdict.action != "retry":
            reason = (
                STOPPED
                if verdict is not CANCELLED_BY_LIMIT
                else WORK_TIMEOUT
                if self.limit == "work"
                else TIMEOUT
            )
        elif self.max_attempts is not None and self.attempt >= self.max_attempts:
            reason = ATTEMPTS
        elif now >= until or self.stalled > MAX_STALLED:
            reason = TIMEOUT
        elif self.work >= policy._work_limit:
            reason = WORK_TIMEOUT
        elif self.stuck:
            reason = WORKER_STILL_RUNNING
        elif self.cancelling is not None and self.cancelling(error):
            reason = STOPPED
        elif self.guard is not None and (veto := self.guard.veto(verdict)) is not None:
            reason = veto
        elif error is not None:
            try:
                own = error.__dict__
                marked = STAMP in own or "response" in own or error.__cause__ is not None
                marked = marked or isinstance(error, MARKED)
            except Exception:
                marked = False  # its attributes cannot be read
            if marked:
                reason = nested(error, self)
        if reason is not None:
            return self.give_up(reason, error)

        # 7. draw the delay, apply the hint
        delay = next(self.delays or self.delays_for(error), None)
        if delay is None:
            return self.give_up(BACKOFF_ENDED, error)
        if verdict.after is not None and policy.hints.mode != "ignore":
            if verdict.after > policy.hints._ceiling:
                return self.give_up(HINT_TOO_LONG, error)
            delay = self.apply_hint(delay, verdict.after)
        # 8. does it fit?
        if not now + delay < until:  # written so that NaN does not fit either
            return self.give_up(TIMEOUT, error)
        # 9. spend before sleeping: a refused retry must not cost the caller a wait
        if budget is not None:
            self.unspent_grant = budget.spend(self.kind(error), self.budget_time())
            if self.unspent_grant is None:
                return self.give_up(BUDGET, error)
            delay = max(delay, self.unspent_grant.wait)
            if now + delay >= until:
                return self.give_up(TIMEOUT, error)
        # 10. emit; observers take time, so does the delay still fit?
        if emit is not None:
            emit(self, "retry", error, delay)
            now = self.refresh_now()
            if now + delay >= until:
                return self.give_up(TIMEOUT, error)

        if counts is not None:
            counts.retries += 1
        self.records.append(delay)
        if self.attempt > MAX_RECORDS:
            del self.records[:2]
        self.last = error
        self.stalled += 1
        if now + delay > now:
            self.earliest, self.stalled = now + delay, 0
        if error is not None:
            set_traceback(error, None)  # its frames would stay alive during the sleep
        return delay

    def delays_for(self, error: Exception | None) -> Iterator[float]:
        """Return this call's iterator of delays, or the one for this kind of failure."""
        recipe, chance = self.policy._recipe, self.policy.random
        if isinstance(recipe, Backoff):
            self.delays = drawn = recipe.delays(chance)
            return drawn
        kind = self.kind(error) if self.kind(error) in recipe else None
        self.delays_by_kind = self.delays_by_kind or {}
        return self.delays_by_kind.setdefault(kind, recipe[kind].delays(chance))

    def apply_hint(self, delay: float, hint: float) -> float:
        """Apply the delay that the server requested, with jitter so that not all clients return at once."""
        hints = self.policy.hints
        asked = hint
        if hint and hints.spread:
            # The jitter is limited to the time left: a hint that fits must not fail because of it.
            spread = max(0.0, min(hints.spread * hint, self.until - self.now - hint))
            asked += self.policy.random.random() * spread
            if not self.now + asked < self.until:
                asked = hint
        asked = min(asked, delay + hints._over_limit)
        return asked if hints.mode == "instead" else max(delay, asked)


COMMITTED = Reason.committed


class StreamRun(Run):
    """The run of one stream.

    Its driver sets ``committed`` before it yields the first item, and ``credited`` if the run begins with a
    failure after items that another run has yielded.
    """

    committed = False
    credited = False

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

    def decide(self, error: Exception | None) -> float | None:
        """Decide like `Run` until the first item is yielded; after that, give up whatever the verdict."""
        if not self.committed:
            return Run.decide(self, error)
        self.ok = False
        if self.policy._counts is not None:
            self.policy._counts.failures += 1
        if self.policy.budget is not None:
            self.policy.budget.failed(self.kind(error), self.budget_time())
        if self.emit is not None:
            self.emit(self, "failure", error, None)
        return self.give_up(TIMEOUT if self.verdict is CANCELLED_BY_LIMIT else COMMITTED, error)
