"""Verdicts on ended attempts, the rules that return them, and the filter of failures for layers.

A rule is called with one ended attempt and returns: True (retry), False (stop), a number (retry after that
many seconds), a `Verdict` for more, or None (no opinion). The first rule with an opinion decides. Rules see
only an `Exception`: cancellation, Ctrl-C and `GeneratorExit` are never judged. Attempts left, delays and time
limits are the engine's decision.

The option ``on`` has one form for policies and layers: types, functions, judges, or a list of these.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import GenericAlias, MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias, cast

from redouble._internal.callables import UsageError, display_name, lazy_kind
from redouble._internal.lazy_dataclass import dataclass
from redouble._internal.public import public
from redouble._internal.validation import Duration, timedelta
from redouble.errors import NotAccepted, Rejected, RetryError


@public("redouble")
class Kind(StrEnum):
    """The kind of a failure: coarse, for budgets, backoffs and metrics."""

    network = "network"
    timeout = "timeout"
    throttled = "throttled"
    server = "server"
    client = "client"
    unknown = "unknown"


@public("redouble")
@dataclass(frozen=True)
class Verdict:
    """The decision about an ended attempt.

    ``after`` is a hint of the server in seconds; a negative one counts as 0.
    ``sent`` is True if the request reached the server, False if it did not, None if that is unknown.
    ``reason`` is finer than ``kind``, for people and metrics: ``rate_limit``, ``http_5xx``, ...
    """

    action: Literal["retry", "stop", "accept"]
    kind: Kind | None = None
    after: float | None = None
    sent: bool | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.action not in ("retry", "stop", "accept"):
            raise ValueError(f"action={self.action!r}: write 'retry', 'stop' or 'accept'")
        if self.kind is not None:
            if self.kind not in list(Kind):
                raise ValueError(f"kind={self.kind!r}: write a Kind ({', '.join(Kind)})")
            object.__setattr__(self, "kind", Kind(self.kind))
        if self.sent not in (True, False, None) or not isinstance(self.reason, str | None):
            raise TypeError(
                f"sent={self.sent!r}, reason={self.reason!r}: write True, False or None, and a text"
            )
        if self.after is not None:
            object.__setattr__(self, "after", _hint(self.after))

    @classmethod
    def retry(
        cls,
        *,
        kind: Kind | None = None,
        after: Duration | None = None,
        sent: bool | None = None,
        reason: str | None = None,
    ) -> Self:
        """Retry, if the policy allows another attempt."""
        return cls("retry", kind, None if after is None else _hint(after), sent, reason)

    @classmethod
    def stop(cls, *, kind: Kind | None = None, sent: bool | None = None, reason: str | None = None) -> Self:
        """Give up now: the error is raised, or `NotAccepted` for a result."""
        return cls("stop", kind, None, sent, reason)

    @classmethod
    def accept(cls) -> "Verdict":
        """Count the attempt as a success even if it raised, such as a 404 while polling for a deletion."""
        return ACCEPT


Answer: TypeAlias = bool | float | timedelta | Verdict | None


@public("redouble.types")
class Ended(NamedTuple):
    """The end of an attempt: the argument of a rule with ``judge(ended)``."""

    attempt: int
    error: Exception | None = None
    value: object = None
    elapsed: float = 0.0
    attempt_elapsed: float = 0.0
    work_elapsed: float = 0.0
    labels: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        # Without the value: it is the caller's data, and rules may log what they are given.
        from redouble._redaction.rendering import field_repr  # noqa: PLC0415  only for a repr

        return f"Ended(attempt={self.attempt}, error={field_repr(self.error)}, elapsed={self.elapsed})"


@public("redouble.types")
class Judge(Protocol):
    """A rule that needs more than the exception."""

    def judge(self, ended: Ended, /) -> Answer:
        """Return the answer for one ended attempt."""
        ...


Rule: TypeAlias = Callable[[Exception], Answer]
_One: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Rule | Judge
On: TypeAlias = _One | Sequence[_One]
Until: TypeAlias = Callable[[Any], object] | Judge

MAX_WRAPPED = 100  # errors inside errors, which may be a cycle
MAX_HINT = 1e300  # replaces an infinite hint; longer than any limit

RETRY = Verdict("retry")
STOP = Verdict("stop")
ACCEPT = Verdict("accept")
# A failure, of a request that must not be sent again: layers that count failures count it.
NOT_IDEMPOTENT = Verdict("stop", reason="not_idempotent")
CANCELLED_BY_LIMIT = Verdict("stop", Kind.timeout, reason="timeout")  # that of the whole call


def verdict(answer: object, rule: object) -> Verdict:
    """Convert the answer of a rule to a verdict; raise TypeError if it is not a valid answer."""
    if answer is True:
        return RETRY
    if answer is False:
        return STOP
    if isinstance(answer, Verdict):
        return answer
    if isinstance(answer, int | float | timedelta):
        return Verdict("retry", after=_hint(answer))
    raise TypeError(
        f"rule {display_name(rule)} answered {answer!r}: "
        "write True, False, None, a number of seconds or a Verdict"
    )


Rules: TypeAlias = tuple[tuple[Literal["types", "rule", "judge"], Any], ...]


def judge(rules: Rules, error: Exception, make_ended: Callable[[Exception], Ended]) -> Verdict | None:
    """Call the rules in order; the first that does not return None decides.

    Of a `RetryError` they judge the error inside; only if none has an opinion on that, the `RetryError`.
    """
    if issubclass(type(error), RetryError) and (wrapped := unwrapped(error)) is not error:
        decided = _judge(rules, wrapped, make_ended)
        if decided is not None:
            return decided
    return _judge(rules, error, make_ended)


def unwrapped(error: Exception) -> Exception:
    """Return the error that a `RetryError` wraps, however often; any other error is returned as it is."""
    # A value that `until` refused is no error, even if it is an exception.
    for _ in range(MAX_WRAPPED):
        if not issubclass(type(error), RetryError) or issubclass(type(error), NotAccepted):
            break
        last: object = error.__dict__.get("last")
        if not isinstance(last, Exception):
            break
        error = last
    return error


def _judge(rules: Rules, error: Exception, make_ended: Callable[[Exception], Ended]) -> Verdict | None:
    for step, rule in rules:
        if step == "rule":
            answer = rule(error)
        elif step == "judge":
            answer = rule(make_ended(error))
        else:
            answer = True if issubclass(type(error), rule) else None
        if answer is not None:
            return verdict(answer, rule)
    return None


def judge_result(until: Until, ended: Ended) -> Verdict:
    """Call the rule for results: a true answer accepts, a false one retries, a Verdict decides."""
    rule: Any = until
    return result_verdict(rule.judge(ended) if _has_judge(rule) else rule(ended.value), until)


def result_verdict(answer: object, until: Until) -> Verdict:
    """Convert the answer of a rule for results to a verdict; raise TypeError if it is awaitable."""
    if hasattr(type(answer), "__await__"):
        raise TypeError(
            f"until={display_name(until)} answered {answer!r}: rules are plain functions, also in async code"
        )
    if isinstance(answer, Verdict):
        return answer
    return ACCEPT if answer else RETRY


def as_rules(on: object) -> Rules:
    """Validate the option ``on`` and return its rules."""
    return tuple(_steps(on))


def only_types(rules: Rules) -> tuple[type[Exception], ...] | None:
    """Return the exception types if the rules consist of types only, so that one issubclass() decides."""
    if any(step != "types" for step, _ in rules):
        return None
    return tuple(kind for _, kinds in rules for kind in kinds)


def _steps(on: object) -> Iterator[tuple[Literal["types", "rule", "judge"], Any]]:
    if isinstance(on, list | tuple):
        if not on:
            raise ValueError(
                f"on={on!r} is empty, so nothing would ever be retried: write attempts=1 for that"
            )
        for item in cast("Sequence[object]", on):
            yield from _steps(item)
    elif isinstance(on, GenericAlias):
        raise TypeError(f"on={on!r}: an exception has no type parameters, so write {on.__origin__.__name__}")
    elif isinstance(on, type):
        if not issubclass(on, BaseException):
            raise TypeError(f"on={on!r} is not an exception type: write a subclass of Exception")
        if not issubclass(on, Exception):
            raise ValueError(
                f"on={on.__name__} is never retried: cancellation, Ctrl-C and exits belong to your caller; "
                "write Exception or something narrower"
            )
        yield "types", (on,)
    else:
        rule = _rule_function(
            on,
            "on",
            "an exception type, a tuple of them, a rule (exc -> True/False/None), or a list of these",
        )
        yield ("rule", rule) if rule is on else ("judge", rule)


class ErrorRule:
    """A rule that has no opinion on results: as ``until`` it would refuse all of them."""

    __slots__ = ()


def check_until(until: object) -> None:
    """Validate the option ``until``."""
    _rule_function(
        until, "until", "a function of the result, such as until=lambda r: r.done, or redouble.http.rule()"
    )
    if isinstance(until, type) and issubclass(until, BaseException):  # as a function it accepts every result
        raise TypeError(f"until={until.__name__} is an exception type, and until judges results: write on=")
    if isinstance(until, ErrorRule):
        raise TypeError(
            f"until={until!r} judges errors, and until results: write redouble.http.rule(), or on="
        )


def _rule_function(rule: object, option: str, wanted: str) -> Any:
    """Validate a rule and return the function to call: the rule itself, or its ``judge``."""
    function: Any = cast("Judge", rule).judge if _has_judge(rule) else rule
    if not callable(function):
        raise TypeError(f"{option}={rule!r}: write {wanted}")
    if (kind := lazy_kind(function)) is not None:
        raise TypeError(
            f"{option}={display_name(rule)} is {kind}: rules are plain functions, also in async code"
        )
    return function


def _has_judge(rule: object) -> bool:
    # `judge` is looked up on the type, because an instance of `Mock` has every attribute.
    return callable(getattr(type(rule), "judge", None))


def _hint(after: object) -> float:
    if isinstance(after, timedelta):
        after = after.total_seconds()
    if isinstance(after, bool) or not isinstance(after, int | float):
        raise TypeError(f"after={after!r}: write seconds as a number, or a timedelta")
    if after != after:  # noqa: PLR0124  NaN
        raise ValueError(f"after={after!r}: write a number of seconds")
    return max(0.0, float(min(after, MAX_HINT)))


class Refusal(NotAccepted):
    """A result that counts as a failure, in ``last``: what gates are passed in place of an error.

    It is never raised. A gate need not know it: it is an exception like any other.
    """

    def __init__(self, value: object = None) -> None:
        super().__init__("the result counts as a failure", last=value)


class FailureFilter:
    """The options ``on`` and ``until`` of a layer: which errors and which results count as failures."""

    __slots__ = ("_judges", "_rules", "_types", "on", "until")

    def __init__(self, on: On, layer: str, until: Until | None = None) -> None:
        if on in ((), []):
            raise ValueError(f"{layer} on={on!r} is empty, so nothing would count: name an exception type")
        if isinstance(cast("object", on), int | float):
            raise TypeError(
                f"{layer} on={on!r}: write an exception type or a rule, or pass the number by keyword"
            )
        if until is not None:
            check_until(until)
        self._rules = as_rules(on)
        self._types = only_types(self._rules)
        self.on, self.until, self._judges = on, until, _has_judge(until)

    def refusal(self, value: object) -> Refusal | None:
        """Return the failure that a result counts as, or None if ``until`` accepts it or there is none."""
        if self.until is None:
            return None
        answer = self.accepts(value)
        return None if answer is True else self.answered(answer, value)

    @property
    def description(self) -> str:
        """What the description of a layer says about results: nothing without ``until``."""
        return "" if self.until is None else "; a refused result is a failure"

    @property
    def accepts(self) -> Callable[[Any], object]:
        """The rule for results as a function of a result, for compiled wrappers of a layer with ``until``.

        If it does not answer True, `answered` converts the answer: so most accepted results cost one call.
        """
        return self._judge_value if self._judges else cast("Callable[[Any], object]", self.until)

    def _judge_value(self, value: object) -> object:
        return cast("Judge", self.until).judge(Ended(1, None, value))

    def answered(self, answer: object, value: object) -> Refusal | None:
        """Return the failure that a result counts as, given the answer of `accepts`; None: a success."""
        accepted = result_verdict(answer, cast("Until", self.until)).action == "accept"
        return None if accepted else Refusal(value)

    def matches(self, error: Exception) -> bool | None:
        """Return True if an error counts as a failure; None if no rule has an opinion."""
        if type(error) is Refusal:
            return True
        if self._types is not None and not issubclass(type(error), UsageError):
            wrapped = issubclass(type(error), self._types) or issubclass(type(unwrapped(error)), self._types)
            return True if wrapped else None
        verdict = self.verdict(error)
        return None if verdict is None else verdict.action == "retry" or verdict == NOT_IDEMPOTENT

    def verdict(self, error: Exception) -> Verdict | None:
        """Return the verdict of the rules on an error; the action "retry" means that it counts."""
        if issubclass(type(error), UsageError):
            return None
        return judge(self._rules, error, lambda error: Ended(1, error))

    def is_failure(self, error: BaseException | None) -> bool | None:
        """Return True if a call ended with a failure; None for a cancellation, a rejection or no opinion."""
        if error is None:
            return False
        return None if never_counts(error) else self.matches(cast("Exception", error))

    def covers(self, other: On) -> bool:
        """Return True if every error that the other ``on`` matches is known to count here too."""
        rules = as_rules(other)
        if self._rules == rules:
            return True
        types = only_types(rules)
        if self._types is None:
            return False
        return Exception in self._types or (
            types is not None and all(issubclass(kind, self._types) for kind in types)
        )


def never_counts(error: BaseException) -> bool:
    """Return True for the end of a call that says nothing about the service, whatever the rules answer.

    A cancellation, a mistake in the program, and a rejection: the function was not called.
    """
    return not isinstance(error, Exception) or issubclass(type(unwrapped(error)), (UsageError, Rejected))


def changed(verdict: Verdict, **fields: Any) -> Verdict:
    """Return a verdict with other fields: `dataclasses.replace`, without its import."""
    return type(verdict)(**(vars(verdict) | fields))


def with_retry_after(verdict: Verdict, error: Exception) -> Verdict:
    """Return a retry verdict with the ``retry_after`` of the error as its hint, if it has one.

    So the time that a gate asks for also counts where ``on`` names a plain type.
    """
    try:
        after: Any = getattr(unwrapped(error), "retry_after", None)
        return changed(verdict, after=after) if verdict.action == "retry" and after is not None else verdict
    except Exception:  # it cannot be read, or it is NaN or no number
        return verdict
