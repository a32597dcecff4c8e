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
class Says:
    """A judge: an object that is shown how the attempt ended."""

    answer: Any
    shown: list[Ended] = field(default_factory=list[Ended])

    def judge(self, ended: Ended, /) -> Any:
        self.shown.append(ended)
        return self.answer


def says(answer: Any) -> Callable[[object], Any]:
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
        ([Busy, says(False)], Busy(), RETRIED),
        ([says(False), Busy], Busy(), STOPPED),
        ([says(None), Busy], Busy(), RETRIED),
        ([says(None), says(None)], Busy(), STOPPED),
        ([Gone, [says(None), [Says(None), (OSError, Busy)]]], Busy(), RETRIED),
        ([Gone, [says(None), [Says(False), Busy]]], Busy(), STOPPED),
        (Says(True), Busy(), RETRIED),
        (Says(None), Busy(), STOPPED),
        (says(True), Busy(), RETRIED),
        (says(False), Busy(), STOPPED),
        (says(None), Busy(), STOPPED),
        (says(0), Busy(), RETRIED),
        (says(5), Busy(), [5.0, 5.0]),
        (says(2.5), Busy(), [2.5, 2.5]),
        (says(0.5), Busy(), RETRIED),
        (says(-3), Busy(), RETRIED),
        (says(timedelta(seconds=4)), Busy(), [4.0, 4.0]),
        (says(timedelta(seconds=-4)), Busy(), RETRIED),
        (says(Verdict.retry()), Busy(), RETRIED),
        (says(Verdict.retry(after=7)), Busy(), [7.0, 7.0]),
        (says(Verdict.stop()), Busy(), STOPPED),
        (says(Verdict("retry", Kind.server, 6)), Busy(), [6.0, 6.0]),
        (says(10**400), Busy(), STOPPED),  # it is asked to wait longer than there is time
        (Busy, errors.AttemptTimeout(), RETRIED),
        (says(None), errors.AttemptTimeout(), RETRIED),
        (says(False), errors.AttemptTimeout(), STOPPED),
        ([errors.RedoubleError, says(False)], errors.AttemptTimeout(), RETRIED),
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


def test_rules_are_asked_about_the_last_attempt_too() -> None:
    judge = Says(True)
    waits(judge, Busy())
    assert [ended.attempt for ended in judge.shown] == [1, 2, 3]


def test_a_judge_is_shown_how_the_attempt_ended() -> None:
    clock, judge, error = Virtual(), Says(True), Busy()

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
    ("answer", "kind", "said"),
    [
        ("yes", TypeError, "answered 'yes': write True, False, None, a number of seconds or a Verdict"),
        ([True], TypeError, "answered [True]"),
        (Kind.network, TypeError, "answered <Kind.network"),
        (nan, ValueError, "after=nan: write a number of seconds"),
    ],
)
@pytest.mark.parametrize("form", [says, Says])
def test_an_answer_that_is_none(
    form: Callable[[Any], Any], answer: Any, kind: type[Exception], said: str
) -> None:
    """It is an error of the rule, and loses nothing: the operation's error is its context."""
    error = Busy("mine")
    with pytest.raises(kind) as caught:
        Retry(on=form(answer)).call(failing(error))
    assert said in str(caught.value)
    assert caught.value.__context__ is error


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_rule_that_raises_loses_nothing(attempts: int) -> None:
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
    told = report(mistake)
    assert told is not None
    assert (told.reason, told.attempts, len(told.history)) == ("stopped", attempts, attempts)


# ----------------------------------------------------------------------------- results


UNTIL: list[tuple[Callable[[Any], object] | Says, int, list[float]]] = [
    (lambda value: value == 3, 3, [1.0, 1.0]),
    (lambda value: "not empty", 1, []),
    (lambda value: value > 1 or (), 2, [1.0]),
    (lambda value: Verdict.accept() if value == 2 else Verdict.retry(after=8), 2, [8.0]),
    (lambda value: None if value < 3 else 1, 3, [1.0, 1.0]),
    (Says(True), 1, []),
    (Says(Verdict.accept()), 1, []),
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
    [(says(False), "attempts"), (says(None), "attempts"), (Says(Verdict.stop()), "stopped")],
)
def test_a_result_that_is_never_accepted(until: Any, reason: str) -> None:
    with pytest.raises(errors.NotAccepted) as caught:
        Retry(until=until, attempts=2, backoff=[0]).call(lambda: "result")
    assert caught.value.last == "result"
    assert caught.value.reason == reason
    assert caught.value.__cause__ is None


def test_none_is_a_fine_result() -> None:
    judge = Says(True)
    assert Retry().call(lambda: None) is None
    assert Retry(until=lambda value: value is None).call(lambda: None) is None
    assert Retry(until=judge).run(lambda: None).ok
    assert (judge.shown[0].error, judge.shown[0].value, judge.shown[0].attempt) == (None, None, 1)


def test_an_exception_can_be_the_success() -> None:
    """Wait until it is gone: `call` raises the error unchanged, `run` returns an outcome that is ok."""
    left = [None, None, Gone("at last")]

    def operation(script: list[Any]) -> str:
        if (error := script.pop(0)) is not None:
            raise error
        return "still there"

    def gone(error: Exception) -> Verdict | None:
        return Verdict.accept() if isinstance(error, Gone) else None

    policy = Retry(on=gone, until=says(False), backoff=[0, 0], wrap=True)
    with pytest.raises(Gone, match="at last") as caught:
        policy.call(operation, left.copy())
    assert not hasattr(caught.value, "__notes__")
    assert report(caught.value) is None
    outcome = policy.run(operation, left.copy())
    assert outcome.ok
    assert isinstance(outcome.error, Gone)
    assert (outcome.report.reason, outcome.report.attempts) == (None, 3)
    assert outcome.report.history[-1].error_text == "at last"
