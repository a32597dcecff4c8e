"""One logical request: the state of all its attempts, the decision whether it may be resent, and its result.

The engine consults the `Exchange` before each retry (`Exchange.veto`). A request that may have reached the
server is resent only if its method, an idempotency key or the caller declares it idempotent, and only if its
body can be sent a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from http import HTTPStatus
from math import inf
from typing import Any, NamedTuple, cast

from redouble._clients.client_call import MARGIN, ClientCall, PreviousHop, TimeoutOfCall, make_report
from redouble._clients.library_error import join_library, library_copy, library_error_class
from redouble._engine.report import PREFIX, STAMP, Report, annotate, stamp_of
from redouble._engine.run import Run
from redouble._engine.run_results import OUTCOMES, return_report, summary_of
from redouble._failures.verdict import RETRY, Ended, Verdict
from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import SYSTEM, context_clock, fast_reader
from redouble._runtime.deadline import uninterrupted_time_left
from redouble._telemetry.emit import emit_timeout
from redouble.errors import (
    AttemptTimeout,
    ConfigError,
    DeadlineExceeded,
    NotAccepted,
    Reason,
    RedoubleError,
    Stopped,
)
from redouble.http._plan import HttpPlan
from redouble.http._request_body import Rewind, nothing_to_rewind
from redouble.http._rule import is_untouched, sent

NOW = fast_reader(SYSTEM, aio=False)  # the clock of the fast path, and of budgets in every colour
SLACK = 0.01  # seconds
MAX_CONTEXTS = 9  # followed from an error of a client to that of its socket
MIN_TIMEOUT = 0.001  # seconds; clients read zero as no wait at all or as no limit
PHRASES = {status.value: status.phrase for status in HTTPStatus}
DEFAULT_PORTS = {"http": 80, "https": 443}
CHALLENGES = (401, 407)  # the client answers these by resending the same request in the same call


class IssuedKey:
    """An idempotency key made by a client; ``spent`` once its call has ended."""

    def __init__(self, text: str) -> None:
        self.text, self.spent = text, False


class SuccessRecord(NamedTuple):
    """The stamp of a response that an attempt got at once: the report, or an exchange, is made on request."""

    client: Any
    plan: HttpPlan
    request: Any
    deliver: Any
    started: float
    ended: float
    pending: Callable[[float], object] | None  # credits the budget, when the body is there
    reason: None = None  # as in every stamp: it did not give up

    def exchange(self) -> Exchange:
        """Create the exchange of the request, because its body has failed."""
        exchange: Exchange = self.client._resume_exchange(self.plan, self.request, self.deliver, self.started)
        return exchange

    def body_ended(self, error: BaseException | None) -> None:
        """Credit the budget for a complete body."""
        if error is None and self.pending is not None:
            self.pending(NOW())

    def report(self) -> Report:
        """Build the report."""
        return make_report(self.plan, None, 1, self.ended - self.started, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return return_report, (self.report(),)


class Exchange(ClientCall):
    """One logical request: its attempts so far, and whether it may be sent again."""

    # Defaults are class attributes, because most requests keep them: they cost nothing per request.
    idempotent: bool | None = None  # as declared by the caller; None: by method and key
    resend_allowed = True  # True if the next attempt may send the request
    answer: Any = None  # the response of the last attempt, successful or not
    unread: Any = None  # the last attempt's response, if it may be unread: closed unless returned
    failed_finally = False  # True if the call failed and its last response was returned
    in_flight = False  # True while an attempt runs, and after one was cancelled
    attempt_deadline = inf  # when the last attempt's time limit expires, body included
    key: IssuedKey | None = None  # the key that the client has added
    credits: tuple[Callable[[], object], ...] = ()  # of budgets, for when the body is there

    def __init__(self, client: Any, plan: HttpPlan, request: Any, rewind: Rewind, deliver: Any) -> None:
        super().__init__(plan, context_clock() if ambient.active else client._now)
        self.client = client  # the `Sender` or `AsyncSender`
        self.request = request
        self.rewind = rewind
        self.host: Hashable = client._host_of(request)
        self.deliver = deliver  # the library's function that sends the request once
        self.use(plan)
        self.client_deadline = self.started + client._client_limit(request, deliver)

    def use(self, plan: HttpPlan) -> None:
        """Set the plan of the call."""
        self.plan = plan
        self.call: Callable[[Any], Any] = plan.call_for(self.host)
        self.call_deadline = self.started + plan.outer_limit  # inf for most calls

    def follow(self, previous: PreviousHop) -> None:
        """Continue a call whose previous request was redirected to this one."""
        elapsed = previous.now() - previous.started
        self.previous = previous
        self.started -= elapsed
        self.client_deadline -= elapsed
        self.use(self.plan)

    # ----------------------------------------------------------------- before an attempt

    def begin_limits(self, run: Run) -> None:
        now = run.refresh_now()
        left = run.started + run.policy._total - now
        self.call_deadline = min(self.started + self.plan.outer_limit, self.now() + left)
        run.deadline = min(run.deadline, now + self.client_deadline - self.now())
        run.until = min(run.until, run.deadline)

    def timeouts_start(self) -> float:
        return self.started  # also when a call continues after its body has failed

    def seconds_left(self) -> float:
        """Return the seconds that the next attempt may take."""
        seconds = min(self.call_deadline, self.client_deadline) - self.now()
        return min(seconds, uninterrupted_time_left())

    def seconds_left_to_read(self) -> float:
        """Return the seconds that reading the last response body may take."""
        return min(self.attempt_deadline - self.now(), self.seconds_left())

    def shorten_timeout(self, seconds: float) -> float:
        """Return a client timeout just below ``seconds``: the client, which knows the cause, ends first."""
        self.slack = min(SLACK, seconds / 5)
        return max(MIN_TIMEOUT, seconds - self.slack)

    def begin_attempt(self) -> None:
        """Record the start of an attempt; raise if the request must not be resent."""
        reason = None
        if self.sends and self.client._is_closed(self.request):  # during the backoff
            reason = Reason.stopped
        elif not self.resend_allowed:
            # The engine asks `veto` before a retry; a user's layer that calls twice never does.
            reason = self._resend_veto(RETRY)
        if reason is not None:
            raise self.error or self.record_failure(_resend_error(reason, cut=self.in_flight))
        self.sends += 1
        self.resend_allowed, self.in_flight, self.attempt_deadline = False, True, inf
        self.error = self.answer = self.cut = None
        self.verdicts = {}

    # --------------------------------------------------------------- how an attempt ended

    def record_success(self, response: Any) -> None:
        """Record the response of a successful attempt."""
        self.answer, self.in_flight = response, False
        if not self.client._is_in_memory(response):
            self.unread = response

    def record_failure(self, error: Exception, response: Any = None) -> Exception:
        """Record the error of an attempt, and the response that it reports, if any."""
        self.answer, self.in_flight = response, False
        return super().record_failure(error)

    def record_error(self, error: Exception) -> Exception:
        """Record the error of an attempt that was made outside of the policy; return what the policy gets."""
        self.record_failure(error)
        return self.timeout_error() if self.is_out_of_time(error) else error

    def is_out_of_time(self, error: Exception) -> bool:
        """Return True if a limit of ours has ended the attempt: the client timed out when it was reached."""
        if self.seconds_left_to_read() <= self.slack + MARGIN and self._is_timeout(error):
            self.cut = error
        return self.cut is error

    def _is_timeout(self, error: BaseException) -> bool:
        """Return True if this is an error of a timeout, or the client has made it from one."""
        chain = [error]
        while len(chain) < MAX_CONTEXTS and (context := chain[-1].__context__) is not None:
            chain.append(context)
        return any(isinstance(each, (*self.client._timeout_errors, TimeoutError)) for each in chain)

    def timeout_error(self) -> Exception:
        """Return the error of an attempt that a limit has ended; a `Retry` or `Timeout` may replace it."""
        timeout = self.innermost_timeout
        while timeout is not None and not self.is_cut_by(timeout):
            timeout = timeout.outer
        if timeout is not None:
            return self.cut_error(timeout.expired())
        if self.plan.outermost is None and self.call_deadline - self.now() <= self.slack + MARGIN:
            return self.cut_error(TimeoutOfCall(self.plan.total, self.plan.name, self, whole=True).error())
        text = f"the request of {self.plan.name} was cut after {self.elapsed():.3g} s: the deadline"
        return self.cut_error(AttemptTimeout(text, limit="deadline", seconds=self.elapsed()))

    def refuse_to_send(self) -> Exception:
        """Return the error of an attempt for which no time is left."""
        self.sends -= 1
        text = f"the request of {self.plan.name} was not sent: the deadline has passed"
        self.cut = error = AttemptTimeout(text, limit="deadline", seconds=0.0)
        return self.record_failure(self.as_client_error(error))

    def is_retried(self, error: Exception) -> bool:
        """Return True if a rule of the policy retries a status that is no failure by itself."""
        with suppress(Exception):  # an error may have no `__dict__`
            vars(error)[STAMP] = self
        try:
            retried: bool = self.plan.retries_status(self, self.ended(error))
        except Exception:
            retried = True  # the engine calls the rule again, and raises its error
        if retried:
            self.error = error
        return retried

    def ended(self, error: Exception) -> Ended:
        """Return how the running attempt has ended, for a rule to judge."""
        if self.run is not None:
            self.run.refresh_now()
            return self.run.attempt_result(error)
        elapsed = self.elapsed()
        return Ended(self.sends, error, None, elapsed, elapsed, elapsed, self.plan.labels)

    # ------------------------------------------------------------- until the body has ended

    def is_unread(self, response: object, /) -> bool:
        """Return True if the body of a response is not there yet: its end will be recorded."""
        return response is not None and response is self.unread and not self.client._is_empty(self, response)

    def failed_response(self, error: object, /) -> object:
        """Return the response that the error of the last attempt stands for, or None."""
        return self.answer if error is self.error else None

    def succeeded(self, credit: Callable[[], None], /) -> None:
        """Credit a budget when the body is there."""
        if not self.is_unread(self.unread):
            credit()
        else:
            self.credits = (*self.credits, credit)

    @property
    def pending(self) -> bool:
        """True if the end of the body has to be recorded."""
        return bool(self.held or self.credits)

    def body_failed(self, error: BaseException) -> None:
        """Record that the body of an attempt has broken, before the call restarts."""
        self.credits = ()
        if self.held is not None:
            self.held.end(error, attempt_only=True)

    def body_ended(self, error: BaseException | None) -> None:
        """Record the end of the body: None if it is complete or was closed."""
        earned, self.credits = self.credits, ()
        if error is None:
            for credit in earned:
                credit()
        if self.held is not None:
            self.held.end(error)

    # -------------------------------------------------------------------- before a retry

    def veto(self, verdict: Verdict, /) -> Reason | None:
        """Return the reason why the request must not be resent, or None."""
        if self.client._is_closed(self.request):
            return Reason.stopped
        if self.slack and self.seconds_left() <= self.slack:
            return Reason.timeout  # only the slack is left
        reason = self._resend_veto(verdict)
        self.resend_allowed = reason is None
        return reason

    def _resend_veto(self, verdict: Verdict) -> Reason | None:
        idempotent = self._is_idempotent()
        if idempotent and self.rewind is nothing_to_rewind:
            return None
        if not (idempotent or self._is_unsent(verdict)):
            return Reason.stopped
        # Last, because it rewinds. A body that was never sent is complete even if it cannot be rewound.
        return None if self.rewind() or is_untouched(self.cut or self.error) else Reason.not_replayable

    def _is_idempotent(self) -> bool:
        """Return True if the request may be resent although it may have reached the server."""
        if self.idempotent is not None:
            return self.idempotent
        request = self.request
        return request.method.upper() in self.plan.methods or self.client._keys.header in request.headers

    def _is_unsent(self, verdict: Verdict) -> bool:
        """Return True if the last attempt sent nothing: by the verdict, or else by its error."""
        if verdict.sent is not None:
            return not verdict.sent
        error = self.cut or self.error
        return error is not None and sent(error) is False

    # ---------------------------------------------- an attempt that failed outside of the policy

    def begin_again(self) -> Any:
        """Continue the call, whose last attempt failed outside of the policy: return the policy's result.

        In async code, return its awaitable. Raise the error if the call is over.
        """
        error = cast("Exception", self.error)
        try:
            if self.failed_finally or self.client._is_closed(self.request):
                self._annotate_finally(error)
            elif self.cut is None and self.seconds_left() <= 0:
                self.annotate(error, Reason.timeout)
            elif self.plan.outermost is None:
                self.annotate(error, Reason.stopped if self.cut is None else Reason.timeout)
                if isinstance(error, AttemptTimeout) and error.limit == "attempt":
                    emit_timeout(error, self.plan.name)  # the layer that does so has returned
            else:
                self.failure = error
                return self.call(self)
            raise error
        finally:
            del error  # breaks the reference cycle between this frame and its error

    def mismatch(self, error: Exception) -> Exception:
        """Annotate a body's error: the new response does not match the head already returned."""
        reason = None if self.run is None else self.run.reason
        self.error = self.answer = self.run = None
        self.annotate(error, reason or Reason.stopped)
        return error

    # ------------------------------------------------------------------- when the call ends

    def hand_over(self, response: Any) -> Any:
        """Return the response that the policy returned; the caller closes it."""
        if response is self.unread:
            self.unread = None
        return response

    def final_response(self, error: Exception) -> Any:
        """Return the response that the caller gets instead of this error of the policy, or None."""
        if self.error is error and self.answer is not None:
            return self.hand_over(self.answer)
        if isinstance(error, NotAccepted) and error.last is not None:
            self.error = error
            return self.hand_over(error.last)
        self.replace_stamp(error)
        self._ended()
        if type(error) in (DeadlineExceeded, AttemptTimeout):
            if self.cut is not None and isinstance(error, DeadlineExceeded):
                error.args = (f"{error}; {self.error}",)  # which limit it was
            self.as_client_error(error)
        self.error = self.answer = self.run = self.cut = None
        self._spend_key()
        return None

    def as_client_error(self, error: Exception) -> Exception:
        typed, client = cast("Any", error), self.client
        typed.__class__ = library_error_class((type(error), client._timeout_error), client._module)
        typed._request = typed.request = self.request
        typed.response = None
        return error

    def is_of_library(self, error: Exception) -> bool:
        """Return False for an error of ours that has to be copied, to be one of the library too.

        All others are made so here. Errors that are not ours stay as they are.
        """
        base = self.client._base_error
        if not isinstance(error, RedoubleError) or isinstance(error, ConfigError | base):
            return True
        typed = cast("Any", error)
        typed._request = typed.request = self.request
        typed.response = None
        return join_library(error, base, self.client._module)

    def library_copy(self, error: Exception) -> Exception:
        """Return a copy of an error of ours that is one of the library too."""
        copy: Exception = library_copy(error, self.client._base_error, self.client._module)
        return copy

    def replace_stamp(self, error: Exception) -> None:
        if self.cut is None:
            super().replace_stamp(error)
        elif stamp_of(error) is self:
            run = self.run
            annotate(
                error,
                self.report_for(Reason.timeout, error) if run is None or run.reason is None else run,
                None,
            )

    def finish(self, response: Any) -> bool:
        """Stamp a response that is returned to the caller; return True if the last attempt got it.

        Any other response (of a fallback, of another client, of an earlier attempt) is not touched: what is
        attached to a response belongs to the attempt that got it.
        """
        own = response is self.answer
        self.in_flight = False
        self._ended()
        if self.key is not None and getattr(response, "status_code", 0) not in CHALLENGES:
            self._spend_key()
        stamp: Any = self.run
        if self.run is not None:
            self.run.value = self.run.last = None  # breaks the reference cycle between response and record
        elif self.error is None:
            stamp = SuccessRecord(self.client, self.plan, None, None, self.started, self.now(), None)
        else:
            stamp = self.report()
        self.failed_finally = self.error is not None
        self.error = self.answer = self.cut = None
        if own:
            setattr(response, STAMP, stamp)
            self.client._keep_redirect(self, self.run, response)
        return own

    def _ended(self) -> None:
        """Record the time at which the layers of the call's key were used last."""
        for entry in self.entries:
            entry.used = SYSTEM.now()

    def _spend_key(self) -> None:
        if self.key is not None:
            self.key.spent = True  # the next call with the same request object gets a new key

    def mark_delivered(self, error: Exception) -> None:
        """Annotate an error: the caller had already received part of the body."""
        if self.failed_finally:
            self._annotate_finally(error)
        else:
            self.annotate(error, Reason.committed)
        self.body_ended(error)

    def _annotate_finally(self, error: Exception) -> None:
        """Annotate a body's error with the record of the call, which had failed before."""
        if self.run is None:
            self.annotate(error, Reason.stopped)
        else:
            annotate(error, self.run, PREFIX + summary_of(self.run))


def origin(scheme: str, host: str, port: int | None) -> str:
    """Return scheme, host and effective port as a text that is the same in every client.

    host: as it is sent: in ASCII, an IPv6 address without brackets.
    port: None for the default port of the scheme.
    """
    scheme, host = scheme.lower(), host.lower()
    port = DEFAULT_PORTS.get(scheme) if port is None else port
    return f"{scheme}://{f'[{host}]' if ':' in host else host}" + (f":{port}" if port is not None else "")


@public("redouble.http")
def host(call: object, /) -> Hashable:
    """Return the origin that one of our clients is about to call: the key function for `Keyed` in its policy.

    It is a text of scheme, host and effective port, such as ``"https://example.org:443"``, in every client.

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
