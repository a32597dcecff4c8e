"""The engine's limits as tables: the time of an attempt, and which limit applies."""

from __future__ import annotations

from itertools import combinations
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import errors
from redouble._engine.run import Run
from tests.support.fakes import Boom, always, options
from tests.support.runs import run_of

NAMES = {"attempt": "attempt_timeout", "work": "work_timeout", "total": "timeout"}
ORDER = ("attempt", "work", "total", "deadline")  # of priority


def begun(**options: Any) -> Run:
    """Begin the first attempt, at 0. The option ``deadline`` applies a deadline."""
    ambient = options.pop("deadline", None)
    run = run_of(**options)
    if ambient is not None:
        run.apply_deadline(ambient)
    assert run.start(0) is None
    return run


def option_of(limit: str, seconds: float) -> dict[str, float]:
    return {NAMES.get(limit, limit): seconds}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (inf, "attempt")),
        ({"give_up_after": 1}, (inf, "attempt")),  # does not limit attempts
        ({"attempt_timeout": 2}, (2, "attempt")),
        ({"work_timeout": 2}, (2, "work")),
        ({"timeout": 2}, (2, "total")),
        ({"deadline": 2}, (2, "deadline")),
        ({"attempt_timeout": 4, "work_timeout": 3, "timeout": 2, "deadline": 1}, (1, "deadline")),
        ({"attempt_timeout": 4, "work_timeout": 3, "timeout": 1, "deadline": 2}, (1, "total")),
        ({"attempt_timeout": 4, "work_timeout": 1, "timeout": 3, "deadline": 2}, (1, "work")),
        ({"attempt_timeout": 1, "work_timeout": 4, "timeout": 3, "deadline": 2}, (1, "attempt")),
    ],
)
def test_the_shortest_limit_applies(options: dict[str, Any], expected: tuple[float, str]) -> None:
    run = begun(**options)
    assert (run.time_left(), run.binding_limit) == expected


@pytest.mark.parametrize(("first", "second"), list(combinations(ORDER, 2)))
def test_on_a_tie_the_limit_of_the_attempt_applies(first: str, second: str) -> None:
    """Then the work timeout, the timeout and the deadline, in this order."""
    run = begun(**option_of(first, 2), **option_of(second, 2))
    assert (run.time_left(), run.binding_limit) == (2, first)


@given(started=st.floats(-1e6, 1e6), seconds=st.floats(1e-3, 1e6), second=st.sampled_from(["work", "total"]))
def test_a_tie_does_not_depend_on_the_origin_of_the_clock(
    started: float, seconds: float, second: str
) -> None:
    """The origin of a monotonic clock is arbitrary, and its rounding must not decide."""
    run = run_of(started, **option_of("attempt", seconds), **option_of(second, seconds))
    assert run.start(started) is None
    assert (run.time_left(), run.binding_limit) == (seconds, "attempt")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # the first attempt takes from 0 to 3, the delay to 5
        ({"attempt_timeout": 4}, (4, "attempt")),
        ({"attempt_timeout": 4, "work_timeout": 6}, (3, "work")),
        ({"work_timeout": 6, "timeout": 7}, (2, "total")),
        ({"timeout": 9, "deadline": 8}, (3, "deadline")),
        ({"attempt_timeout": 3, "work_timeout": 6, "timeout": 8, "deadline": 8}, (3, "attempt")),
        ({"work_timeout": 6, "timeout": 8, "deadline": 8}, (3, "work")),
        ({"timeout": 8, "deadline": 8}, (3, "total")),
    ],
)
def test_the_time_left_for_the_second_attempt(options: dict[str, Any], expected: tuple[float, str]) -> None:
    """Delays count for the timeout and the deadline, but not as work."""
    run = begun(backoff=[2], **options)
    assert run.failed(Boom(), 3) == 2
    assert run.start(5) is None
    assert (run.time_left(), run.binding_limit) == expected


def test_time_that_passed_before_the_attempt_began() -> None:
    """Preparing a worker is not part of the attempt: only the limits of the call apply."""
    run = begun(attempt_timeout=1, timeout=9)
    assert (run.time_left(own=False), run.binding_limit, run.attempt_started) == (9, "total", 0)
    run.now = 3.0
    assert (run.time_left(), run.binding_limit, run.attempt_started) == (1, "attempt", 3)
    run.now = 8.5
    assert (run.time_left(), run.binding_limit, run.attempt_started) == (0.5, "total", 8.5)


def test_the_time_left_is_never_negative() -> None:
    run = begun(timeout=1)
    run.now = 5.0
    assert run.time_left() == 0
    assert run.expired().seconds == 0


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("attempt", "attempt 1 took longer than 0.5 s"),
        ("work", "attempt 1 was cut after 0.5 s: no work time was left"),
        ("total", "attempt 1 was cut after 0.5 s: the call's timeout"),
        ("deadline", "attempt 1 was cut after 0.5 s: the deadline"),
    ],
)
def test_the_error_of_an_expired_attempt(limit: str, text: str) -> None:
    run = begun(**option_of(limit, 0.5))
    run.time_left()
    error = run.expired()
    assert isinstance(error, errors.AttemptTimeout)
    assert isinstance(error, TimeoutError)
    assert (str(error), error.limit, error.seconds) == (text, limit, 0.5)


# ---------------------------------------------------------------- after a limit has passed


@pytest.mark.parametrize("limit", ["work", "total", "deadline"])
def test_a_limit_of_the_call_ends_the_call(limit: str) -> None:
    """No rule is called; the failure is emitted."""
    emitted: list[str] = []

    def never(error: Exception) -> bool:
        raise AssertionError(f"{error!r} was judged")

    run = begun(on=never, **option_of(limit, 1))
    run.emit = emitter(emitted)
    run.time_left()
    assert run.failed(run.expired(), 1) is None
    reason = "work_timeout" if limit == "work" else "timeout"
    assert (run.reason, run.replaces_error, run.report().limit) == (reason, True, limit)
    assert emitted == ["failure", "give_up"]


def emitter(emitted: list[str]) -> Any:
    def emit(run: object, what: str, *_: object) -> None:
        emitted.append(what)

    return emit


@pytest.mark.parametrize(
    "on", [KeyError, always(None), [KeyError, always(None)]], ids=["type", "rule", "both"]
)
def test_an_attempt_timeout_is_retried_if_no_rule_has_an_opinion(on: Any) -> None:
    run = begun(on=on, attempt_timeout=1, backoff=[2])
    run.time_left()
    assert run.failed(run.expired(), 1) == 2


@pytest.mark.parametrize("on", [always(False), [always(False), TimeoutError]], ids=["no", "no first"])
def test_a_rule_may_stop_at_an_attempt_timeout(on: Any) -> None:
    run = begun(on=on, attempt_timeout=1)
    run.time_left()
    assert run.failed(run.expired(), 1) is None
    assert (run.reason, run.replaces_error, run.report().limit) == ("stopped", False, "attempt")
    assert run.report().history[0].kind == "timeout"


def ended(run: Run, error: Exception | None, now: float) -> tuple[str | None, str | None]:
    """End the first attempt; return reason and limit."""
    run.failed(error or run.expired(), now)
    return run.reason, run.report().limit


@pytest.mark.parametrize(
    ("options", "cut", "expected"),
    [
        # stopped, attempts, timeout, work_timeout: the first that applies
        ({"attempt_timeout": 1, "attempts": 1}, True, ("attempts", "attempt")),
        ({"attempt_timeout": 1, "attempts": 1, "timeout": 1}, True, ("attempts", "attempt")),
        ({"attempt_timeout": 1, "timeout": 1}, True, ("timeout", "attempt")),
        ({"attempt_timeout": 1, "work_timeout": 1}, True, ("work_timeout", "attempt")),
        ({"attempt_timeout": 1, "give_up_after": 1}, True, ("timeout", "give_up_after")),
        ({"attempt_timeout": 1, "timeout": 2, "backoff": [1]}, True, ("timeout", "total")),
        ({"attempt_timeout": 1, "give_up_after": 2, "backoff": [1]}, True, ("timeout", "give_up_after")),
        ({"attempt_timeout": 1, "deadline": 2, "backoff": [1]}, True, ("timeout", "deadline")),
        ({"attempt_timeout": 1, "backoff": []}, True, ("backoff_ended", "attempt")),
        ({"attempt_timeout": 1, "timeout": 3}, True, (None, "attempt")),
        # the attempt failed within its limits
        ({"attempt_timeout": 1, "attempts": 1}, False, ("attempts", None)),
        ({"timeout": 1}, False, ("timeout", "total")),
        ({"deadline": 1}, False, ("timeout", "deadline")),
        ({"timeout": 1, "deadline": 1}, False, ("timeout", "total")),
        ({"give_up_after": 1}, False, ("timeout", "give_up_after")),
        ({"give_up_after": 1, "timeout": 1}, False, ("timeout", "total")),
        ({"work_timeout": 1}, False, ("work_timeout", "work")),
        ({"timeout": 1, "work_timeout": 1}, False, ("work_timeout", "work")),
    ],
)
def test_the_report_has_the_limit_that_ended_the_call(
    options: dict[str, Any], cut: bool, expected: tuple[str, str]
) -> None:
    """Otherwise the limit that ended the last attempt."""
    run = begun(**options)
    run.time_left()
    assert ended(run, None if cut else Boom(), 1) == expected


def test_the_limit_of_an_earlier_attempt_is_not_reported() -> None:
    run = begun(attempt_timeout=1, attempts=2, backoff=[0])
    run.time_left()
    run.failed(run.expired(), 1)
    assert run.start(1) is None
    run.time_left()
    assert ended(run, Boom(), 1.5) == ("attempts", None)


def test_a_late_success_reports_its_limit() -> None:
    run = begun(timeout=1)
    run.time_left()
    run.record_return(late=True)
    assert run.returned("late", 2) is None
    assert run.ok
    assert (run.report().limit, run.report().late) == ("total", True)


def test_a_success_in_time_is_not_late() -> None:
    run = begun(timeout=1)
    run.time_left()
    assert run.returned("done", 0.5) is None
    assert (run.report().limit, run.report().late) == (None, False)


def test_a_failure_is_not_late() -> None:
    run = begun(timeout=1)
    run.time_left()
    run.failed(run.expired(), 1)
    assert not run.report().late


def test_workers_left_running_are_counted() -> None:
    run = begun(attempt_timeout=1, backoff=[0, 0])
    for number in (1, 2):
        run.leave_worker(alone=False)
        run.time_left()
        assert run.failed(run.expired(), number) == 0
        assert run.start(number) is None
    run.leave_worker(alone=True)
    assert run.failed(run.expired(), 3) is None
    assert (run.reason, run.report().workers_left) == ("worker_still_running", 3)


@given(
    limits=st.fixed_dictionaries(
        {}, optional=dict.fromkeys([*NAMES.values(), "give_up_after"], st.floats(0.001, 100))
    ),
    took=st.floats(0, 50),
    delay=st.floats(0, 50),
)
def test_the_time_left_never_exceeds_any_limit(limits: dict[str, Any], took: float, delay: float) -> None:
    run = run_of(**options(backoff=[delay], give_up_after=None) | limits)
    assert run.start(0) is None
    wait = run.failed(Boom(), took)
    if wait is None or run.start(took + wait) is not None:
        return
    left = run.time_left()
    assert 0 <= left <= limits.get("attempt_timeout", inf)
    assert left <= limits.get("work_timeout", inf) - took
    assert left <= limits.get("timeout", inf) - took - delay + 1e-9
