"""What one request has done, and the permission to send it, asked before every attempt and every retry.

It is the mark that a client of ours leaves on the error of each attempt. A request that may have arrived is
sent again only if its method, a key or its sender says that this does no harm, and only if its body can be.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Any

from redouble._clients.idempotency import Idempotency
from redouble._engine.outcome import OUTCOMES
from redouble._engine.report import STAMP, Mark
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import here
from redouble._runtime.deadline import left
from redouble.errors import AttemptTimeout, Reason, Stopped
from redouble.http._body import AGAIN, Content
from redouble.http._plan import HttpPlan
from redouble.http._rule import sent

__all__ = ["Permit"]

SLACK = 0.01  # second
SHORTEST = 0.001  # second to wait for: zero would mean not to wait at all, or for ever


class Permit(Mark):
    """What one logical request has done, and may do."""

    asked = True

    # As they are for nearly all: what is here costs a request nothing.
    how: Any = None  # what else the client wants to know when it sends
    idempotent: bool | None = None  # as the caller said
    sends = 0
    slack = 0.0  # seconds before its end at which the client is to stop waiting
    allowed = True  # to send
    again = False  # it has begun anew, because the body of an answer broke
    broken: Exception | None = None  # how that ended
    error: Exception | None = None  # of the last attempt
    answer: Any = None  # that this error stands for
    unread: Any = None  # the answer, if it was too large to be read: it may have to be closed
    run: Any = None  # the last that has retried
    past: Any = None  # the one before the body broke
    joined: Any = None  # the one that goes on after that
    final = False  # it has failed, and its last answer was handed out
    running = False  # an attempt that has not ended: it is, or it was cut
    ends = inf  # the moment at which the limits of the last attempt end it, its body included
    closed: Callable[[], bool] = bool  # whether the client is, so that nothing may begin
    key: Any = None  # that we have made for it

    def __init__(
        self,
        plan: HttpPlan,
        keys: Idempotency,
        request: Any,
        source: Content,
        host: Hashable,
        now: Callable[[], float],
    ) -> None:
        self.plan = plan
        self.keys = keys
        self.request = request
        self.source = source
        self.host = host
        self.call: Callable[[Any], Any] = plan.call_for(host)
        self.now: Callable[[], float] = here() if ambient.active else now
        self.started = self.now()
        self.until = self.started + plan.total  # of nearly all: for ever

    # ----------------------------------------------------------------- before an attempt

    def left(self) -> float:
        """Tell how long the attempt that begins may take at most."""
        if ambient.active:
            return min(self.until - self.now(), left())
        return inf if self.until == inf else self.until - self.now()

    def left_to_read(self) -> float:
        """Tell how long the body of the last answer may take."""
        return self.left() if self.ends == inf else min(self.ends - self.now(), self.left())

    def hurry(self, rest: float) -> float:
        """Return a little less than what is left: the client is to end first, who knows what it waits for."""
        self.slack = min(SLACK, rest / 5)
        return max(SHORTEST, rest - self.slack)

    def begins(self) -> None:
        """Take in that an attempt begins: what broke is its failure, or else the request is sent again."""
        broken, self.broken = self.broken, None
        if broken is not None:
            raise self.failed(broken, self.answer)
        if self.sends and self.closed():  # while we waited
            raise self.error or self.failed(_not_again(Reason.stopped, cut=self.running))
        # A policy has asked; a layer of the caller's own that calls twice has not.
        if not self.allowed and (reason := self._forbidden(unsent=self._unsent())) is not None:
            raise self.error or self.failed(_not_again(reason, cut=self.running))
        self.sends += 1
        self.allowed, self.running, self.ends = False, True, inf
        self.error = self.answer = None

    # --------------------------------------------------------------- how an attempt ended

    def fails(self, status: int, headers: object) -> bool:
        """Say whether an answer is a failure of the other side."""
        return self.plan.fails(status, headers)

    def failed(self, error: Exception, answer: Any = None) -> Exception:
        """Leave the mark on an attempt's error, for whoever is about to retry."""
        self.error, self.answer, self.running = error, answer, False
        try:
            vars(error)[STAMP] = self
        except Exception:  # it takes no marks: then nobody asks until the next attempt begins
            return error
        return error

    # -------------------------------------------------------------------- before a retry

    def meet(self, run: Any, /) -> Reason | None:
        """Answer why the request must not be sent again, if so."""
        self.run = run
        if self.again:  # there have been attempts before this run
            self._join(run)
            if self.sends >= self.plan.most:
                return Reason.attempts
        if self.closed():
            return Reason.stopped
        if self.slack and self.left() <= self.slack:
            return Reason.timeout  # what is left is what we have taken off it
        forbidden = self._forbidden(unsent=run.verdict.sent is False or self._unsent())
        self.allowed = forbidden is None
        return forbidden

    def _forbidden(self, *, unsent: bool) -> Reason | None:
        if not unsent and not self._harmless():
            return Reason.stopped
        # Asked last, because it rewinds: what was never begun, or begins anew, has lost nothing.
        if self.source is not AGAIN and not self.source.rewind() and not unsent:
            return Reason.not_replayable
        return None

    def _harmless(self) -> bool:
        """Say whether a request may be sent again though it may have arrived."""
        if self.idempotent is not None:
            return self.idempotent
        request = self.request
        return request.method.upper() in self.plan.methods or self.keys.header in request.headers

    def _unsent(self) -> bool:
        return self.error is not None and sent(self.error) is False

    def _join(self, run: Any) -> None:
        """Let a run that began with a broken body go on where the one before it ended."""
        if self.joined is run:
            return
        self.joined = run
        past = self.past
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


def _not_again(reason: Reason, *, cut: bool) -> Exception:
    """Make what an attempt fails with that may not be made, where the one before it has left no error."""
    message = "not sent again: it may have arrived, and its method may do harm when it does so twice"
    if reason is not Reason.stopped:
        message = f"not sent again: {OUTCOMES[reason][0]}"
    return AttemptTimeout(message) if cut else Stopped(message, reason=reason)
