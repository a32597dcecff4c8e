"""Which failures of a language model are worth another attempt: llm-fiber's table, and the caller's word.

429, 5xx, the network, and time that ran out before anything was heard are; a bad request, a bad key and a
spent quota are not. What has been heard is never asked for again, whatever is said here: that is the
engine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from redouble._failures import codes
from redouble._failures.builtin_errors import NETWORK
from redouble._failures.error_readers import answer_of
from redouble._failures.known_errors import READ_TIMEOUT
from redouble._failures.retry_after import after, hint, should_retry
from redouble._failures.transient import kind_of, transient
from redouble._failures.verdict import STOP, Ended, Rules, Verdict, judge
from redouble._internal.public import public
from redouble._telemetry.binding import BOUND
from redouble.errors import AttemptTimeout
from redouble.llm._context import Context, RetryIf
from redouble.llm._errors import CutShort, ErrorEvent, SpendExceeded, SpendRefused

__all__ = ["ModelRule", "table"]


REFUSING = (402, 403, 429)  # statuses that a spent quota comes with


@public("redouble.llm")
def table(error: Exception) -> Verdict | None:
    """Say whether a failure is worth another attempt: the rule of an `llm.Model`, unless it is given another.

    It is `redouble.transient`, with every status from 500 on, 409, and what a stream says in its midst.
    """
    if isinstance(error, ErrorEvent):
        return None if error.type in codes.QUOTA else codes.LLM.get(error.type or "")
    if isinstance(error, CutShort):
        return NETWORK
    if isinstance(error, AttemptTimeout):
        return READ_TIMEOUT
    if isinstance(error, SpendRefused) and error.retry_after is None:
        return STOP
    try:
        return _answered(error)
    except Exception:  # it does not let itself be looked at
        return transient(error)


def _answered(error: Exception) -> Verdict | None:
    status, headers = answer_of(error)
    words = [getattr(error, name, None) for name in ("code", "type")]
    spent = not codes.QUOTA.isdisjoint(word for word in words if isinstance(word, str))
    if spent or (status in REFUSING and _is_spent(getattr(error, "response", None))):
        return STOP
    found = transient(error)
    if found is not None or not isinstance(status, int) or should_retry(headers) is False:
        return found
    known = codes.HTTP_5XX if 500 <= status < 600 else codes.LLM_STATUSES.get(status)
    return after(known, hint(headers, status))


def _is_spent(response: Any) -> bool:
    """Say whether an answer that was read speaks of a quota that no waiting fills again."""
    try:
        said: object = response.content
    except Exception:  # nobody has read it
        return False
    return isinstance(said, bytes) and any(word.encode() in said for word in codes.QUOTA)


@dataclass(frozen=True)
class ModelRule:
    """The rule of one model: the caller's ``retry_if`` has the first word, and the ``rules`` the second."""

    provider: str
    model: str
    stream: bool
    rules: Rules
    retry_if: RetryIf | None

    def judge(self, ended: Ended, /) -> Verdict | None:
        """Answer for one ended attempt."""
        error = cast("Exception", ended.error)  # results are not its business: it is not asked
        if isinstance(error, SpendExceeded):
            return STOP  # nobody has a say in that
        known = judge(self.rules, error, lambda _: ended)
        if self.retry_if is None:
            return known
        said = self.retry_if(
            error, ended.attempt, Context(self.provider, self.model, BOUND.get(), self.stream)
        )
        if said is None:
            return known
        if not isinstance(said, bool):
            raise TypeError(f"retry_if answered {said!r}: write True, False, or None for no opinion")
        if said and known is not None and known.action == "retry":
            return known
        kind = kind_of(type(error)) if known is None else known.kind
        reason = None if known is None else known.reason
        return Verdict("retry" if said else "stop", kind, reason=reason)
