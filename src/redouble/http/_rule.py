"""The HTTP rule: which responses and failures are worth another request, and which requests may be resent.

A rule judges the errors of any client, a bad status or a failure without a response, and the responses that
a function returns. Whether a request may be resent depends on its method; one of our own clients also
considers idempotency keys and bodies, and decides itself (`Exchange.veto`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from redouble._clients.client_call import ClientCall
from redouble._clients.idempotency_key import TOKEN
from redouble._engine.options import Options
from redouble._engine.report import ResendGuard, stamp_of
from redouble._failures import codes, error_readers
from redouble._failures.codes import IDEMPOTENT
from redouble._failures.retry_after import response_wish, with_hint
from redouble._failures.transient import transient
from redouble._failures.verdict import (
    ACCEPT,
    NOT_IDEMPOTENT,
    Ended,
    Kind,
    Rule,
    Rules,
    Verdict,
    as_rules,
    changed,
    judge,
)
from redouble._internal.public import public

Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Rule

# Failures of the server, for policies and breakers; all other responses are results.
FAILING = frozenset({408, 425, 429, *range(500, 600)})


@public("redouble.http")
@dataclass(frozen=True)
class HttpRule:
    """The rule that `rule` makes, for ``on=`` and ``until=``; our clients read its statuses and methods."""

    statuses: frozenset[int]
    methods: frozenset[str]
    errors: Errors = transient
    _rules: Rules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for option, value in (
            ("statuses", _checked_statuses(self.statuses)),
            ("methods", _checked_methods(self.methods)),
            ("_rules", _checked_rules(self.errors)),
        ):
            object.__setattr__(self, option, value)

    def __call__(self, ended: object, /) -> Verdict | None:
        """Judge an error of any HTTP client, or a response of any that was returned."""
        return self._judge_error(ended) if isinstance(ended, Exception) else self._judge_response(ended)

    def _judge_error(self, error: Exception) -> Verdict | None:
        status, headers = response_of(error)
        if status is None:
            verdict = judge(self._rules, error, _no_context)
        else:
            verdict = self._judge_status(status, headers)
            if verdict is not None and error_readers.is_from_proxy(error):
                verdict = replace(verdict, sent=False)
        if verdict is None or verdict.action != "retry" or verdict.sent is False:
            return verdict
        if isinstance(stamp_of(error), ResendGuard):
            return verdict  # one of our clients decides about methods, keys and bodies
        return self._if_idempotent(verdict, error)

    def _judge_response(self, response: object) -> Verdict:
        """Refuse a response that is worth another request or a failure of the server; accept all else."""
        status, headers = response_of(response)
        if status is None:
            return ACCEPT
        verdict = self._judge_status(status, headers)
        if verdict is not None:
            return self._if_idempotent(verdict, response)
        known = codes.STATUSES.get(status) or _default_verdict(status)
        return changed(known, action="stop") if status in FAILING else ACCEPT

    def _if_idempotent(self, verdict: Verdict, source: object) -> Verdict:
        method = method_of(source)
        return verdict if method is None or method in self.methods else NOT_IDEMPOTENT

    def _judge_status(self, status: int, headers: object) -> Verdict | None:
        wish, hint = response_wish(headers, status)
        if wish is False or (wish is None and status not in self.statuses):
            return None
        # The table only has the kind and reason of the verdict; the caller's options decide what is retried.
        return with_hint(codes.LLM_STATUSES.get(status) or _default_verdict(status), hint)


@public("redouble.http")
def rule(
    statuses: Iterable[int] | None = None,
    methods: Iterable[str] = IDEMPOTENT,
    errors: Errors = transient,
) -> HttpRule:
    """Make a rule for HTTP: ``Retry(on=redouble.http.rule(statuses={500, 503}))``.

    As ``until=redouble.http.rule()`` it judges the response that a function returns: it refuses one that is
    worth another request, and any failure of the server (408, 425, 429, 5xx). Results without a status pass.

    statuses: the responses worth another request; by default those that `redouble.transient` retries.
    methods: the requests that may be resent although the first may have reached the server; by default the
        idempotent ones. A request that was never sent is resent whatever its method.
    errors: the failures without a response that are worth another request: a rule, or types.

    ``x-should-retry: false`` in a response overrides ``statuses``, and so does ``true``.
    """
    chosen: Any = codes.STATUSES if statuses is None else statuses
    return HttpRule(chosen, cast("Any", methods), errors)


@public("redouble.http")
def sent(error: BaseException, /) -> bool | None:
    """Return True if the failed request reached the server, False if not, None if unknown."""
    verdict = transient(error) if isinstance(error, Exception) else None
    if verdict is not None and verdict.sent is False:
        return False  # even if a proxy has responded
    return True if response_of(error)[0] is not None else None if verdict is None else verdict.sent


def is_untouched(error: Exception | None) -> bool:
    """Return True if no part of the request was sent: even a body that can be read only once is complete."""
    verdict = None if error is None else transient(error)
    return verdict is not None and verdict.sent is False and verdict is not error_readers.NOT_PROCESSED


class StatusRule:
    """The rules of one `Retry` of a client, which are called about every status, and once for each error.

    A rule of the caller's may retry a status that is no failure by itself, such as 423. So the client calls
    it before it decides whether a response is a failure, and the engine gets the same verdict. Types do not
    count here: ``on=httpx.HTTPError`` retries failures, and not a 404.
    """

    def __init__(self, policy: Options) -> None:
        self._rules = policy._rules
        self._judging: Rules = tuple(step for step in policy._rules if step[0] != "types")

    @property
    def judges_statuses(self) -> bool:
        """True if one of the rules is the caller's own: ours judge no status beyond those they name."""
        return any(rule is not transient and not isinstance(rule, HttpRule) for _, rule in self._judging)

    def retries(self, call: ClientCall, ended: Ended) -> bool:
        """Return True if the rules retry this status; keep the verdict for the engine."""
        error = cast("Exception", ended.error)
        verdict = judge(self._judging, error, lambda _: ended)
        if verdict is None or verdict.action != "retry":
            return False
        call.verdicts = {**call.verdicts, self: verdict}
        return True

    def judge(self, ended: Ended, /) -> Verdict | None:
        """Return the verdict on one ended attempt."""
        error = cast("Exception", ended.error)
        call = stamp_of(error)
        known = call.verdicts.get(self) if isinstance(call, ClientCall) else None
        return known or judge(self._rules, error, lambda _: ended)


# ------------------------------------------------------- attributes of the clients' errors


def response_of(source: object) -> tuple[int | None, object]:
    """Return status and headers of a response, or of that which an error refers to; or None twice."""
    read = error_readers.response_of if isinstance(source, Exception) else error_readers.status_and_headers
    try:
        status, headers = read(source)
    except Exception:  # a property raised
        return None, None
    return (status, headers) if isinstance(status, int) and status >= 100 else (None, None)


def method_of(source: Any) -> str | None:
    """Return the request's method: httpx, requests and the SDKs keep the request, aiohttp its info."""
    for name in ("request", "request_info"):
        try:
            method = getattr(getattr(source, name), "method")  # noqa: B009  it may raise, in httpx too
        except Exception:  # noqa: S112  httpx raises if it was never set
            continue
        if isinstance(method, str):
            return method.upper()
    return None


# ------------------------------------------------------------------------ the options


def _default_verdict(status: int) -> Verdict:
    kind = Kind.server if status >= 500 else Kind.client
    return Verdict.retry(kind=kind, sent=True, reason="http_5xx" if status >= 500 else f"http_{status}")


def _checked_statuses(statuses: object) -> frozenset[int]:
    if isinstance(statuses, BaseException):
        raise TypeError("on=redouble.http.rule makes rules, and is none: write on=redouble.http.rule()")
    if response_of(statuses)[0] is not None:
        raise TypeError("until=redouble.http.rule makes rules, and is none: write until=redouble.http.rule()")
    if isinstance(statuses, int | str | bytes) or not isinstance(statuses, Iterable):
        raise TypeError(f"statuses={statuses!r}: write a set of numbers, such as {{502, 503}}")
    given = frozenset(cast("Iterable[object]", statuses))
    for status in given:
        if isinstance(status, bool) or not isinstance(status, int):
            raise TypeError(f"statuses: {status!r} is not a status: write numbers, such as {{502, 503}}")
        if not 400 <= status <= 599:
            raise ValueError(f"statuses: {status} is not an error: write numbers from 400 to 599")
    return cast("frozenset[int]", given)


def _checked_methods(methods: object) -> frozenset[str]:
    if isinstance(methods, str | bytes) or not isinstance(methods, Iterable):
        raise TypeError(f"methods={methods!r}: write a set of names, such as {{'GET', 'POST'}}")
    given = list(cast("Iterable[object]", methods))
    for method in given:
        if not isinstance(method, str) or not method or set(method) - TOKEN:
            raise TypeError(f"methods: {method!r} is no method: write names, such as {{'GET', 'POST'}}")
    return frozenset(cast("str", method).upper() for method in given)


def _checked_rules(errors: Errors) -> Rules:
    if errors == ():
        return ()  # statuses alone
    try:
        rules = as_rules(errors)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("on=", "errors=", 1)) from None
    if any(step == "judge" for step, _ in rules):
        raise TypeError(f"errors={errors!r}: write types or a function; an object with judge() goes to on=")
    return rules


def _no_context(error: Exception) -> Any:
    raise AssertionError(error)  # pragma: no cover  only an object with judge() receives more than the error
