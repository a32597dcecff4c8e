"""Attempts on a worker: which clock limits them, and what their end means for calls inside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

import redouble
from redouble import Retry, Worker, cancelled, errors, report
from redouble._drivers.workers.threads import ThreadJob
from redouble.testing import virtual_time
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import (
    LONG,
    NO_GRACE,
    OVERLAPPING,
    StuckAttempt,
    outcome_of,
    until_cancelled,
)
from tests.support.fakes import Boom, Virtual

# -------------------------------------------------------------------------------- the clock


def test_the_virtual_clock_advances_exactly_to_the_limit() -> None:
    policy = Retry(
        attempt_timeout=SOON,
        worker=Worker(grace=2 * SOON, overlap=True),
        backoff=[3600, 7200],
        give_up_after=None,
    )
    with virtual_time() as clock, StuckAttempt() as stuck:
        outcome = outcome_of(policy, stuck)
        assert clock.now() == pytest.approx(10800 + 3 * 3 * SOON, abs=1e-9)
        assert clock.delays == [3600, 7200]
    assert outcome.report.elapsed == pytest.approx(10800 + 9 * SOON, abs=1e-9)
    started = [record.started for record in outcome.report.history]
    assert started == pytest.approx([0, 3600 + 3 * SOON, 10800 + 6 * SOON], abs=1e-9)


@pytest.mark.parametrize(("slept", "ok"), [(0.5, True), (0.999, True), (1, False), (10, False)])
def test_virtual_sleeps_of_a_worker_count_for_its_limit(
    slept: float, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the worker ends before the caller begins to wait for it."""
    through = Event()
    start = ThreadJob.start

    def quickly(job: ThreadJob, *args: Any) -> None:
        start(job, *args)
        through.wait()

    def work() -> str:
        redouble.SYSTEM.sleep(slept)
        through.set()
        return "done"

    monkeypatch.setattr(ThreadJob, "start", quickly)
    with virtual_time() as clock:
        outcome = outcome_of(Retry(attempt_timeout=1, attempts=1, worker=Worker()), work)
        assert clock.delays == [slept]
    assert (outcome.ok, outcome.value) == (ok, "done" if ok else None)
    assert (outcome.report.limit, outcome.report.workers_left) == (None if ok else "attempt", 0)


def test_with_a_custom_clock_the_wait_for_a_worker_is_real() -> None:
    with StuckAttempt() as stuck:
        outcome = outcome_of(Retry(attempt_timeout=SOON, worker=NO_GRACE, clock=Virtual()), stuck)
    assert type(outcome.error) is errors.WorkerStillRunning
    assert outcome.report.elapsed == 0


# ------------------------------------------------------------- calls on an abandoned worker


@pytest.mark.parametrize("shape", SHAPES)
def test_inner_policies_stop_with_their_attempt(shape: str) -> None:
    """The end of the attempt is their deadline: after it nothing is retried, and no call begins."""
    calls, seen = list[str](), list[object]()
    inner = Retry(on=Boom, backoff=[0] * 99, attempts=100, give_up_after=None)

    def failing() -> None:
        calls.append("begun before")
        redouble.SYSTEM.sleep(2 * LONG)
        raise Boom

    def beginning() -> None:
        calls.append("begun after")

    def work() -> None:
        for operation in (failing, beginning):
            try:
                SHAPES[shape](inner, operation)
            except Exception as error:
                reported = report(error)
                seen.append((type(error), reported and (reported.reason, reported.limit, reported.attempts)))

    with virtual_time():
        outcome = outcome_of(Retry(attempt_timeout=LONG, attempts=1, worker=Worker()), work)
    assert type(outcome.error) is errors.AttemptTimeout
    assert calls == ["begun before"]
    assert seen == [
        (Boom, ("timeout", "deadline", 1)),
        (errors.DeadlineExceeded, ("timeout", "deadline", 0)),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_inner_policies_begin_nothing_on_an_abandoned_worker(shape: str) -> None:
    calls, seen, went_on = list[str](), list[object](), Event()

    def work() -> None:
        stuck()
        try:
            SHAPES[shape](Retry(), lambda: calls.append("begun after"))
        except errors.DeadlineExceeded as error:
            seen.append(error.report and error.report.limit)
        went_on.set()

    with StuckAttempt() as stuck:
        outcome = outcome_of(Retry(attempt_timeout=SOON, worker=NO_GRACE), work)
    assert type(outcome.error) is errors.WorkerStillRunning
    assert went_on.wait(LONG)
    assert (calls, seen) == ([], ["deadline"])


def test_an_inner_limit_is_at_most_the_time_left() -> None:
    seen: list[object] = []

    def work() -> None:
        with StuckAttempt() as stuck, pytest.raises(errors.AttemptTimeout) as caught:
            redouble.Timeout(1, worker=OVERLAPPING)(stuck)()
        seen.append(caught.value.limit)

    outcome_of(Retry(attempt_timeout=SOON, attempts=1, worker=Worker(grace=LONG)), work)
    assert seen == ["deadline"]


def test_a_nested_worker_is_cancelled_too() -> None:
    threads: list[Thread] = []

    def inside() -> str:
        threads.append(threading.current_thread())
        until_cancelled()
        return "cancelled"

    def work() -> object:
        threads.append(threading.current_thread())
        return Retry(worker=Worker(grace=LONG)).call(inside)

    outcome = outcome_of(Retry(attempt_timeout=SOON, attempts=1, worker=Worker(grace=LONG)), work)
    assert type(outcome.error) is errors.AttemptTimeout
    assert outcome.report.workers_left == 0
    assert len(set(threads)) == 2


@pytest.mark.parametrize("shape", ASYNC_SHAPES)
def test_async_calls_on_a_worker_are_cancelled_with_its_attempt(shape: str) -> None:
    """They are not abandoned: their policies have a deadline."""
    seen: list[object] = []

    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await ASYNC_SHAPES[shape](Retry(timeout=LONG), forever)

    def work() -> None:
        with pytest.raises(errors.DeadlineExceeded) as caught:
            asyncio.run(main())
        reported = report(caught.value)
        seen.append(reported and reported.limit)

    outcome = outcome_of(Retry(attempt_timeout=SOON, attempts=1, worker=Worker(grace=LONG)), work)
    assert seen == ["deadline"]
    assert outcome.report.workers_left == 0


def test_cancellation_does_not_affect_other_jobs() -> None:
    """Neither the next job on the same thread, nor concurrent jobs."""
    with StuckAttempt() as stuck:
        outcome_of(Retry(attempt_timeout=SOON, worker=NO_GRACE), stuck)
        assert Retry(worker=Worker()).call(cancelled) is False
    assert not any(Retry(worker=Worker()).call(cancelled) for _ in range(9))


# ------------------------------------------------------------------- inner and outer limits

LIMITED = Retry(attempt_timeout=SOON, attempts=2, worker=Worker(grace=LONG), backoff=[0])

SHORT: dict[str, Callable[[Callable[[], None]], None]] = {
    "call": LIMITED.call,
    "decorator": lambda work: LIMITED(work)(),
    "acall": lambda work: asyncio.run(LIMITED.acall(work)),
}


@pytest.mark.parametrize("how", SHORT)
@pytest.mark.parametrize("times", range(5))
def test_the_outer_limit_is_reported_if_an_inner_policy_ends_by_it(
    how: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever policy notices it first; and attempts do not multiply."""
    inner, ends = Retry(), list[type[Exception]]()

    def work() -> None:
        try:
            while True:
                inner.call(int)
        except errors.DeadlineExceeded as error:
            ends.append(type(error))
            raise

    with pytest.raises(errors.AttemptTimeout) as caught:
        SHORT[how](work)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.workers_left) == ("attempts", 2, 0)
    assert {record.error_type for record in reported.history} == {reported.history[0].error_type}
    assert len(ends) == 2
    assert not caplog.records
