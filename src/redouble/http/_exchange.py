"""One logical request: the state of all its attempts, the decision whether it may be resent, and its result.

The client stamps the error of each attempt with its `Exchange`, and the engine calls `Exchange.check` before
each retry. A request that may have reached the server is resent only if its method, an idempotency key or the
caller declares it idempotent, and only if its body can be sent a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from http import HTTPStatus
from math import inf
from typing import Any, TypeAlias

from redouble._clients.call_record import CallRecord, LazyCallRecord
from redouble._clients.idempotency_key import Idempotency
from redouble._engine.report import PREFIX, STAMP, Report, RetryVeto, annotate, stamp_of
from redouble._engine.run import Run
from redouble._engine.run_results import OUTCOMES, return_report, summary_of
from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import context_clock
from redouble._runtime.deadline import deadline, time_left
from redouble._telemetry.emit import continuing_call
from redouble.errors import AttemptTimeout, NotAccepted, Reason, Stopped
from redouble.http._plan import HttpPlan
from redouble.http._request_body import RESENDABLE, Resendable
from redouble.http._rule import sent

__all__ = ["Exchange", "host", "status_text"]


SLACK = 0.01  # seconds
MIN_TIMEOUT = 0.001  # seconds; clients read zero as no wait at all or as no limit
PHRASES = {status.value: status.phrase for status in HTTPStatus}
# Maps our timeout errors to subclasses that are also the client library's own timeout error.
TimeoutTypes: TypeAlias = Mapping[type[Exception], type[Exception]]

CHALLENGES = (401, 407)  # the client answers these by resending the same request in the same call


class Exchange(RetryVeto):
    """One logical request: its attempts so far, and whether it may be sent again."""

    decides_resend = True

    # Defaults are class attributes, because most requests keep them: they cost nothing per request.
    how: Any = None  # further arguments of the client's own send function
    idempotent: bool | None = None  # as declared by the caller; None: by method and key
    sends = 0
    slack = 0.0  # seconds by which the client's timeout ends before the attempt does
    resend_allowed = True  # True if the next attempt may send the request
    continued = False  # True if the call was restarted because a response body failed
    body_error: Exception | None = None  # that failure, until the next attempt raises it
    error: Exception | None = None  # the error of the last attempt
    response: Any = None  # the response that this error reports
    unread: Any = None  # a failed response too large to prefetch: close it before the next attempt
    run: Any = None  # the last run that asked to retry
    previous_run: Any = None  # the run before the body failed
    merged_run: Any = None  # the run that continues it
    failed_finally = False  # True if the call failed and its last response was returned
    in_flight = False  # True while an attempt runs, and after one was cancelled
    attempt_deadline = inf  # when the last attempt's time limit expires, body included
    client_closed: Callable[[], bool] = bool  # returns True if no attempt may begin any more
    key: Any = None  # the `IssuedKey` of this call

    def __init__(
        self,
        plan: HttpPlan,
        keys: Idempotency,
        request: Any,
        source: Resendable,
        host: Hashable,
        now: Callable[[], float],
    ) -> None:
        self.plan = plan
        self.keys = keys
        self.request = request
        self.body = source
        self.host = host
        self.call: Callable[[Any], Any] = plan.call_for(host)
        self.now: Callable[[], float] = context_clock() if ambient.active else now
        self.started = self.now()
        self.call_deadline = self.started + plan.total  # inf for most calls

    def outcome(self, timeout_types: TimeoutTypes, failure: Exception | None, response: Any) -> Any:
        """Return the final response, continuing from the result of a first attempt if there was one."""
        try:
            if failure is not None:
                return self._restart(failure)
            return self.call(self) if response is None else response
        except Exception as error:
            response = self.final_response(error, timeout_types)
            if response is None:
                raise
            return response
        finally:
            failure = None  # breaks the reference cycle between this frame and its error

    async def aoutcome(self, timeout_types: TimeoutTypes, failure: Exception | None, response: Any) -> Any:
        """Return the final response, continuing from the result of a first attempt if there was one."""
        try:
            if failure is not None:
                return await self._arestart(failure)
            return await self.call(self) if response is None else response
        except Exception as error:
            response = self.final_response(error, timeout_types)
            if response is None:
                raise
            return response
        finally:
            failure = None  # breaks the reference cycle between this frame and its error

    # ----------------------------------------------------------------- before an attempt

    def seconds_left(self) -> float:
        """Return the seconds that the next attempt may take."""
        if ambient.active:
            return min(self.call_deadline - self.now(), time_left())
        return inf if self.call_deadline == inf else self.call_deadline - self.now()

    def seconds_left_to_read(self) -> float:
        """Return the seconds that reading the last response body may take."""
        return (
            self.seconds_left()
            if self.attempt_deadline == inf
            else min(self.attempt_deadline - self.now(), self.seconds_left())
        )

    def shorten_timeout(self, seconds: float) -> float:
        """Return a client timeout just below ``seconds``: the client, which knows the cause, ends first."""
        self.slack = min(SLACK, seconds / 5)
        return max(MIN_TIMEOUT, seconds - self.slack)

    def begin_attempt(self) -> None:
        """Record the start of an attempt; raise if a body failed or the request must not be resent."""
        broken, self.body_error = self.body_error, None
        if broken is not None:
            raise self.record_failure(broken, self.response)
        if self.sends and self.client_closed():  # during the backoff
            raise self.error or self.record_failure(_resend_error(Reason.stopped, cut=self.in_flight))
        # `check` has set this for a retry of the policy; a user's layer that calls twice never calls `check`.
        if not self.resend_allowed and (reason := self._veto(unsent=self._never_sent())) is not None:
            raise self.error or self.record_failure(_resend_error(reason, cut=self.in_flight))
        self.sends += 1
        self.resend_allowed, self.in_flight, self.attempt_deadline = False, True, inf
        self.error = self.response = None

    # --------------------------------------------------------------- how an attempt ended

    def is_failure(self, status: int, headers: object) -> bool:
        """Return True if a response is a failure of the server."""
        return self.plan.fails(status, headers)

    def record_failure(self, error: Exception, response: Any = None) -> Exception:
        """Stamp the error of an attempt with this exchange, for the policy that may retry it."""
        self.error, self.response, self.in_flight = error, response, False
        try:
            vars(error)[STAMP] = self
        except Exception:  # no __dict__: then `begin_attempt` decides instead of `check`
            return error
        return error

    # -------------------------------------------------------------------- before a retry

    def check(self, run: Any, /) -> Reason | None:
        """Return the reason why the request must not be resent, or None."""
        self.run = run
        if self.continued:  # attempts were made before this run
            self._merge_previous_run(run)
            if self.sends >= self.plan.max_attempts:
                return Reason.attempts
        if self.client_closed():
            return Reason.stopped
        if self.slack and self.seconds_left() <= self.slack:
            return Reason.timeout  # only the slack is left
        forbidden = self._veto(unsent=run.verdict.sent is False or self._never_sent())
        self.resend_allowed = forbidden is None
        return forbidden

    def _veto(self, *, unsent: bool) -> Reason | None:
        if not unsent and not self._is_idempotent():
            return Reason.stopped
        # Last, because it rewinds. A body that was never sent is complete even if it cannot be rewound.
        if self.body is not RESENDABLE and not self.body.rewind() and not unsent:
            return Reason.not_replayable
        return None

    def _is_idempotent(self) -> bool:
        """Return True if the request may be resent although it may have reached the server."""
        if self.idempotent is not None:
            return self.idempotent
        request = self.request
        return request.method.upper() in self.plan.methods or self.keys.header in request.headers

    def _never_sent(self) -> bool:
        return self.error is not None and sent(self.error) is False

    def _merge_previous_run(self, run: Any) -> None:
        """Give a run that began with a failed body the start, records and delays of the previous run."""
        if self.merged_run is run:
            return
        self.merged_run = run
        past = self.previous_run
        spent = self.now() - self.started if past is None else run.started - past.started
        run.until = min(run.until, run.started - spent + run.policy._limit)
        run.started -= spent
        run.attempt = self.sends
        if past is None and run.records:
            verdict, kind, text, started, ended = run.records[-1]
            run.records[-1] = (verdict, kind, text, started - spent, ended)
            run.worked = run.counted = 0
        elif past is not None:
            run.delays, run.delays_by_kind = past.delays, past.delays_by_kind
            run.records[:0] = past.records[
                : len(past.records) // 2 * 2
            ]  # without the response whose body failed

    # ------------------------------------------- after a failed first attempt or body

    def restart(self, error: Exception) -> Any:
        """Resume the call after a body failed before any part of it was delivered."""
        with continuing_call():
            return self._restart(error)

    def _restart(self, error: Exception) -> Any:
        """Run the policy with this failure, of a first attempt or of a body, as its first result."""
        seconds = self._prepare_restart(error)
        if seconds == inf:
            return self.call(self)
        with deadline(seconds):
            return self.call(self)

    async def arestart(self, error: Exception) -> Any:
        """Resume the call after a body failed before any part of it was delivered."""
        with continuing_call():
            return await self._arestart(error)

    async def _arestart(self, error: Exception) -> Any:
        """Run the policy with this failure, of a first attempt or of a body, as its first result."""
        seconds = self._prepare_restart(error)
        if seconds == inf:
            return await self.call(self)
        with deadline(seconds):
            return await self.call(self)

    def _prepare_restart(self, error: Exception) -> float:
        """Record the failure and return the seconds left; raise it if the call is over."""
        seconds = self.seconds_left()
        if self.failed_finally or self.client_closed():
            self._attach_final_record(error)
            raise error
        if seconds <= 0:
            self._record(Reason.timeout, error).attach_to(error)
            raise error
        self.body_error, self.continued, self.merged_run = error, True, None
        return seconds

    def mismatch(self, error: Exception) -> Exception:
        """Annotate a body's error: the new response does not match the head already returned."""
        reason = getattr(stamp_of(self.error), "reason", None) if self.error is not None else None
        self.error = self.response = self.run = None
        self._record(reason or Reason.stopped, error).attach_to(error)
        return error

    # ------------------------------------------------------------------- when the call ends

    def final_response(self, error: Exception, timeout_types: TimeoutTypes) -> Any:
        """Return the response that the caller gets instead of this error of the policy, or None."""
        stamp: Any = stamp_of(error)
        if self.continued and isinstance(stamp, Run):
            self._merge_previous_run(stamp)
            first_attempt = stamp.attempt == 1 and stamp.reason is Reason.stopped
            annotate(error, stamp, None if first_attempt else PREFIX + summary_of(stamp))
        if self.error is error and self.response is not None:
            self.unread = None  # the caller closes it
            return self.response
        if isinstance(error, NotAccepted) and error.last is not None:
            self.error = error
            return error.last
        if stamp is self:
            annotate(error, self._record(Reason.stopped, error), None)
        self.error = self.response = self.run = None
        self._spend_key()
        client_type = timeout_types.get(type(error))
        if client_type is not None:
            typed: Any = error
            typed.__class__ = client_type
            typed._request = typed.request = self.request
            typed.response = None
        return None

    def finish(self, response: Any) -> None:
        """Stamp a response that is returned to the caller with the record of its call."""
        self.in_flight = False
        if self.key is not None and getattr(response, "status_code", 0) not in CHALLENGES:
            self._spend_key()
        if self.error is None and self.run is None:
            setattr(response, STAMP, LazyCallRecord(self.plan, self.started, self.now()))
            return
        stamp: Any = self.run if self.error is None else stamp_of(self.error)
        if isinstance(stamp, Run):
            if not stamp.ok and stamp.reason is None:
                stamp.returned(None, stamp.read_clock())  # the fast path records no result
            stamp.value = stamp.last = None  # breaks the reference cycle between response and record
            self.previous_run = stamp
        else:
            stamp = self._record(Reason.stopped, self.error)
        self.failed_finally = self.error is not None
        self.error = self.response = self.run = None
        setattr(response, STAMP, stamp)

    def _spend_key(self) -> None:
        if self.key is not None:
            self.key.spent = True  # the next call with the same request object gets a new key

    def report(self) -> Report:
        """Build the report so far, for a reader of an error that the policy has not judged yet."""
        return self._record(Reason.stopped, self.error).report()

    def __reduce__(self) -> tuple[Any, ...]:
        return return_report, (self.report(),)

    def mark_delivered(self, error: Exception) -> None:
        """Annotate an error: the caller had already received part of the body."""
        if self.failed_finally:
            self._attach_final_record(error)
        else:
            self._record(Reason.committed, error).attach_to(error)

    def _attach_final_record(self, error: Exception) -> None:
        """Annotate a body's error with the record of the call, which had failed before."""
        if isinstance(self.previous_run, Run):
            annotate(error, self.previous_run, PREFIX + summary_of(self.previous_run))
        else:
            self._record(Reason.stopped, error).attach_to(error)

    def _record(self, reason: Reason, error: Exception | None) -> CallRecord:
        return CallRecord(self.plan, reason, self.sends, self.now() - self.started, error)


@public("redouble.http")
def host(call: object, /) -> Hashable:
    """Return the host that one of our clients is about to call: the key function for `Keyed` in its policy.

    >>> from redouble import CircuitBreaker, Keyed, Retry
    >>> policy = Retry() | Keyed(host, CircuitBreaker)
    """
    if not isinstance(call, Exchange):
        raise TypeError(f"redouble.http.host is for the policy of an HTTP client, and was given {call!r}")
    return call.host


def status_text(status: int) -> str:
    """Return a status with its standard phrase: the server's phrase is untrusted and would enter reports."""
    return f"{status} {PHRASES.get(status, '')}".rstrip()


def _resend_error(reason: Reason, *, cut: bool) -> Exception:
    """Make the error of an attempt that must not be made, for use if the previous one left no error."""
    message = "not sent again: it may have arrived, and its method is not safe to repeat"
    if reason is not Reason.stopped:
        message = f"not sent again: {OUTCOMES[reason][0]}"
    return AttemptTimeout(message) if cut else Stopped(message, reason=reason)
