"""Verdicts: the arguments of rules, their valid answers, and the effect of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from math import nan
from typing import Any

import pytest

from redouble import Hints, Kind, Retry, Verdict, errors, report
from redouble.types import Answer, Ended
from tests.support.fakes import Virtual

EXACT = Hints(spread=0)


class Busy(Exception):
    pass


class Gone(Exception):
    pass


@dataclass
class Judge:
    """A rule object that records the ends of attempts it was called with."""

    answer: Any
    shown: list[Ended] = field(default_factory=list[Ended])

    def judge(self, ended: Ended, /) -> Any:
        self.shown.append(ended)
        return self.answer


def answering(answer: Any) -> Callable[[object], Any]:
    return lambda _: answer


def failing(error: Exception) -> Callable[[], object]:
    def operation() -> object:
        raise error

    return operation


def waits(on: Any, error: Exception, **options: Any) -> list[float]:
    """Return the delays of a policy between three failed attempts."""
    clock = Virtual()
    policy = Retry(on=on, attempts=3, backoff=[1, 1], hints=EXACT, clock=clock, **options)
    with pytest.raises(type(error)) as caught:
        policy.call(failing(error))
    assert caught.value is error
    return clock.waits


RETRIED, STOPPED = [1.0, 1.0], list[float]()


@pytest.mark.parametrize(
    ("on", "error", "expected"),
    [
        (Busy, Busy(), RETRIED),
        (Busy, Gone(), STOPPED),
        (Exception, Gone(), RETRIED),
        ((Busy, Gone), Gone(), RETRIED),
        ((Busy, (Gone, OSError)), ConnectionError(), RETRIED),
        ([Busy], Busy(), RETRIED),
        ([Busy, answering(False)], Busy(), RETRIED),
        ([answering(False), Busy], Busy(), STOPPED),
        ([answering(None), Busy], Busy(), RETRIED),
        ([answering(None), answering(None)], Busy(), STOPPED),
        ([Gone, [answering(None), [Judge(None), (OSError, Busy)]]], Busy(), RETRIED),
        ([Gone, [answering(None), [Judge(False), Busy]]], Busy(), STOPPED),
        (Judge(True), Busy(), RETRIED),
        (Judge(None), Busy(), STOPPED),
        (answering(True), Busy(), RETRIED),
        (answering(False), Busy(), STOPPED),
        (answering(None), Busy(), STOPPED),
        (answering(0), Busy(), RETRIED),
        (answering(5), Busy(), [5.0, 5.0]),
        (answering(2.5), Busy(), [2.5, 2.5]),
        (answering(0.5), Busy(), RETRIED),
        (answering(-3), Busy(), RETRIED),
        (answering(timedelta(seconds=4)), Busy(), [4.0, 4.0]),
        (answering(timedelta(seconds=-4)), Busy(), RETRIED),
        (answering(Verdict.retry()), Busy(), RETRIED),
        (answering(Verdict.retry(after=7)), Busy(), [7.0, 7.0]),
        (answering(Verdict.stop()), Busy(), STOPPED),
        (answering(Verdict("retry", Kind.server, 6)), Busy(), [6.0, 6.0]),
        (answering(10**400), Busy(), STOPPED),  # the hint exceeds the time left
        (Busy, errors.AttemptTimeout(), RETRIED),
        (answering(None), errors.AttemptTimeout(), RETRIED),
        (answering(False), errors.AttemptTimeout(), STOPPED),
        ([errors.RedoubleError, answering(False)], errors.AttemptTimeout(), RETRIED),
    ],
)
def test_every_form_of_on_and_every_answer(on: Any, error: Exception, expected: list[float]) -> None:
    assert waits(on, error) == expected


def test_rules_after_the_first_answer_are_not_called() -> None:
    asked: list[str] = []

    def rule(name: str, answer: Answer) -> Callable[[Exception], Answer]:
        def ask(error: Exception) -> Answer:
            asked.append(f"{name} {type(error).__name__}")
            return answer

        return ask

    waits([rule("first", None), rule("second", False), rule("third", True), Busy], Busy())
    assert asked == ["first Busy", "second Busy"]


def test_rules_are_called_for_the_last_attempt_too() -> None:
    judge = Judge(True)
    waits(judge, Busy())
    assert [ended.attempt for ended in judge.shown] == [1, 2, 3]


def test_a_judge_gets_the_end_of_the_attempt() -> None:
    clock, judge, error = Virtual(), Judge(True), Busy()

    def operation() -> None:
        clock.time += 2
        raise error

    policy = Retry(on=judge, attempts=2, backoff=[5], labels={"team": "a"}, clock=clock)
    with pytest.raises(Busy):
        policy.call(operation)
    first, second = judge.shown
    assert (first.attempt, first.error, first.value) == (1, error, None)
    assert (first.elapsed, first.attempt_elapsed, first.work_elapsed) == (2, 2, 2)
    assert (second.attempt, second.labels) == (2, {"team": "a"})
    assert (second.elapsed, second.attempt_elapsed, second.work_elapsed) == (9, 2, 4)


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ("yes", TypeError, "answered 'yes': write True, False, None, a number of seconds or a Verdict"),
        ([True], TypeError, "answered [True]"),
        (Kind.network, TypeError, "answered <Kind.network"),
        (nan, ValueError, "after=nan: write a number of seconds"),
    ],
)
@pytest.mark.parametrize("form", [answering, Judge])
def test_an_invalid_answer_is_an_error_of_the_rule(
    form: Callable[[Any], Any], answer: Any, kind: type[Exception], message: str
) -> None:
    """The operation's error is its context."""
    error = Busy("mine")
    with pytest.raises(kind) as caught:
        Retry(on=form(answer)).call(failing(error))
    assert message in str(caught.value)
    assert caught.value.__context__ is error


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_rule_that_raises_keeps_the_failure_as_its_context(attempts: int) -> None:
    error, mistake = Busy("mine"), ZeroDivisionError("the rule's")
    left = attempts

    def rule(_: Exception) -> bool:
        nonlocal left
        left -= 1
        if not left:
            raise mistake
        return True

    with pytest.raises(ZeroDivisionError) as caught:
        Retry(on=rule, backoff=[0, 0, 0]).call(failing(error))
    assert caught.value is mistake
    assert mistake.__context__ is error
    reported = report(mistake)
    assert reported is not None
    assert (reported.reason, reported.attempts, len(reported.history)) == ("stopped", attempts, attempts)


# ----------------------------------------------------------------------------- results


UNTIL: list[tuple[Callable[[Any], object] | Judge, int, list[float]]] = [
    (lambda value: value == 3, 3, [1.0, 1.0]),
    (lambda value: "not empty", 1, []),
    (lambda value: value > 1 or (), 2, [1.0]),
    (lambda value: Verdict.accept() if value == 2 else Verdict.retry(after=8), 2, [8.0]),
    (lambda value: None if value < 3 else 1, 3, [1.0, 1.0]),
    (Judge(True), 1, []),
    (Judge(Verdict.accept()), 1, []),
    (bool, 1, []),
]


@pytest.mark.parametrize(("until", "calls", "wait"), UNTIL)
def test_every_form_of_until(until: Any, calls: int, wait: list[float]) -> None:
    clock, values = Virtual(), iter(range(1, 9))
    policy = Retry(until=until, backoff=[1, 1], hints=EXACT, clock=clock)
    assert policy.call(lambda: next(values)) == calls
    assert clock.waits == wait


@pytest.mark.parametrize(
    ("until", "reason"),
    [(answering(False), "attempts"), (answering(None), "attempts"), (Judge(Verdict.stop()), "stopped")],
)
def test_a_result_that_is_never_accepted_raises_not_accepted(until: Any, reason: str) -> None:
    with pytest.raises(errors.NotAccepted) as caught:
        Retry(until=until, attempts=2, backoff=[0]).call(lambda: "result")
    assert caught.value.last == "result"
    assert caught.value.reason == reason
    assert caught.value.__cause__ is None


def test_none_is_a_valid_result() -> None:
    judge = Judge(True)
    assert Retry().call(lambda: None) is None
    assert Retry(until=lambda value: value is None).call(lambda: None) is None
    assert Retry(until=judge).run(lambda: None).ok
    assert (judge.shown[0].error, judge.shown[0].value, judge.shown[0].attempt) == (None, None, 1)


def test_an_accepted_error_is_a_success() -> None:
    """`call` raises the error unchanged, `run` returns an outcome that is ok."""
    left = [None, None, Gone("at last")]

    def operation(script: list[Any]) -> str:
        if (error := script.pop(0)) is not None:
            raise error
        return "still there"

    def gone(error: Exception) -> Verdict | None:
        return Verdict.accept() if isinstance(error, Gone) else None

    policy = Retry(on=gone, until=answering(False), backoff=[0, 0], wrap=True)
    with pytest.raises(Gone, match="at last") as caught:
        policy.call(operation, left.copy())
    assert not hasattr(caught.value, "__notes__")
    assert report(caught.value) is None
    outcome = policy.run(operation, left.copy())
    assert outcome.ok
    assert isinstance(outcome.error, Gone)
    assert (outcome.report.reason, outcome.report.attempts) == (None, 3)
    assert outcome.report.history[-1].error_text == "at last"
