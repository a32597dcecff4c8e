"""One logical request and all of its attempts: what became of them, and what comes out.

What may be sent, and how often, is known to `_permit`.

What one request has done, and the permission to send it, asked before every attempt and every retry.

It is the mark that a client of ours leaves on the error of each attempt. A request that may have arrived is
sent again only if its method, a key or its sender says that this does no harm, and only if its body can be.

Which host a request goes to, for layers that go by host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from http import HTTPStatus
from math import inf
from typing import Any, TypeAlias

from redouble._clients.call_record import CallRecord, LazyCallRecord
from redouble._clients.idempotency import Idempotency
from redouble._engine.outcome import OUTCOMES, itself, summary_of
from redouble._engine.report import PREFIX, STAMP, Report, RetryVeto, annotate, stamp_of
from redouble._engine.run import Run
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


SLACK = 0.01  # second
MIN_TIMEOUT = 0.001  # second to wait for: zero would mean not to wait at all, or for ever
PHRASES = {status.value: status.phrase for status in HTTPStatus}
# What an error of ours, about time, is made into, so that it is one of the client's too.
TimeoutTypes: TypeAlias = Mapping[type[Exception], type[Exception]]

CHALLENGES = (401, 407)  # after which the same call goes on, with the same request


class Exchange(RetryVeto):
    """What one logical request has done, and may do."""

    asked = True

    # As they are for nearly all: what is here costs a request nothing.
    how: Any = None  # what else the client wants to know when it sends
    idempotent: bool | None = None  # as the caller said
    sends = 0
    slack = 0.0  # seconds before its end at which the client is to stop waiting
    resend_allowed = True  # to send
    continued = False  # it has begun anew, because the body of an answer broke
    body_error: Exception | None = None  # how that ended
    error: Exception | None = None  # of the last attempt
    response: Any = None  # that this error stands for
    unread: Any = None  # the answer, if it was too large to be read: it may have to be closed
    run: Any = None  # the last that has retried
    previous_run: Any = None  # the one before the body broke
    merged_run: Any = None  # the one that goes on after that
    failed_finally = False  # it has failed, and its last answer was handed out
    in_flight = False  # an attempt that has not ended: it is, or it was cut
    attempt_deadline = inf  # the moment at which the limits of the last attempt end it, its body included
    client_closed: Callable[[], bool] = bool  # whether the client is, so that nothing may begin
    key: Any = None  # that we have made for it

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
        self.call_deadline = self.started + plan.total  # of nearly all: for ever

    def outcome(self, late: TimeoutTypes, failure: Exception | None, response: Any) -> Any:
        """Return the answer to hand out: go on from what the first attempt gave, or from the beginning."""
        try:
            if failure is not None:
                return self._restart(failure)
            return self.call(self) if response is None else response
        except Exception as error:
            response = self.final_response(error, late)
            if response is None:
                raise
            return response
        finally:
            failure = None  # or this frame and its error would keep each other alive

    async def aoutcome(self, late: TimeoutTypes, failure: Exception | None, response: Any) -> Any:
        """Return the answer to hand out: go on from what the first attempt gave, or from the beginning."""
        try:
            if failure is not None:
                return await self._arestart(failure)
            return await self.call(self) if response is None else response
        except Exception as error:
            response = self.final_response(error, late)
            if response is None:
                raise
            return response
        finally:
            failure = None  # or this frame and its error would keep each other alive

    # ----------------------------------------------------------------- before an attempt

    def seconds_left(self) -> float:
        """Tell how long the attempt that begins may take at most."""
        if ambient.active:
            return min(self.call_deadline - self.now(), time_left())
        return inf if self.call_deadline == inf else self.call_deadline - self.now()

    def seconds_left_to_read(self) -> float:
        """Tell how long the body of the last answer may take."""
        return (
            self.seconds_left()
            if self.attempt_deadline == inf
            else min(self.attempt_deadline - self.now(), self.seconds_left())
        )

    def shorten_timeout(self, rest: float) -> float:
        """Return a little less than what is left: the client is to end first, who knows what it waits for."""
        self.slack = min(SLACK, rest / 5)
        return max(MIN_TIMEOUT, rest - self.slack)

    def begin_attempt(self) -> None:
        """Take in that an attempt begins: what broke is its failure, or else the request is sent again."""
        broken, self.body_error = self.body_error, None
        if broken is not None:
            raise self.record_failure(broken, self.response)
        if self.sends and self.client_closed():  # while we waited
            raise self.error or self.record_failure(_resend_error(Reason.stopped, cut=self.in_flight))
        # A policy has asked; a layer of the caller's own that calls twice has not.
        if not self.resend_allowed and (reason := self._veto(unsent=self._never_sent())) is not None:
            raise self.error or self.record_failure(_resend_error(reason, cut=self.in_flight))
        self.sends += 1
        self.resend_allowed, self.in_flight, self.attempt_deadline = False, True, inf
        self.error = self.response = None

    # --------------------------------------------------------------- how an attempt ended

    def is_failure(self, status: int, headers: object) -> bool:
        """Say whether an answer is a failure of the other side."""
        return self.plan.fails(status, headers)

    def record_failure(self, error: Exception, answer: Any = None) -> Exception:
        """Leave the mark on an attempt's error, for whoever is about to retry."""
        self.error, self.response, self.in_flight = error, answer, False
        try:
            vars(error)[STAMP] = self
        except Exception:  # it takes no marks: then nobody asks until the next attempt begins
            return error
        return error

    # -------------------------------------------------------------------- before a retry

    def check(self, run: Any, /) -> Reason | None:
        """Answer why the request must not be sent again, if so."""
        self.run = run
        if self.continued:  # there have been attempts before this run
            self._merge_previous_run(run)
            if self.sends >= self.plan.max_attempts:
                return Reason.attempts
        if self.client_closed():
            return Reason.stopped
        if self.slack and self.seconds_left() <= self.slack:
            return Reason.timeout  # what is left is what we have taken off it
        forbidden = self._veto(unsent=run.verdict.sent is False or self._never_sent())
        self.resend_allowed = forbidden is None
        return forbidden

    def _veto(self, *, unsent: bool) -> Reason | None:
        if not unsent and not self._is_idempotent():
            return Reason.stopped
        # Asked last, because it rewinds: what was never begun, or begins anew, has lost nothing.
        if self.body is not RESENDABLE and not self.body.rewind() and not unsent:
            return Reason.not_replayable
        return None

    def _is_idempotent(self) -> bool:
        """Say whether a request may be sent again though it may have arrived."""
        if self.idempotent is not None:
            return self.idempotent
        request = self.request
        return request.method.upper() in self.plan.methods or self.keys.header in request.headers

    def _never_sent(self) -> bool:
        return self.error is not None and sent(self.error) is False

    def _merge_previous_run(self, run: Any) -> None:
        """Let a run that began with a broken body go on where the one before it ended."""
        if self.merged_run is run:
            return
        self.merged_run = run
        past = self.previous_run
        spent = self.now() - self.started if past is None else run.started - past.started
        run.until = min(run.until, run.started - spent + run.policy._limit)
        run.started -= spent
        run.attempt = self.sends
        if past is None and run.records:
            verdict, kind, text, started, took = run.records[-1]
            run.records[-1] = (verdict, kind, text, started - spent, took + spent)
            run.work += spent
        elif past is not None:
            run.delays, run.by_kind = past.delays, past.by_kind
            run.records[:0] = past.records[: len(past.records) // 2 * 2]  # without the answer that broke

    # ------------------------------------------- a first attempt, or a body, that has failed

    def restart(self, error: Exception) -> Any:
        """Begin again with this failure of a body that the caller had none of."""
        with continuing_call():
            return self._restart(error)

    def _restart(self, error: Exception) -> Any:
        """Begin with this failure: of a first attempt, or of a body."""
        rest = self._prepare_restart(error)
        if rest == inf:
            return self.call(self)
        with deadline(rest):
            return self.call(self)

    async def arestart(self, error: Exception) -> Any:
        """Begin again with this failure of a body that the caller had none of."""
        with continuing_call():
            return await self._arestart(error)

    async def _arestart(self, error: Exception) -> Any:
        """Begin with this failure: of a first attempt, or of a body."""
        rest = self._prepare_restart(error)
        if rest == inf:
            return await self.call(self)
        with deadline(rest):
            return await self.call(self)

    def _prepare_restart(self, error: Exception) -> float:
        """Take in that it failed; return how long there is, or raise the error if there is no time."""
        rest = self.seconds_left()
        if self.failed_finally or self.client_closed():
            self._attach_final_record(error)
            raise error
        if rest <= 0:
            self._record(Reason.timeout, error).tell(error)
            raise error
        self.body_error, self.continued, self.merged_run = error, True, None
        return rest

    def mismatch(self, error: Exception) -> Exception:
        """Tell the story on the error of a body: the answer after it does not fit the head of this one."""
        reason = getattr(stamp_of(self.error), "reason", None) if self.error is not None else None
        self.error = self.response = self.run = None
        self._record(reason or Reason.stopped, error).tell(error)
        return error

    # ------------------------------------------------------------------- once it is over

    def final_response(self, error: Exception, late: TimeoutTypes) -> Any:
        """Return the answer that comes out instead of an error of the policy's, or None."""
        stamp: Any = stamp_of(error)
        if self.continued and isinstance(stamp, Run):
            self._merge_previous_run(stamp)
            at_once = stamp.attempt == 1 and stamp.reason is Reason.stopped
            annotate(error, stamp, None if at_once else PREFIX + summary_of(stamp))
        if self.error is error and self.response is not None:
            self.unread = None  # it is the caller's now
            return self.response
        if isinstance(error, NotAccepted) and error.last is not None:
            self.error = error
            return error.last
        if stamp is self:
            annotate(error, self._record(Reason.stopped, error), None)
        self.error = self.response = self.run = None
        self._spend_key()
        both = late.get(type(error))
        if both is not None:
            known: Any = error
            known.__class__ = both
            known._request = known.request = self.request
            known.response = None
        return None

    def finish(self, response: Any) -> None:
        """Leave the story on an answer that is handed out: of a failure, if it is one."""
        self.in_flight = False
        if self.key is not None and getattr(response, "status_code", 0) not in CHALLENGES:
            self._spend_key()
        if self.error is None and self.run is None:
            setattr(response, STAMP, LazyCallRecord(self.plan, self.started, self.now()))
            return
        stamp: Any = self.run if self.error is None else stamp_of(self.error)
        if isinstance(stamp, Run):
            if not stamp.ok and stamp.reason is None:
                stamp.returned(None, stamp.reading())  # it has told nobody, because nobody had to be told
            stamp.value = stamp.last = None  # or the answer and its story would keep each other alive
            self.previous_run = stamp
        else:
            stamp = self._record(Reason.stopped, self.error)
        self.failed_finally = self.error is not None
        self.error = self.response = self.run = None
        setattr(response, STAMP, stamp)

    def _spend_key(self) -> None:
        if self.key is not None:
            self.key.spent = True  # another call with the same request is another call

    def report(self) -> Report:
        """Build the report as it is now, for those who look at an error before the policy has decided."""
        return self._record(Reason.stopped, self.error).report()

    def __reduce__(self) -> tuple[Any, ...]:
        return itself, (self.report(),)

    def mark_delivered(self, error: Exception) -> None:
        """Say on an error that the caller has had some of the answer already."""
        if self.failed_finally:
            self._attach_final_record(error)
        else:
            self._record(Reason.committed, error).tell(error)

    def _attach_final_record(self, error: Exception) -> None:
        """Say on the error of a body what the call has done, which had failed before."""
        if isinstance(self.previous_run, Run):
            annotate(error, self.previous_run, PREFIX + summary_of(self.previous_run))
        else:
            self._record(Reason.stopped, error).tell(error)

    def _record(self, reason: Reason, error: Exception | None) -> CallRecord:
        return CallRecord(self.plan, reason, self.sends, self.now() - self.started, error)


@public("redouble.http")
def host(call: object, /) -> Hashable:
    """Return the host that a client of ours is about to call: a key for `Keyed` in the policy of a client.

    >>> from redouble import CircuitBreaker, Keyed, Retry
    >>> policy = Retry() | Keyed(host, CircuitBreaker)
    """
    if not isinstance(call, Exchange):
        raise TypeError(f"redouble.http.host is for the policy of an HTTP client, and was given {call!r}")
    return call.host


def status_text(status: int) -> str:
    """Say a status in words of our own: those of the server end up in histories, and may be anything."""
    return f"{status} {PHRASES.get(status, '')}".rstrip()


def _resend_error(reason: Reason, *, cut: bool) -> Exception:
    """Make what an attempt fails with that may not be made, where the one before it has left no error."""
    message = "not sent again: it may have arrived, and its method may do harm when it does so twice"
    if reason is not Reason.stopped:
        message = f"not sent again: {OUTCOMES[reason][0]}"
    return AttemptTimeout(message) if cut else Stopped(message, reason=reason)
