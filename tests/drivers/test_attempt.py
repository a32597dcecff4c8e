"""Blocking attempts on a worker thread: cancelled, awaited for the grace period, abandoned."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

import redouble
from redouble import Reason, Retry, Verdict, Worker, cancelled, errors, remaining, report
from redouble.testing import virtual_time
from redouble.types import Event as PolicyEvent
from tests.support.call_shapes import SHAPES, Shape
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import (
    LONG,
    NO_GRACE,
    OVERLAPPING,
    STILL_RUNNING,
    StuckAttempt,
    outcome_of,
    until_cancelled,
)
from tests.support.fakes import Boom, always

CALLS = pytest.mark.parametrize("shape", [SHAPES[name] for name in ("call", "run", "decorator")])


# ---------------------------------------------------- ended within the grace period


@CALLS
def test_an_attempt_that_is_too_slow_is_cancelled_and_retried(shape: Shape) -> None:
    """If it ends within the grace period, the next one begins; its value or error is dropped."""
    calls: list[None] = []
    events: list[PolicyEvent] = []

    def work() -> str:
        calls.append(None)
        if len(calls) > 2:
            return "done"
        until_cancelled()
        if len(calls) == 1:
            raise Boom("as a reaction to that")
        return "late"

    policy = Retry(
        attempt_timeout=SOON,
        attempts=99,  # on a busy machine the third may be too slow, too
        backoff=[0] * 99,
        worker=Worker(grace=LONG),
        on_failure=events.append,
        on=always(None),
    )
    assert shape(policy, work) == "done"
    assert len(events) == len(calls) - 1 >= 2
    assert {(event.kind, event.limit, type(event.error)) for event in events} == {
        ("timeout", "attempt", errors.AttemptTimeout)
    }


def test_the_operation_sees_its_cancellation() -> None:
    seen: list[object] = []

    def work() -> None:
        seen.append(remaining(LONG) <= SOON)
        until_cancelled()
        seen.append(remaining())

    outcome = outcome_of(Retry(attempt_timeout=SOON, attempts=1, worker=Worker(grace=LONG)), work)
    assert seen == [True, 0.0]
    assert (outcome.report.workers_left, outcome.report.limit) == (0, "attempt")
    assert isinstance(outcome.error, errors.AttemptTimeout)
    assert (outcome.error.limit, outcome.error.seconds) == ("attempt", SOON)
    assert not cancelled()
    assert remaining() is None


def test_the_operation_sees_no_cancellation_before() -> None:
    def work() -> tuple[bool, object]:
        return cancelled(), remaining("no limit")

    assert Retry(worker=Worker()).call(work) == (False, "no limit")
    with virtual_time():
        assert Retry(attempt_timeout=LONG, worker=Worker()).call(work) == (False, LONG)
        assert Retry(timeout=LONG, attempt_timeout=2 * LONG, worker=Worker()).call(work) == (False, LONG)


def test_a_timeout_error_of_the_operation_is_no_limit() -> None:
    own = TimeoutError("the socket's")

    def work() -> None:
        raise own

    outcome = outcome_of(Retry(attempt_timeout=LONG, attempts=2, backoff=[0], worker=Worker()), work)
    assert outcome.error is own
    assert (outcome.report.limit, outcome.report.reason) == (None, Reason.attempts)


# ------------------------------------------------------------------------------- abandoned


@CALLS
@pytest.mark.parametrize("wrap", [False, True])
def test_no_second_attempt_beside_a_worker_that_does_not_stop(shape: Shape, wrap: bool) -> None:
    policy = Retry(attempt_timeout=SOON, worker=NO_GRACE, wrap=wrap, backoff=[0] * 9)
    with StuckAttempt() as stuck, pytest.raises(errors.WorkerStillRunning, match="still running") as caught:
        shape(policy, stuck)
    assert stuck.called(1)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.__cause__, errors.AttemptTimeout)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.limit, reported.workers_left) == (STILL_RUNNING, "attempt", 1)
    assert (reported.attempts, len(reported.history), reported.history[0].kind) == (1, 1, "timeout")


def test_overlap_allows_attempts_beside_a_stuck_worker() -> None:
    policy = Retry(attempt_timeout=SOON, worker=OVERLAPPING, backoff=[0] * 9, attempts=3)
    with StuckAttempt() as stuck:
        outcome = outcome_of(policy, stuck)
    assert isinstance(outcome.error, errors.AttemptTimeout)
    assert (outcome.report.workers_left, outcome.report.reason) == (3, Reason.attempts)
    assert stuck.called(3)


def test_a_late_result_is_dropped() -> None:
    returned = Event()

    def work() -> str:
        result = stuck()
        if result == "late":
            returned.set()
        return result

    policy = Retry(attempt_timeout=SOON, worker=OVERLAPPING, backoff=[0] * 99, attempts=99)
    with StuckAttempt("in time") as stuck:
        outcome = outcome_of(policy, work)
        stuck.released.set()
        assert returned.wait(LONG)
    assert outcome.unwrap() == "in time"
    reported = outcome.report
    assert (reported.reason, reported.limit, reported.late) == (None, None, False)
    assert reported.attempts > reported.workers_left >= 1


@pytest.mark.parametrize(
    ("options", "raises", "reason", "limit"),
    [
        ({"attempt_timeout": SOON}, errors.WorkerStillRunning, STILL_RUNNING, "attempt"),
        ({"attempt_timeout": SOON, "attempts": 1}, errors.AttemptTimeout, "attempts", "attempt"),
        ({"attempt_timeout": SOON, "on": always(False)}, errors.AttemptTimeout, "stopped", "attempt"),
        ({"timeout": SOON}, errors.DeadlineExceeded, "timeout", "total"),
        ({"work_timeout": SOON}, errors.DeadlineExceeded, "work_timeout", "work"),
        ({"timeout": SOON, "attempt_timeout": LONG}, errors.DeadlineExceeded, "timeout", "total"),
        ({"timeout": LONG, "attempt_timeout": SOON}, errors.WorkerStillRunning, STILL_RUNNING, "attempt"),
        ({"timeout": SOON, "attempt_timeout": SOON}, errors.AttemptTimeout, "timeout", "attempt"),
        ({"timeout": SOON, "worker": OVERLAPPING}, errors.DeadlineExceeded, "timeout", "total"),
    ],
)
def test_the_limit_that_ended_the_call_is_reported(
    options: dict[str, Any], raises: type[Exception], reason: str, limit: str
) -> None:
    given: dict[str, Any] = {"worker": NO_GRACE, "backoff": [0] * 9, "on": Exception, **options}
    with virtual_time(), StuckAttempt() as stuck:
        outcome = outcome_of(Retry(**given), stuck)
    assert type(outcome.error) is raises
    seen = outcome.report
    assert (seen.reason, seen.limit, seen.workers_left) == (reason, limit, 1)
    assert stuck.called(1)


def test_a_deadline_ends_the_call() -> None:
    with virtual_time(), redouble.deadline(SOON), StuckAttempt() as stuck:
        outcome = outcome_of(Retry(worker=NO_GRACE), stuck)
    assert isinstance(outcome.error, errors.DeadlineExceeded)
    assert (outcome.report.limit, outcome.report.workers_left) == ("deadline", 1)


def test_an_accepted_timeout_is_a_success() -> None:
    with StuckAttempt() as stuck:
        outcome = outcome_of(Retry(attempt_timeout=SOON, worker=NO_GRACE, on=always(Verdict.accept())), stuck)
    assert (outcome.ok, type(outcome.error)) == (True, errors.AttemptTimeout)
    assert outcome.report.workers_left == 1
