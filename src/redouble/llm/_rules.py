"""The retry rules of language models: the built-in table, from llm-fiber, and the caller's ``retry_if``.

The table retries 429, 5xx, network errors, and timeouts before the first chunk. It does not retry a bad
request, a bad key or a spent quota. A stream that has delivered a chunk is never retried: the engine enforces
that, whatever a rule returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from redouble._failures import codes
from redouble._failures.builtin_errors import NETWORK, UNSENT
from redouble._failures.error_readers import is_lookup_failure, response_of
from redouble._failures.known_errors import READ_TIMEOUT
from redouble._failures.retry_after import response_wish, with_hint
from redouble._failures.transient import kind_of, transient
from redouble._failures.verdict import STOP, Ended, Rules, Verdict, judge
from redouble._internal.public import public
from redouble._telemetry.bound_fields import BOUND
from redouble.errors import AttemptTimeout
from redouble.llm._call import Context, RetryIf
from redouble.llm._errors import CutShort, ErrorEvent, SpendExceeded, SpendRefused

QUOTA_STATUSES = (402, 403, 429)  # of a response that reports a spent quota


@public("redouble.llm")
def table(error: Exception) -> Verdict | None:
    """Return the verdict on a failure; an `llm.Model` uses this rule unless its policy has another.

    It is `redouble.transient` plus every status from 500 on, 409, every failed name lookup, and the error
    events of streams.
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
        return _verdict_by_status(error)
    except Exception:  # its attributes cannot be read
        return transient(error)


def _verdict_by_status(error: Exception) -> Verdict | None:
    status, headers = response_of(error)
    types = [getattr(error, name, None) for name in ("code", "type")]
    spent = not codes.QUOTA.isdisjoint(type_ for type_ in types if isinstance(type_, str))
    if spent or (status in QUOTA_STATUSES and _is_quota_spent(getattr(error, "response", None))):
        return STOP
    verdict = transient(error)
    if verdict is None and is_lookup_failure(error):
        return UNSENT  # even if the resolver says that there is no such name: a provider's name exists
    if verdict is not None or not isinstance(status, int):
        return verdict
    wanted, hint = response_wish(headers, status)
    if wanted is False:
        return None
    by_status = codes.HTTP_5XX if 500 <= status < 600 else codes.LLM_STATUSES.get(status)
    return with_hint(by_status, hint)


def _is_quota_spent(response: Any) -> bool:
    """Return True if the body of a response names a spent quota, which no waiting restores."""
    try:
        body: object = response.content
    except Exception:  # the body has not been read
        return False
    return isinstance(body, bytes) and any(code.encode() in body for code in codes.QUOTA)


@dataclass(frozen=True)
class ModelRule:
    """The rule of one model: the caller's ``retry_if`` decides first, and then the ``rules``."""

    provider: str
    model: str
    stream: bool
    rules: Rules
    retry_if: RetryIf | None

    def judge(self, ended: Ended, /) -> Verdict | None:
        """Return the verdict on one ended attempt."""
        error = cast("Exception", ended.error)  # never called with a result
        if isinstance(error, SpendExceeded):
            return STOP  # not for retry_if to decide
        verdict = judge(self.rules, error, lambda _: ended)
        if self.retry_if is None:
            return verdict
        context = Context(self.provider, self.model, BOUND.get(), self.stream)
        opinion = self.retry_if(error, ended.attempt, context)
        if opinion is None:
            return verdict
        if not isinstance(opinion, bool):
            raise TypeError(f"retry_if answered {opinion!r}: write True, False, or None for no opinion")
        if opinion and verdict is not None and verdict.action == "retry":
            return verdict
        known = verdict or Verdict("stop", kind_of(type(error)))
        return Verdict("retry" if opinion else "stop", known.kind, reason=known.reason)
