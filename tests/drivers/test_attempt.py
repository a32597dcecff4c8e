"""Blocking attempts on a worker thread: asked to stop, awaited for the grace period, abandoned."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Semaphore
from types import TracebackType
from typing import Any, Self

import pytest

import redouble
from redouble import Outcome, Reason, Retry, Verdict, Worker, cancelled, errors, remaining, report
from redouble.testing import virtual_time
from redouble.types import Event as Told
from tests.support.call_shapes import SHAPES, Shape
from tests.support.fakes import Boom, always

CALLS = pytest.mark.parametrize("shape", [SHAPES[name] for name in ("call", "run", "decorator")])
AT_ONCE = Worker(grace=0)
BESIDE = Worker(grace=0, overlap=True)
STUCK = "worker_still_running"
SOON = 0.01  # the limit of what never ends by itself: waiting for a worker is real
LONG = 60.0  # never waited for in full, unless something is broken


class Stuck:
    """An operation that hears nothing and goes on until the end of its ``with``.

    With a ``result``, only its first attempt does; the others return that.
    """

    def __init__(self, result: str | None = None) -> None:
        self.result = result
        self.go = Event()
        self._calls: list[None] = []
        self._begun = Semaphore(0)

    def __call__(self) -> str:
        self._calls.append(None)
        first = len(self._calls) == 1
        self._begun.release()
        if not first and self.result is not None:
            return self.result
        self.go.wait()
        return "late"

    def called(self, times: int) -> bool:
        """Return True if it was called this many times; a busy machine may take longer."""
        return all(self._begun.acquire(timeout=LONG) for _ in range(times)) and len(self._calls) == times

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.go.set()


def until_told() -> None:
    """Work until the attempt is over."""
    pause = Event()
    while not cancelled():
        pause.wait(0.001)


def ended(policy: Retry, work: Callable[[], object]) -> Outcome[object]:
    """Make a call; return how it ended."""
    return policy.run(work)


# ------------------------------------------------------------------- told, and in its grace


@CALLS
def test_an_attempt_that_is_too_slow_is_cancelled_and_retried(shape: Shape) -> None:
    """If it stops when asked, the next one begins; its value or error is dropped."""
    calls: list[None] = []
    told: list[Told] = []

    def work() -> str:
        calls.append(None)
        if len(calls) > 2:
            return "done"
        until_told()
        if len(calls) == 1:
            raise Boom("as a reaction to that")
        return "late"

    policy = Retry(
        attempt_timeout=SOON,
        attempts=99,  # a busy machine may not come to the third in time either
        backoff=[0] * 99,
        worker=Worker(grace=LONG),
        on_failure=told.append,
        on=always(None),
    )
    assert shape(policy, work) == "done"
    assert len(told) == len(calls) - 1 >= 2
    assert {(event.kind, event.limit, type(event.error)) for event in told} == {
        ("timeout", "attempt", errors.AttemptTimeout)
    }


def test_the_operation_sees_its_cancellation() -> None:
    seen: list[object] = []

    def work() -> None:
        seen.append(remaining(LONG) <= SOON)
        until_told()
        seen.append(remaining())

    outcome = ended(Retry(attempt_timeout=SOON, attempts=1, worker=Worker(grace=LONG)), work)
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


def test_its_own_timeout_error_is_its_own() -> None:
    own = TimeoutError("the socket's")

    def work() -> None:
        raise own

    outcome = ended(Retry(attempt_timeout=LONG, attempts=2, backoff=[0], worker=Worker()), work)
    assert outcome.error is own
    assert (outcome.report.limit, outcome.report.reason) == (None, Reason.attempts)


# ------------------------------------------------------------------------------ left alone


@CALLS
@pytest.mark.parametrize("wrap", [False, True])
def test_no_second_attempt_beside_a_worker_that_does_not_stop(shape: Shape, wrap: bool) -> None:
    policy = Retry(attempt_timeout=SOON, worker=AT_ONCE, wrap=wrap, backoff=[0] * 9)
    with Stuck() as stuck, pytest.raises(errors.WorkerStillRunning, match="still running") as caught:
        shape(policy, stuck)
    assert stuck.called(1)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.__cause__, errors.AttemptTimeout)
    said = report(caught.value)
    assert said is not None
    assert (said.reason, said.limit, said.workers_left) == (STUCK, "attempt", 1)
    assert (said.attempts, len(said.history), said.history[0].kind) == (1, 1, "timeout")


def test_beside_it_if_that_is_allowed() -> None:
    policy = Retry(attempt_timeout=SOON, worker=BESIDE, backoff=[0] * 9, attempts=3)
    with Stuck() as stuck:
        outcome = ended(policy, stuck)
    assert isinstance(outcome.error, errors.AttemptTimeout)
    assert (outcome.report.workers_left, outcome.report.reason) == (3, Reason.attempts)
    assert stuck.called(3)


def test_a_late_result_is_dropped() -> None:
    came = Event()

    def work() -> str:
        result = stuck()
        if result == "late":
            came.set()
        return result

    policy = Retry(attempt_timeout=SOON, worker=BESIDE, backoff=[0] * 99, attempts=99)
    with Stuck("in time") as stuck:
        outcome = ended(policy, work)
        stuck.go.set()
        assert came.wait(LONG)
    assert outcome.unwrap() == "in time"
    said = outcome.report
    assert (said.reason, said.limit, said.late) == (None, None, False)
    assert said.attempts > said.workers_left >= 1


@pytest.mark.parametrize(
    ("options", "raises", "reason", "limit"),
    [
        ({"attempt_timeout": SOON}, errors.WorkerStillRunning, STUCK, "attempt"),
        ({"attempt_timeout": SOON, "attempts": 1}, errors.AttemptTimeout, "attempts", "attempt"),
        ({"attempt_timeout": SOON, "on": always(False)}, errors.AttemptTimeout, "stopped", "attempt"),
        ({"timeout": SOON}, errors.DeadlineExceeded, "timeout", "total"),
        ({"work_timeout": SOON}, errors.DeadlineExceeded, "work_timeout", "work"),
        ({"timeout": SOON, "attempt_timeout": LONG}, errors.DeadlineExceeded, "timeout", "total"),
        ({"timeout": LONG, "attempt_timeout": SOON}, errors.WorkerStillRunning, STUCK, "attempt"),
        ({"timeout": SOON, "attempt_timeout": SOON}, errors.AttemptTimeout, "timeout", "attempt"),
        ({"timeout": SOON, "worker": BESIDE}, errors.DeadlineExceeded, "timeout", "total"),
    ],
)
def test_what_ends_the_call(
    options: dict[str, Any], raises: type[Exception], reason: str, limit: str
) -> None:
    said: dict[str, Any] = {"worker": AT_ONCE, "backoff": [0] * 9, "on": Exception, **options}
    with virtual_time(), Stuck() as stuck:
        outcome = ended(Retry(**said), stuck)
    assert type(outcome.error) is raises
    seen = outcome.report
    assert (seen.reason, seen.limit, seen.workers_left) == (reason, limit, 1)
    assert stuck.called(1)


def test_a_deadline_ends_it_too() -> None:
    with virtual_time(), redouble.deadline(SOON), Stuck() as stuck:
        outcome = ended(Retry(worker=AT_ONCE), stuck)
    assert isinstance(outcome.error, errors.DeadlineExceeded)
    assert (outcome.report.limit, outcome.report.workers_left) == ("deadline", 1)


def test_an_accepted_timeout_is_a_success() -> None:
    with Stuck() as stuck:
        outcome = ended(Retry(attempt_timeout=SOON, worker=AT_ONCE, on=always(Verdict.accept())), stuck)
    assert (outcome.ok, type(outcome.error)) == (True, errors.AttemptTimeout)
    assert outcome.report.workers_left == 1
