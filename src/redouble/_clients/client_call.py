"""The state of one logical call of a client, and the report of a call without a run.

A `ClientCall` is the `ResendGuard` of the runs of its policy. An attempt that was not made by the policy (a
first attempt on the fast path, or one whose response body failed later) is handed to the engine as a failed
attempt of the outermost `Retry`: in ``failure``, and in ``run`` if a run has to be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, NamedTuple, Protocol

from redouble._clients.held_gate import HeldAdmissions
from redouble._engine.report import PREFIX, STAMP, AttemptRecord, Report, ResendGuard, annotate, stamp_of
from redouble._engine.run import Run
from redouble._engine.run_results import OUTCOMES, return_report, summary
from redouble._failures.transient import kind_of, transient
from redouble._failures.verdict import Verdict
from redouble._layers.keyed_table import KeyedEntry
from redouble._redaction.rendering import shown, text_of
from redouble._telemetry.emit import emit_timeout
from redouble.errors import AttemptTimeout, Reason

MARGIN = 0.001  # seconds by which clocks and timers may differ
DELAY = 0.005  # seconds between the starts of two limits of the same end


class TimeLimit(Protocol):
    """A time limit of one attempt, or of a part of the call: a run, or a `TimeoutOfCall`."""

    def time_left(self) -> float:
        """Return the seconds that are left."""
        ...

    def is_reached(self, slack: float) -> bool:
        """Return True if no more than ``slack`` seconds are left."""
        ...

    def expired(self) -> AttemptTimeout:
        """Record that the limit has ended an attempt; return the error."""
        ...


class PreviousHop(NamedTuple):
    """What a redirect leaves of a call for the request that follows it: both are one call."""

    plan: Any
    now: Callable[[], float]
    started: float
    run: Run | None  # of the outermost `Retry`, if it made the attempt
    request: Callable[[], Any]  # the request that was redirected
    response: Callable[[], Any]
    options: Any = None  # of the request, in the place where this is kept

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a response that is pickled keeps its request


class ClientCall(ResendGuard):
    """One logical call: when it started, its attempts, and whether another one may follow."""

    plan: Any  # the plan of its policy
    request: Any  # what the functions of a gate's options get
    sends: int = 0  # the number of attempts
    error: Exception | None = None  # the error of the last attempt
    run: Run | None = None  # the run of the outermost `Retry`
    failure: Exception | None = None  # the error of an attempt that the policy has yet to see
    verdicts: Mapping[object, Verdict] = {}  # of rules that were called before the policy judges an error
    entries: tuple[KeyedEntry, ...] = ()  # of the keyed layers of its policy; they live until the call ends
    held: HeldAdmissions | None = None  # of gates, until the body has ended
    previous: PreviousHop | None = None  # the redirect that led to this request, until the `Retry` begins
    cut: Exception | None = None  # the client's error of the last attempt, if a time limit has ended it
    slack = 0.0  # seconds by which the client's timeout ends before the attempt does
    client_deadline = inf  # when the client's own limit of the whole call expires, if it has one
    innermost_timeout: TimeoutOfCall | None = None  # of the layers inside the `Retry`, in the last attempt
    as_client_error: Callable[[Exception], Exception]  # makes a timeout error of ours one of the client too

    def __init__(self, plan: Any, now: Callable[[], float]) -> None:
        self.plan, self.now = plan, now
        self.started: float = now()

    def elapsed(self) -> float:
        """Return the seconds since the call started."""
        return self.now() - self.started

    def admissions(self) -> HeldAdmissions:
        """Return the admissions that the call holds."""
        if self.held is None:
            self.held = HeldAdmissions()
        return self.held

    def is_unread(self, response: object, /) -> bool:  # noqa: ARG002  not all clients have bodies
        """Return True if the body of a response is not there yet: its end will be recorded."""
        return False

    def failed_response(self, error: object, /) -> object:  # noqa: ARG002  not all clients have responses
        """Return the response that the error of the last attempt stands for, or None."""
        return None

    def record_failure(self, error: Exception) -> Exception:
        """Record the error of an attempt and stamp it, for rules that read its report."""
        self.error = error
        with suppress(Exception):  # an error may have no `__dict__`
            vars(error)[STAMP] = self
        return error

    def is_cut_by(self, limit: TimeLimit) -> bool:
        """Return True if this time limit has ended the last attempt, or was reached at the same time."""
        return self.cut is not None and limit.is_reached(self.slack + DELAY)

    def cut_error(self, error: AttemptTimeout) -> Exception:
        """Record the error of a limit that has ended the last attempt, made an error of the client too."""
        error.__cause__ = self.cut
        return self.record_failure(self.as_client_error(error))

    def begin_limits(self, run: Run) -> None:
        """Apply the limit of the client to a new run of the outermost `Retry`, and its limit to the call."""

    def timeouts_start(self) -> float:
        """Return the time when the limits of the whole call start, as its policy is entered."""
        return self.now()

    @contextmanager
    def limited_attempt(self, timeout: TimeoutOfCall) -> Generator[None]:
        """Record a `Timeout` around one attempt; if the attempt succeeds, it limits the body too."""
        self.innermost_timeout, succeeded = timeout, False
        try:
            yield
            succeeded = True
        finally:
            if not succeeded:
                self.innermost_timeout = timeout.outer

    def report(self) -> Report:
        """Build the report so far, for code that reads an error before a policy has judged it."""
        return self.report_for(Reason.stopped, self.error)

    def __reduce__(self) -> tuple[Any, ...]:
        return return_report, (self.report(),)

    def report_for(self, reason: Reason | None, error: Exception | None) -> Report:
        """Build a report in which all attempts are one record, with the last error."""
        return make_report(self.plan, reason, self.sends, self.elapsed(), error)

    def annotate(self, error: Exception, reason: Reason) -> None:
        """Stamp an error with the report of this call, and add a note."""
        report = self.report_for(reason, error)
        annotate(error, report, PREFIX + summary(report.attempts, report.elapsed, OUTCOMES[reason][0]))

    def replace_stamp(self, error: Exception) -> None:
        """Replace the stamp of `record_failure`, which no policy has replaced, by the report of this call."""
        if stamp_of(error) is self:
            annotate(error, self.report_for(Reason.stopped, error), None)


class TimeoutOfCall:
    """The limit of a `Timeout` layer on one call of a client, or on one attempt."""

    def __init__(self, seconds: float, name: str, call: ClientCall, *, whole: bool) -> None:
        """Begin now, or with the limits of the call if it limits the ``whole`` of it."""
        self._seconds, self._name, self._now = seconds, name, call.now
        self._until = (call.timeouts_start() if whole else call.now()) + seconds
        self.outer = None if whole else call.innermost_timeout

    def time_left(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self._until - self._now())

    def is_reached(self, slack: float) -> bool:
        """Return True if no more than ``slack`` seconds are left."""
        return self.time_left() <= slack

    def expired(self) -> AttemptTimeout:
        """Emit that the limit was reached; return the error."""
        return emit_timeout(self.error(), self._name)

    def error(self) -> AttemptTimeout:
        """Return the error of the limit."""
        text = f"the request of {self._name} took longer than {self._seconds:g} s"
        return AttemptTimeout(text, limit="attempt", seconds=self._seconds)


def make_report(
    plan: Any, reason: Reason | None, attempts: int, elapsed: float, error: Exception | None
) -> Report:
    """Build the report of a call without a run."""
    kind = name = text = None
    if error is not None:
        verdict = transient(error)
        kind = (None if verdict is None else verdict.kind) or kind_of(type(error))
        name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        text = shown(text_of(error))
    record = AttemptRecord(attempts, kind, name, text, 0.0, elapsed, None, None)
    labels = dict(plan.labels)
    return Report(reason, attempts, elapsed, elapsed, name=plan.name, labels=labels, history=(record,))
