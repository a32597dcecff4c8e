"""The engine: how one logical call proceeds.

Rule 1: every decision about a call lives in this file, apart from how long an attempt may take (`RunState`).
        Drivers only call, wait and raise.
Rule 2: this file never sleeps, has no clock and never touches the wrapped function. Its methods receive what
        happened and when, and return a number of seconds to wait, or None. It calls the driver's clock reader
        only after it has run code of the caller's (rules, observers), which may take time.
Rule 3: a run is created when an attempt fails, or when observers want events. A call that succeeds at once
        creates none. This code is benchmarked too, so it calls few helpers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from redouble._engine.backoff import Backoff
from redouble._engine.nested import nested, rejected_before_call
from redouble._engine.options import MAX_RECORDS, SHORT_TEXT
from redouble._engine.report import STAMP, annotate
from redouble._engine.run_results import error_of, note_of
from redouble._engine.run_state import RunState
from redouble._failures.transient import kind_of
from redouble._failures.verdict import (
    ACCEPT,
    CANCELLED_BY_LIMIT,
    RETRY,
    STOP,
    Kind,
    Verdict,
    changed,
    judge,
    judge_result,
    unwrapped,
    with_retry_after,
)
from redouble._internal.callables import UsageError
from redouble._internal.logger import call_hook
from redouble._runtime.backend import Cancellation
from redouble._runtime.call_stack import limits
from redouble.errors import AttemptTimeout, Reason, RedoubleError, Rejected

# An unlimited policy without delays, on a clock that stands still, would never end. No real clock
# stands still for this many attempts.
MAX_STALLED = 100_000

INFINITY = float("inf")
# The errors that may carry another call's end, and the one that ends every call.
SPECIAL: tuple[type[Exception], ...] = (RedoubleError, ExceptionGroup, UsageError)

# The method of the base class: an exception class of the caller may override it.
set_traceback = BaseException.with_traceback

# Reading a member off its enum costs a call of its own on Python 3.11.
STOPPED, ATTEMPTS, BUDGET = Reason.stopped, Reason.attempts, Reason.budget
TIMEOUT, WORK_TIMEOUT = Reason.timeout, Reason.work_timeout
BACKOFF_ENDED, HINT_TOO_LONG = Reason.backoff_ended, Reason.hint_too_long
WORKER_STILL_RUNNING = Reason.worker_still_running


class Run(RunState):
    """One logical call: its state, and the decisions about it.

    `start` and `failed` are benchmarked. They do what every call needs; what only a ``tracked`` call needs is
    in methods of its own.
    """

    # ------------------------------------------------- steps 1 and 2: before an attempt

    def start(self, now: float) -> Exception | None:
        """Begin an attempt, or return the error to raise because no time is left for it."""
        if not self.earliest <= now < INFINITY:
            now = self.earliest  # a sleep that returns early gains no time
        if now > self.now:
            self.now = now
        if self.now >= self.until or (self.tracked and not self.track_start()):
            return self.no_time_left()
        self.attempt += 1
        self.attempt_started = self.now
        return None

    def track_start(self) -> bool:
        """Emit that an attempt begins; return False if there is no time for it."""
        policy = self.policy
        if self.work >= policy._work_limit:
            return False
        if self.emit is not None:
            self.emit(self, "before_attempt", None, None)
            if self.refresh_now() >= self.until:
                return False
        if self.limit is not None:
            self.limit, self.limits_tied = None, False
        if policy.budget is not None and self.unspent_grant is not None:
            self.spent_grant, self.unspent_grant = self.unspent_grant, None
            if self.credits and self.credited_call is not None:
                self.credited_call[1] = None  # this retry is later than those inside the attempts before
        return True

    def no_time_left(self) -> Exception:
        """Give up between attempts; return the last error, or a `RetryError` if there is none."""
        last, self.last = self.last, None
        self.give_up(self.out_of_time(), last)
        # Raised in a generator or an async loop, these would look like its regular end.
        if last is None or self.policy.wrap or isinstance(last, StopIteration | StopAsyncIteration):
            return error_of(self, last)
        return last

    def out_of_time(self) -> Reason:
        """Return which time is used up; if both are, the time for work."""
        return WORK_TIMEOUT if self.work >= self.policy._work_limit else TIMEOUT

    def interrupted(self, error: BaseException) -> None:
        """End the call because the wait before its next attempt has raised: a signal handler, or the clock.

        A cancellation is no end of ours to record, like that of an attempt.
        """
        if not isinstance(error, Exception | KeyboardInterrupt | SystemExit) and (
            self.cancelling is not None or isinstance(error, GeneratorExit | Cancellation)
        ):
            return
        self.wait_failed = True
        with suppress(Exception):  # the clock may be what has failed
            self.refresh_now()
        last, self.last = self.last, None
        set_context(error, last)
        self.give_up(STOPPED, error if isinstance(error, Exception) else last)
        for exc in (last, error):
            if exc is not None:
                annotate(exc, self, None if exc is last else note_of(self))

    # ----------------------------------------------- steps 4 to 10: an attempt has ended

    def returned(self, value: object, now: float) -> float | None:
        """Record that the attempt returned; None with ``ok`` means that the value is accepted."""
        if self.now < now < INFINITY:
            self.now = now
        self.value = value
        ended, verdict, until = self.now, ACCEPT, self.policy.until
        if until is not None:
            try:
                verdict = judge_result(until, self.attempt_result(None, value))
            except Exception as broken:
                self.rule_failed(broken, None, None)
                raise
            if verdict.action != "accept":
                return self.failed(None, ended, verdict)
            self.refresh_now()
        self.verdict = verdict
        self.records.append((verdict, None, None, self.attempt_started, ended))
        return self.succeed(None)

    def reopen(self) -> None:
        """Take a success back: the running attempt has not ended, and may still fail."""
        self.ok = False
        self.worked = self.work - self.took
        self.counted -= 2
        self.records.pop()

    def repeat(self) -> None:
        """Take a success back, to make the same attempt again: it was redirected to another request."""
        self.reopen()
        self.attempt -= 1
        if self.policy.budget is not None:
            self.spent_grant = None  # it was credited

    def failed(self, error: Exception | None, now: float, verdict: Verdict = RETRY) -> float | None:
        """Record that the attempt failed; return the seconds to wait, or None to end the call.

        A `UsageError` is raised at once: a mistake in the program is no failure of the operation.
        ``error`` is what it raised, or None if it returned a result, on which this is the verdict.
        """
        policy = self.policy
        if self.now < now < INFINITY:
            self.now = now
        else:
            now = self.now
        # 4. the verdict. The type decides, as in `except`: the `__class__` of the error may be overridden.
        # The record keeps the text and not the error, which may refer to a connection, or to this run.
        ended = now
        if error is not None:
            kind: Any = type(error)
            special = issubclass(kind, SPECIAL)
            judged = error
            if special:
                if issubclass(kind, UsageError):
                    self.take_back_start()
                    raise error
                judged = unwrapped(error)
            try:
                text = str(error)
                if len(text) > SHORT_TEXT:
                    text = self.bound_text(text)
            except Exception:
                text = "<no text: __str__ failed>"
            types = policy._types
            if types is None or self.limit is not None:
                verdict = self.judge(error, text)
                now = self.now
            elif not issubclass(kind, types) and (judged is error or not issubclass(type(judged), types)):
                verdict = default_verdict(judged)
            if special and verdict.after is None and issubclass(type(judged), Rejected):
                verdict = with_retry_after(verdict, error)
            if judged is not error and verdict.kind is None:
                verdict = changed(verdict, kind=kind_of(type(judged)))
        else:
            kind = text = None
            special = False
            now = self.refresh_now()  # the rule for results took time
        self.verdict = verdict
        records = self.records
        records.append((verdict, kind, text, self.attempt_started, ended))
        if verdict.action != "retry":
            return self.stop(error)
        if self.tracked:
            if (reason := self.track_failure(error)) is not None:
                return self.give_up(reason, error)
            now = self.now

        # 6. attempts? time? nested?
        until = self.until
        if self.attempt >= self.max_attempts:
            return self.give_up(ATTEMPTS, error)
        if now >= until:
            return self.refuse(self.out_of_time(), error, None)
        if self.cancelling is not None and self.cancelling(error):
            return self.give_up(STOPPED, error)
        if self.tracked and (reason := self.track_limits()) is not None:
            return self.refuse(reason, error, None) if reason is WORK_TIMEOUT else self.give_up(reason, error)
        if error is not None:
            try:
                own = error.__dict__
                marked = own and (STAMP in own or "response" in own)
                marked = marked or special or error.__cause__ is not None
            except Exception:
                marked = False  # its attributes cannot be read
            if marked and (reason := nested(error, self)) is not None:
                return self.give_up(reason, error)

        # 7. draw the delay, apply the hint
        delays = self.delays
        if delays is None:
            make = policy._make_delays
            delays = self.delays_of_kind(error) if make is None else make()
            self.delays = None if make is None else delays
        delay = next(delays, None)
        if delay is None:
            return self.refuse(BACKOFF_ENDED, error, None)
        if verdict.after is not None and policy.hints.mode != "ignore":
            if verdict.after > policy.hints._ceiling:
                return self.refuse(HINT_TOO_LONG, error, delay)
            delay = self.apply_hint(delay, verdict.after)
        # 8. does it fit?
        if delay and limits.exist:
            until = self.limit_by_calls_around()
        resume = now + delay
        if not resume < until:  # written so that NaN does not fit either
            return self.refuse(TIMEOUT, error, delay)
        if self.tracked:
            delay = self.track_retry(error, delay)  # 9 and 10
            if delay is None:
                return None
            resume = self.now + delay

        records.append(delay)
        self.last = error
        self.earliest = resume
        if error is not None:
            set_traceback(error, None)  # its frames would stay alive during the sleep
        return delay

    def stop(self, error: Exception | None) -> float | None:
        """End the call as the verdict requires: with success, or give up."""
        if self.verdict.action == "accept":
            return self.succeed(error)
        reason = STOPPED
        if self.verdict is CANCELLED_BY_LIMIT:
            reason = WORK_TIMEOUT if self.limit == "work" else self.out_of_time()
        if self.tracked:
            reason = self.track_failure(error) or reason
        return self.give_up(reason, error)

    # ------------------------------------------------------------------------- the rules

    def judge(self, error: Exception, text: str) -> Verdict:
        """Return the verdict of the limit that ended the attempt, or else of the rules."""
        if self.limit is not None and self.limit != "attempt":
            return CANCELLED_BY_LIMIT  # the call is over, whatever a rule would decide
        try:
            verdict = judge(self.policy._rules, error, self.attempt_result)
        except Exception as broken:
            self.rule_failed(broken, error, text)
            raise
        self.refresh_now()
        return default_verdict(unwrapped(error)) if verdict is None else verdict

    def rule_failed(self, broken: Exception, error: Exception | None, text: str | None) -> None:
        """End the call because a rule raised; stamp its error, which propagates, and the operation's."""
        kind = None if error is None else type(error)
        self.records.append((STOP, kind, text, self.attempt_started, self.now))
        self.verdict, self.reason = STOP, STOPPED
        self.refresh_now()
        if error is not None and broken.__context__ is None and broken is not error:
            broken.__context__ = error  # a driver that continues a call has no handler around the rule
        for exc in (broken, error):
            if exc is not None:
                annotate(exc, self, None)

    # -------------------------------------------------------------- what is tracked besides

    def track_failure(self, error: Exception | None) -> Reason | None:
        """Count and emit the failure; return a reason to stop whatever the verdict, or None."""
        policy = self.policy
        if error is not None:
            self.value = None
        if policy._counts is not None:
            policy._counts.add(failures=1)
        budget = policy.budget
        if budget is not None:
            if self.in_flight is not None:
                self.in_flight.end_retry()
            refused = isinstance(error, Rejected) and rejected_before_call(error, self)
            traits = getattr(budget, "traits", None)  # without any, all failures count
            if (self.verdict.action == "retry" and not refused) or traits is None or traits.counts_stops:
                call_hook(budget, "failed", self.kind(error), self.budget_time())
            if refused and self.spent_grant is not None:
                # A gate rejected the attempt, so nothing was retried.
                self.unspent_grant, self.spent_grant = self.spent_grant, None
                self.refund()
        if self.emit is not None:
            self.emit(self, "failure", error, None)
            self.refresh_now()
        return None

    def track_limits(self) -> Reason | None:
        """Return the reason to stop: work time, a worker, a clock that stands still, a resend guard."""
        if self.work >= self.policy._work_limit:
            return WORK_TIMEOUT
        if self.stuck:
            return WORKER_STILL_RUNNING
        if self.max_attempts > MAX_RECORDS:
            if self.now > self.moved:
                self.moved, self.stalled = self.now, 0
            if self.stalled > MAX_STALLED:
                return TIMEOUT
            self.stalled += 1
            if self.attempt > MAX_RECORDS:
                self.drop_first_record()
        return None if self.guard is None else self.guard.veto(self.verdict)

    def track_retry(self, error: Exception | None, delay: float) -> float | None:
        """Spend from the budget and emit the retry; return the delay, or give up and return None."""
        policy, granted = self.policy, False
        try:
            # 9. spend before sleeping: a refused retry must not cost the caller a wait
            if policy.budget is not None:
                if self.in_flight is not None and not self.in_flight.begin_retry():
                    return self.refuse(BUDGET, error, delay)
                kind, now = self.kind(error), self.budget_time()
                self.unspent_grant = grant = call_hook(policy.budget, "spend", kind, now)
                if grant is None:
                    return self.refuse(BUDGET, error, delay)
                delay = max(delay, grant.wait)
                if self.now + delay >= self.until:
                    return self.refuse(TIMEOUT, error, delay)
            # 10. emit; observers take time, so does the delay still fit?
            if self.emit is not None:
                self.emit(self, "retry", error, delay)
                if self.refresh_now() + delay >= self.until:
                    return self.refuse(TIMEOUT, error, delay)
            if policy._counts is not None:
                policy._counts.add(retries=1)
            granted = True
        finally:
            if not granted:
                self.refund()  # an observer may raise a BaseException
        return delay

    # --------------------------------------------------------------------------- the delay

    def delays_of_kind(self, error: Exception | None) -> Iterator[float]:
        """Return this call's iterator of delays for this kind of failure."""
        policy = self.policy
        recipes = cast("Mapping[Kind | None, Backoff]", policy._recipe)
        kind = self.kind(error) if self.kind(error) in recipes else None
        self.delays_by_kind = self.delays_by_kind or {}
        return self.delays_by_kind.setdefault(kind, recipes[kind].delays(policy.random))

    def refuse(self, reason: Reason, error: Exception | None, delay: float | None) -> float | None:
        """Give up; record the delay that the refused retry would have had, for a caller that goes on polling.

        Without a delay, or if the hint was too long, that is the hint, without jitter.
        """
        hint, hints = self.verdict.after, self.policy.hints
        if reason is HINT_TOO_LONG or (delay is None and hints.mode != "ignore"):
            backoff = delay or 0.0
            if hint is not None:
                asked = min(hint, backoff + hints._over_limit)
                delay = asked if hints.mode == "instead" else max(backoff, asked)
        if delay is not None:
            self.refused_delay = delay
            self.records.append(delay)
        return self.give_up(reason, error)

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


class Wait:
    """The wait before the next attempt of a run, for a ``with``: if it raises, the call is over."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if error is not None:
            self._run.interrupted(error)


def set_context(error: BaseException, last: BaseException | None) -> None:
    """Set the context of an error, as if it had been raised while the last one was handled."""
    seen: set[int] = set()
    related = last
    while related is not None and id(related) not in seen:
        seen.add(id(related))
        related = related.__context__
    end = error
    while id(end) not in seen:
        seen.add(id(end))
        if end.__context__ is None:
            end.__context__ = last
            return
        end = end.__context__


def default_verdict(error: Exception) -> Verdict:
    """Return the verdict on an error on which no rule has an opinion."""
    return RETRY if issubclass(type(error), AttemptTimeout) else STOP
