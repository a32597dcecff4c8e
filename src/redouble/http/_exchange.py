"""One logical request and all of its attempts: what became of them, and what comes out.

What may be sent, and how often, is known to `_permit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import inf
from typing import Any, TypeAlias

from redouble._clients.call_record import Story, Told
from redouble._engine.outcome import itself, summary_of
from redouble._engine.report import PREFIX, STAMP, Report, annotate, stamp_of
from redouble._engine.run import Run
from redouble._runtime.deadline import deadline
from redouble._telemetry.emit import going_on
from redouble.errors import NotAccepted, Reason
from redouble.http._permit import Permit

__all__ = ["Exchange", "spelled_status"]


def spelled_status(status: int) -> str:
    """Say a status in words of our own: those of the server end up in histories, and may be anything."""
    return f"{status} {PHRASES.get(status, '')}".rstrip()


PHRASES = {status.value: status.phrase for status in HTTPStatus}
# What an error of ours, about time, is made into, so that it is one of the client's too.
Late: TypeAlias = Mapping[type[Exception], type[Exception]]

CHALLENGES = (401, 407)  # after which the same call goes on, with the same request


class Exchange(Permit):
    """One logical request and all of its attempts."""

    def outcome(self, late: Late, failure: Exception | None, response: Any) -> Any:
        """Return the answer to hand out: go on from what the first attempt gave, or from the beginning."""
        try:
            if failure is not None:
                return self._restarted(failure)
            return self.call(self) if response is None else response
        except Exception as error:
            response = self.answer_in(error, late)
            if response is None:
                raise
            return response
        finally:
            failure = None  # or this frame and its error would keep each other alive

    async def aoutcome(self, late: Late, failure: Exception | None, response: Any) -> Any:
        """Return the answer to hand out: go on from what the first attempt gave, or from the beginning."""
        try:
            if failure is not None:
                return await self._arestarted(failure)
            return await self.call(self) if response is None else response
        except Exception as error:
            response = self.answer_in(error, late)
            if response is None:
                raise
            return response
        finally:
            failure = None  # or this frame and its error would keep each other alive

    # ------------------------------------------------------------------- once it is over

    def answer_in(self, error: Exception, late: Late) -> Any:
        """Return the answer that comes out instead of an error of the policy's, or None."""
        stamp: Any = stamp_of(error)
        if self.again and isinstance(stamp, Run):
            self._join(stamp)
            at_once = stamp.attempt == 1 and stamp.reason is Reason.stopped
            annotate(error, stamp, None if at_once else PREFIX + summary_of(stamp))
        if self.error is error and self.answer is not None:
            self.unread = None  # it is the caller's now
            return self.answer
        if isinstance(error, NotAccepted) and error.last is not None:
            self.error = error
            return error.last
        if stamp is self:
            annotate(error, self._story(Reason.stopped, error), None)
        self.error = self.answer = self.run = None
        self._spend_key()
        both = late.get(type(error))
        if both is not None:
            known: Any = error
            known.__class__ = both
            known._request = known.request = self.request
            known.response = None
        return None

    def ended(self, response: Any) -> None:
        """Leave the story on an answer that is handed out: of a failure, if it is one."""
        self.running = False
        if self.key is not None and getattr(response, "status_code", 0) not in CHALLENGES:
            self._spend_key()
        if self.error is None and self.run is None:
            setattr(response, STAMP, Told(self.plan, self.started, self.now()))
            return
        stamp: Any = self.run if self.error is None else stamp_of(self.error)
        if isinstance(stamp, Run):
            if not stamp.ok and stamp.reason is None:
                stamp.returned(None, stamp.reading())  # it has told nobody, because nobody had to be told
            stamp.value = stamp.last = None  # or the answer and its story would keep each other alive
            self.past = stamp
        else:
            stamp = self._story(Reason.stopped, self.error)
        self.final = self.error is not None
        self.error = self.answer = self.run = None
        setattr(response, STAMP, stamp)

    def _spend_key(self) -> None:
        if self.key is not None:
            self.key.spent = True  # another call with the same request is another call

    def report(self) -> Report:
        """Build the report as it is now, for those who look at an error before the policy has decided."""
        return self._story(Reason.stopped, self.error).report()

    def __reduce__(self) -> tuple[Any, ...]:
        return itself, (self.report(),)

    def committed(self, error: Exception) -> None:
        """Say on an error that the caller has had some of the answer already."""
        if self.final:
            self._tell_end(error)
        else:
            self._story(Reason.committed, error).tell(error)

    def _tell_end(self, error: Exception) -> None:
        """Say on the error of a body what the call has done, which had failed before."""
        if isinstance(self.past, Run):
            annotate(error, self.past, PREFIX + summary_of(self.past))
        else:
            self._story(Reason.stopped, error).tell(error)

    def _story(self, reason: Reason, error: Exception | None) -> Story:
        return Story(self.plan, reason, self.sends, self.now() - self.started, error)

    # ------------------------------------------- a first attempt, or a body, that has failed

    def restarted(self, error: Exception) -> Any:
        """Begin again with this failure of a body that the caller had none of."""
        with going_on():
            return self._restarted(error)

    def _restarted(self, error: Exception) -> Any:
        """Begin with this failure: of a first attempt, or of a body."""
        rest = self._begin_again(error)
        if rest == inf:
            return self.call(self)
        with deadline(rest):
            return self.call(self)

    async def arestarted(self, error: Exception) -> Any:
        """Begin again with this failure of a body that the caller had none of."""
        with going_on():
            return await self._arestarted(error)

    async def _arestarted(self, error: Exception) -> Any:
        """Begin with this failure: of a first attempt, or of a body."""
        rest = self._begin_again(error)
        if rest == inf:
            return await self.call(self)
        with deadline(rest):
            return await self.call(self)

    def _begin_again(self, error: Exception) -> float:
        """Take in that it failed; return how long there is, or raise the error if there is no time."""
        rest = self.left()
        if self.final or self.closed():
            self._tell_end(error)
            raise error
        if rest <= 0:
            self._story(Reason.timeout, error).tell(error)
            raise error
        self.broken, self.again, self.joined = error, True, None
        return rest

    def unfit(self, error: Exception) -> Exception:
        """Tell the story on the error of a body: the answer after it does not fit the head of this one."""
        reason = getattr(stamp_of(self.error), "reason", None) if self.error is not None else None
        self.error = self.answer = self.run = None
        self._story(reason or Reason.stopped, error).tell(error)
        return error
