"""`FailureFilter`: whether an error counts as a failure.

The ``retry_after`` of a rejection is a hint, whichever rule retries it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from redouble import CircuitBreaker, Hints, Kind, Retry, TokenBucket, Verdict, errors, testing, transient
from redouble._failures.verdict import FailureFilter, with_retry_after
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import Boom, Call, Panic, Script, UnhashableRule, Virtual, always, in_colour, ok

SHUT = errors.Rejected("shut", retry_after=7)


class Shut(errors.Rejected):
    """A user's rejection with any ``retry_after``."""

    def __init__(self, retry_after: Any) -> None:
        super().__init__("shut")
        self.retry_after = retry_after


@pytest.mark.parametrize(
    "on",
    [
        errors.Rejected,
        Exception,
        (KeyError, errors.Rejected),
        [errors.CircuitOpen, errors.Rejected],
        always(True),
        always(Verdict.retry()),
        [always(None), Exception],
        UnhashableRule(),
        transient,
    ],
)
def test_the_retry_after_of_a_rejection_is_waited_for(drive: Drive, on: Any) -> None:
    assert drive([SHUT, ok(3)], on=on) == Call(3, attempts=2, sleeps=[7])


@pytest.mark.parametrize(
    ("on", "sleeps"),
    [(always(2.5), [2.5]), (always(Verdict.retry(after=3)), [3]), (always(0), [])],
)
def test_the_hint_of_a_rule_has_priority(drive: Drive, on: Callable[..., Any], sleeps: list[float]) -> None:
    assert drive([SHUT, ok(3)], on=on) == Call(3, attempts=2, sleeps=sleeps)


@pytest.mark.parametrize("on", [always(False), always(None), KeyError, always(Verdict.stop())])
def test_a_rejection_that_is_not_retried_is_not_waited_for(drive: Drive, on: Any) -> None:
    script: Script = [SHUT, ok(3)]
    assert drive(script, on=on) == Call(raises=errors.Rejected, reason="stopped", attempts=1, sleeps=[])


def test_hints_may_be_ignored(drive: Drive) -> None:
    ignoring = Hints(mode="ignore")
    assert drive([SHUT, ok(3)], on=errors.Rejected, hints=ignoring) == Call(3, attempts=2, sleeps=[])


def test_hints_may_be_too_long(drive: Drive) -> None:
    asked = drive([SHUT, ok(3)], on=errors.Rejected, hints=Hints(longest=6))
    assert asked == Call(raises=errors.Rejected, reason="hint_too_long", attempts=1)


@pytest.mark.parametrize("odd", [None, nan, "soon", True, -1, -inf])
@pytest.mark.parametrize("on", [errors.Rejected, always(True)])
def test_an_invalid_retry_after_is_no_hint(drive: Drive, on: Any, odd: Any) -> None:
    """The error is retried as any other, and not replaced by one about the hint."""
    assert drive([Shut(odd), ok(3)], on=on, backoff=[1]) == Call(3, attempts=2, sleeps=[1])


class Unreadable(errors.Rejected):
    """A rejection whose ``retry_after`` cannot be read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "retry_after":
            raise ValueError(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("on", [errors.Rejected, transient])
def test_a_retry_after_that_cannot_be_read_is_no_hint(drive: Drive, on: Any) -> None:
    assert drive([Unreadable("shut"), ok(3)], on=on, backoff=[1]) == Call(3, attempts=2, sleeps=[1])


def test_an_infinite_retry_after_ends_the_call(drive: Drive) -> None:
    given_up = drive([Shut(inf), ok(3)], on=errors.Rejected, backoff=[1])
    assert given_up == Call(raises=Shut, reason="timeout", attempts=1, sleeps=[])


def test_the_retry_after_of_other_errors_is_ignored(drive: Drive) -> None:
    """Its meaning is known for rejections only; a rule may know more."""

    class Busy(Exception):
        retry_after = 7

    assert drive([Busy(), ok(3)], on=Busy) == Call(3, attempts=2, sleeps=[])


def test_retries_that_a_gate_rejects_cost_nothing(colour: str) -> None:
    """The function was not called, so that the budget is not charged."""
    clock, budget = Virtual(), TokenBucket()
    retry = Retry(on=Exception, backoff=[0] * 3, hints=Hints(mode="ignore"), budget=budget, clock=clock)
    pipeline = retry | CircuitBreaker(failures=1, clock=clock)
    script = testing.Script(Boom())
    with pytest.raises(errors.CircuitOpen):
        in_colour(colour, lambda: pipeline.call(script), lambda: pipeline.call(script.aio))
    assert len(script.calls) == 1
    assert budget.snapshot()["tokens"] == 500


# ------------------------------------------------------------- what counts as a failure

BUSY = Verdict.retry(kind=Kind.throttled, after=3)

# a rule, an error, the verdict of the rules, and whether it counts
ROWS: list[tuple[Any, Exception, str | None, bool | None]] = [
    (Boom, Boom(), "retry", True),
    (Exception, Boom(), "retry", True),
    ((KeyError, Boom), Boom(), "retry", True),
    ([KeyError, (OSError, Boom)], Boom(), "retry", True),
    (KeyError, Boom(), None, None),
    ((KeyError, OSError), Boom(), None, None),
    (always(True), Boom(), "retry", True),
    (always(0.5), Boom(), "retry", True),
    (always(BUSY), Boom(), "retry", True),
    (always(False), Boom(), "stop", False),
    (always(Verdict.stop()), Boom(), "stop", False),
    (always(Verdict.accept()), Boom(), "accept", False),
    (always(None), Boom(), None, None),
    ([always(None), Boom], Boom(), "retry", True),
    ([always(False), Boom], Boom(), "stop", False),
    ([KeyError, always(None)], Boom(), None, None),
    (UnhashableRule(), Boom(), "retry", True),
    (transient, TimeoutError(), "retry", True),
    (transient, ValueError(), None, None),
]


@pytest.mark.parametrize(("on", "error", "action", "counts"), ROWS)
def test_whether_an_error_counts_as_a_failure(
    on: Any, error: Exception, action: str | None, counts: bool | None
) -> None:
    failures = FailureFilter(on, "Gate")
    verdict = failures.verdict(error)
    assert (verdict and verdict.action) == action
    assert failures.matches(error) is failures.is_failure(error) is counts
    assert failures.on is on


def test_a_verdict_has_a_kind_and_a_hint() -> None:
    verdict = FailureFilter(always(BUSY), "Gate").verdict(Boom())
    assert verdict is not None
    assert (verdict.kind, verdict.after) == (Kind.throttled, 3)


@pytest.mark.parametrize("on", [Exception, errors.Rejected, always(True), always(False)])
def test_only_errors_of_the_other_side_count(on: Any) -> None:
    """A success is no failure; a cancellation, or a rejection by an inner gate, has no verdict."""
    failures = FailureFilter(on, "Gate")
    assert failures.is_failure(None) is False
    neutral = [Panic(), KeyboardInterrupt(), GeneratorExit(), SHUT, errors.CircuitOpen("open")]
    assert [failures.is_failure(error) for error in neutral] == [None] * len(neutral)


@pytest.mark.parametrize(
    ("on", "error", "message"),
    [
        ((), ValueError, r"Gate on=\(\) is empty, so nothing would count: name an exception type"),
        ([], ValueError, r"Gate on=\[\] is empty"),
        (5, TypeError, "Gate on=5: write an exception type or a rule, or pass the number"),
        (0.5, TypeError, "Gate on=0.5: write"),
        (int, TypeError, "on=<class 'int'> is not an exception type"),
        (KeyboardInterrupt, ValueError, "on=KeyboardInterrupt"),
    ],
)
def test_invalid_values_of_on_are_refused(on: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FailureFilter(on, "Gate")


RULE = always(True)


@pytest.mark.parametrize(
    ("on", "other", "covers"),
    [
        (Boom, Boom, True),
        (RULE, RULE, True),
        (RULE, always(True), False),
        (RULE, Boom, False),
        (Exception, Boom, True),
        (Exception, RULE, True),
        (OSError, (ConnectionError, TimeoutError), True),
        (OSError, (ConnectionError, KeyError), False),
        (OSError, RULE, False),
        (OSError, Exception, False),
    ],
)
def test_whether_a_filter_covers_another_one(on: Any, other: Any, covers: bool) -> None:
    assert FailureFilter(on, "Gate").covers(other) is covers


@pytest.mark.parametrize(
    ("verdict", "after", "expected"),
    [
        (Verdict.retry(), 7, 7),
        (Verdict.retry(), 0.5, 0.5),
        (Verdict.retry(after=2), 7, 7),
        (Verdict.stop(), 7, None),
        *((Verdict.retry(after=2), odd, 2) for odd in (None, nan, True, "soon")),
    ],
)
def test_the_verdict_gets_the_retry_after_of_a_rejection(
    verdict: Verdict, after: Any, expected: float | None
) -> None:
    assert with_retry_after(verdict, Shut(after)).after == expected
    assert with_retry_after(verdict, Boom()) is verdict
