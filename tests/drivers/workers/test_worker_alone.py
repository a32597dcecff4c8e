"""No second worker runs beside one that is stuck, whichever layers surround its policy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from redouble import SYSTEM, Layer, Retry, Timeout, Worker, errors, report
from redouble.testing import virtual_time
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import LONG, NO_GRACE, OVERLAPPING, STILL_RUNNING, StuckAttempt
from tests.support.fakes import ASYNC, always, in_colour
from tests.support.virtual_time import at

COLOURS = pytest.mark.parametrize("colour", ["sync", *ASYNC])

# Each layer leaves its worker running, and reports it in another way.
LEAVING: dict[str, Layer] = {
    "attempts": Retry(attempts=1, attempt_timeout=SOON, worker=NO_GRACE),
    "another attempt": Retry(attempt_timeout=SOON, worker=NO_GRACE),
    "total": Retry(timeout=SOON, worker=NO_GRACE),
    "work": Retry(work_timeout=SOON, worker=NO_GRACE),
    "wrapped": Retry(timeout=SOON, worker=NO_GRACE, wrap=True),
    "stopped": Retry(on=always(False), attempt_timeout=SOON, worker=NO_GRACE),
    "timeout": Timeout(SOON, worker=NO_GRACE),
}
EVERY_LEAVING = pytest.mark.parametrize("inner", LEAVING.values(), ids=LEAVING)


def around(**options: Any) -> Retry:
    """Return a policy with many attempts: on a busy machine the first ones may not reach the operation."""
    defaults: dict[str, Any] = {"on": Exception, "attempts": 20, "backoff": [0] * 20, "nested": "allow"}
    return Retry(**defaults | options)


def failure(colour: str, policy: Retry, work: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011  of any type
        in_colour(colour, lambda: policy.call(work), lambda: policy.acall(work))
    return caught.value


def reports_a_worker_left(error: Exception) -> bool:
    """Return True if the report of this error has a worker left."""
    reported = report(error)
    return reported is not None and (reported.reason, reported.workers_left) == (STILL_RUNNING, 1)


# ------------------------------------------------------------------- a policy around another


@COLOURS
@EVERY_LEAVING
def test_an_outer_policy_does_not_retry_while_an_inner_worker_runs(colour: str, inner: Layer) -> None:
    with StuckAttempt() as stuck:
        assert reports_a_worker_left(failure(colour, around(), lambda: inner.call(stuck)))
        assert stuck.called(1)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("limit", ["attempt_timeout", "timeout"])
def test_an_outer_async_policy_does_not_retry_while_an_inner_worker_runs(colour: str, limit: str) -> None:
    limits: dict[str, Any] = {limit: SOON}
    inner = Retry(attempts=1, worker=NO_GRACE, **limits)

    async def work() -> None:
        await inner.acall(stuck)

    async def main() -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011  of any type
            await around().call(work)
        assert reports_a_worker_left(caught.value)

    with StuckAttempt() as stuck:
        in_colour(colour, lambda: None, main)
        assert stuck.called(1)


def chained(error: Exception) -> Exception:
    wrapped = LookupError()
    wrapped.__cause__ = error
    return wrapped


def grouped(error: Exception) -> Exception:
    return ExceptionGroup("several", [ValueError(), error])


def pickled(error: Exception) -> Exception:
    """Return a copy as it comes from a worker process, where the stamp is a report."""
    copy: Exception = pickle.loads(pickle.dumps(error))
    return copy


TRANSFORMS = pytest.mark.parametrize("transform", [chained, grouped, pickled])


def failing(
    inner: Layer, stuck: StuckAttempt, transform: Callable[[Exception], Exception]
) -> Callable[[], None]:
    """Return an operation that raises ``transform(error)`` for the error of the inner call."""

    def work() -> None:
        ended: list[Exception] = []
        try:
            inner.call(stuck)
        except Exception as error:
            ended.append(transform(error))
        raise ended.pop()

    return work


@TRANSFORMS
@EVERY_LEAVING
@pytest.mark.parametrize("nested", ["allow", "warn"])
def test_an_inner_worker_is_recognised_in_a_chained_grouped_or_pickled_error(
    transform: Callable[[Exception], Exception], inner: Layer, nested: str
) -> None:
    """Whatever `nested` of the outer policy is."""
    with StuckAttempt() as stuck:
        assert reports_a_worker_left(failure("sync", around(nested=nested), failing(inner, stuck, transform)))
        assert stuck.called(1)


@COLOURS
def test_overlap_allows_attempts_beside_a_stuck_worker(colour: str) -> None:
    inner = Retry(attempts=1, attempt_timeout=SOON, worker=OVERLAPPING)
    with StuckAttempt() as stuck:
        error = failure(colour, around(attempts=3), lambda: inner.call(stuck))
        reported = report(error)
        assert reported is not None
        assert (reported.reason, reported.attempts) == ("attempts", 3)
        assert stuck.called(3)


def test_a_worker_left_by_an_earlier_call_does_not_prevent_retries() -> None:
    old = Retry(attempts=1, attempt_timeout=SOON, worker=NO_GRACE)
    with StuckAttempt() as stuck, virtual_time():
        error = old.run(stuck).error
        assert error is not None
        SYSTEM.sleep(1)
        again: list[Exception] = [error, error]
        assert around().call(lambda: fail(again.pop()) if again else "done") == "done"


def fail(error: Exception) -> None:
    raise error


# ---------------------------------------------------------------------- nested workers


@COLOURS
@pytest.mark.parametrize(
    "inner",
    [
        Timeout(LONG, worker=NO_GRACE),
        Retry(timeout=LONG, worker=NO_GRACE),
        Retry(attempts=1, attempt_timeout=LONG, worker=NO_GRACE),
        Retry(worker=NO_GRACE, wrap=True),
    ],
    ids=["timeout", "total", "attempts", "wrapped"],
)
def test_a_cancelled_worker_that_left_its_own_worker_is_not_retried(colour: str, inner: Layer) -> None:
    """The limit is a deadline for the inner call, which ends by it and leaves its own worker running."""
    with StuckAttempt() as stuck:
        policy = around(attempt_timeout=SOON, worker=Worker(grace=LONG))
        error = failure(colour, policy, lambda: inner.call(stuck))
        assert reports_a_worker_left(error)
        assert type(error) is errors.WorkerStillRunning
        assert stuck.called(1)


@COLOURS
@TRANSFORMS
@pytest.mark.parametrize(
    "inner", [Retry(timeout=LONG, worker=NO_GRACE), Timeout(LONG, worker=NO_GRACE)], ids=["retry", "timeout"]
)
def test_a_nested_worker_is_recognised_in_a_chained_grouped_or_pickled_error(
    colour: str, transform: Callable[[Exception], Exception], inner: Layer
) -> None:
    with StuckAttempt() as stuck:
        policy = around(attempt_timeout=SOON, worker=Worker(grace=LONG))
        assert reports_a_worker_left(failure(colour, policy, failing(inner, stuck, transform)))
        assert stuck.called(1)


@COLOURS
def test_a_late_attempt_that_left_a_worker_is_not_retried(colour: str) -> None:
    """It is late by the virtual clock, and was not cancelled before its end."""
    calls: list[None] = []

    def work() -> None:
        calls.append(None)
        SYSTEM.sleep(10)
        raise errors.WorkerStillRunning("of another call")

    policy = around(attempt_timeout=1, worker=Worker(grace=LONG))
    with pytest.raises(errors.WorkerStillRunning) as caught:
        at(f"{colour} inside", lambda _: policy.call(work), lambda _: policy.acall(work))
    assert reports_a_worker_left(caught.value)
    assert len(calls) == 1


@COLOURS
def test_an_outer_timeout_reports_the_worker_that_an_inner_one_left(colour: str) -> None:
    inner, outer = Timeout(LONG, worker=NO_GRACE), Timeout(SOON, worker=Worker(grace=LONG))
    with StuckAttempt() as stuck:
        error = failure(colour, around(), lambda: (outer | inner).call(stuck))
        assert reports_a_worker_left(error)
        assert type(error) is errors.WorkerStillRunning
        assert stuck.called(1)
