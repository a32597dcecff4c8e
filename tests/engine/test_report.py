"""Errors of calls that were given up: the operation's own exception, with one note and a report."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import redouble
from redouble import AttemptRecord, Kind, Reason, Report, Retry, Verdict, errors, report
from tests.support.fakes import Virtual

NOTE = "redouble: gave up after 3 attempts in 3.0 s (attempts exhausted)"


class Plain(Exception):
    pass


class Slotted(Exception):
    __slots__ = ("code",)


@dataclass(frozen=True)
class Frozen(Exception):
    code: int = 3


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def failing(error: Exception) -> Callable[[], object]:
    def operation() -> object:
        raise error

    return operation


def given_up(error: Exception, **options: Any) -> Virtual:
    """Give up on this error after three attempts and three seconds."""
    clock = Virtual()
    given: dict[str, Any] = {"on": Exception, "attempts": 3, "backoff": [1, 2], "clock": clock, **options}
    try:
        Retry(**given).call(failing(error))
    except Exception as caught:
        assert caught is error  # noqa: PT017  a frozen exception does not survive `pytest.raises`
    return clock


@pytest.mark.parametrize("error", [Plain("x"), Slotted("x"), Frozen(), Mute(), OSError(5, "x")], ids=repr)
def test_the_error_is_the_same_object_with_a_note_and_a_report(error: Exception) -> None:
    given_up(error)
    assert getattr(error, "__notes__", None) == [NOTE]
    reported = report(error)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.elapsed) == (Reason.attempts, 3, 3)
    text = "<no text: __str__ failed>" if isinstance(error, Mute) else str(error)
    assert [entry.error_text for entry in reported.history] == [text] * 3
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "operation"


def test_the_note_is_replaced_and_never_repeated() -> None:
    error = Plain()
    for attempts in (1, 2, 3):
        given_up(error, attempts=attempts)
    assert error.__notes__ == [NOTE]
    reported = report(error)
    assert reported is not None
    assert reported.attempts == 3


@pytest.mark.parametrize(("stops_at", "notes"), [(1, 0), (2, 1)])
def test_no_note_if_the_first_attempt_is_stopped(stops_at: int, notes: int) -> None:
    error, asked = Plain(), iter(range(1, 9))

    def rule(_: Exception) -> bool:
        return next(asked) < stops_at

    given_up(error, on=rule)
    assert len(getattr(error, "__notes__", [])) == notes
    reported = report(error)
    assert reported is not None
    assert (reported.reason, reported.attempts) == ("stopped", stops_at)


def test_every_field_of_a_report() -> None:
    clock = Virtual(100.0)
    script = iter([ConnectionResetError("cut"), TimeoutError(), KeyError("k")])

    def fetch() -> None:
        clock.time += 0.5
        raise next(script)

    def judge(error: Exception) -> Verdict | None:
        return Verdict.retry(kind=Kind.server, after=4) if isinstance(error, TimeoutError) else None

    hints = redouble.Hints(spread=0)
    policy = Retry(
        on=[judge, OSError], backoff=[1, 1], labels={"team": "a"}, name="api", hints=hints, clock=clock
    )  # fmt: skip
    with pytest.raises(KeyError) as caught:
        policy.call(fetch)
    assert report(caught.value) == Report(
        reason=Reason.stopped,
        attempts=3,
        elapsed=6.5,
        work_elapsed=1.5,
        limit=None,
        workers_left=0,
        name="api",
        labels={"team": "a"},
        history=(
            AttemptRecord(1, Kind.network, "ConnectionResetError", "cut", 0.0, 0.5, 1.0, None),
            AttemptRecord(2, Kind.server, "TimeoutError", "", 1.5, 0.5, 4.0, 4.0),
            AttemptRecord(3, Kind.unknown, "KeyError", "'k'", 6.0, 0.5, None, None),
        ),
    )


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"timeout": 2, "give_up_after": 9}, "total"),
        ({"timeout": 9, "give_up_after": 2}, "give_up_after"),
        ({"timeout": 2, "give_up_after": 2}, "total"),
        ({"work_timeout": 0.5, "give_up_after": None}, None),
        ({}, None),
    ],
)
def test_the_report_has_the_limit_that_ended_the_call(options: dict[str, Any], limit: str | None) -> None:
    error = Plain()
    given_up(error, **options)
    reported = report(error)
    assert reported is not None
    assert reported.limit == limit


def test_a_long_history_keeps_its_last_records() -> None:
    error = Plain()
    given_up(error, attempts=1500, backoff=redouble.Backoff.constant(0))
    reported = report(error)
    assert reported is not None
    assert reported.attempts == 1500
    assert 500 < len(reported.history) < 1100
    assert [entry.number for entry in reported.history] == list(range(1501 - len(reported.history), 1501))


def test_a_report_is_pickled_with_its_error() -> None:
    error = Plain("x")
    given_up(error, labels={"team": "a"})
    unpickled = pickle.loads(pickle.dumps(error))
    assert type(unpickled) is Plain
    assert report(unpickled) == report(error) == pickle.loads(pickle.dumps(report(error)))


@pytest.mark.parametrize("unrelated", [None, 3, "x", object(), Plain(), Plain, errors.RetryError("by hand")])
def test_report_of_other_objects_is_none(unrelated: object) -> None:
    assert report(unrelated) is None
