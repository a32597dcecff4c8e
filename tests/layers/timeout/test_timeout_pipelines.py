"""`Timeout` in pipelines: as the limit of the whole call, of each attempt, or of both."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from redouble import SYSTEM, Gate, Pipeline, Reason, Report, Retry, Timeout, Worker, deadline, errors, report
from redouble.testing import Script, VirtualClock, fail, ok, virtual_time
from tests.support.drivers.stuck_operations import SOON, stuck
from tests.support.fakes import always
from tests.support.virtual_time import HOUR, LOOP_PLACES, in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

THREAD = Worker(grace=0)
OVERLAPPING = replace(THREAD, overlap=True)


class Open(Gate):
    """A gate that admits every call, and records its error."""

    def __init__(self) -> None:
        self.errors: list[type[Any]] = []

    def admit(self, now: float, /) -> None: ...

    def ended(self, ticket: object, error: BaseException | None, now: float, /) -> None:
        self.errors.append(type(error))


def report_of(error: BaseException) -> Report:
    found = report(error)
    assert found is not None
    return found


# ------------------------------------------------------------------------------------ async

FOUR = Retry(backoff=[1] * 9)
MANY = Retry(attempts=9, backoff=[1] * 9)

ROWS: dict[str, tuple[Pipeline, list[Any], object, int, float]] = {
    # a pipeline, a script, the result, the calls, and the time at the end
    "in time": (Timeout(10) | FOUR | Timeout(2), [fail(takes=1), ok(3, takes=1)], 3, 2, 3),
    "each attempt": (Timeout(30) | FOUR | Timeout(2), [ok(takes=9), ok(takes=9), ok(3)], 3, 3, 6),
    "all attempts": (Timeout(30) | FOUR | Timeout(2), [ok(takes=9)] * 4, 2, 4, 11),
    "the whole, in an attempt": (Timeout(10) | MANY | Timeout(2), [ok(takes=9)] * 9, 10, 4, 10),
    "the whole, in a delay": (Timeout(5.5) | MANY | Timeout(2), [ok(takes=9)] * 9, 5.5, 2, 5.5),
    "only the whole": (Timeout(5) | FOUR, ["fail", ok(takes=HOUR)], 5, 2, 5),
    "only attempts": (FOUR | Timeout(5), [ok(takes=HOUR), ok(3)], 3, 2, 6),
    "a longer one inside": (Timeout(1) | Timeout(2), [ok(takes=HOUR)], 1, 1, 1),
    "a shorter one inside": (Timeout(2) | Timeout(1), [ok(takes=HOUR)], 1, 1, 1),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("place", LOOP_PLACES)
def test_limits_of_the_whole_and_of_each_attempt(place: str, row: str) -> None:
    """A number of seconds as the expected result is the limit that was reached."""
    pipeline, steps, expected, calls, late = ROWS[row]

    async def waiting(clock: VirtualClock) -> None:
        script = Script(*steps)
        try:
            outcome: object = await pipeline.call(script.aio)
        except errors.AttemptTimeout as error:
            outcome = error.seconds
        assert (outcome, len(script.calls), clock.now()) == (expected, calls, late)

    in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_of_two_equal_limits_the_outer_one_is_reported(place: str) -> None:
    """The retry between them sees a cancellation, and no timeout."""
    events: list[str] = []
    between = Retry(on_failure=lambda event: events.append(event.what))
    gate = Open()

    async def waiting(clock: VirtualClock) -> None:
        script = Script(ok(takes=HOUR))
        with pytest.raises(errors.AttemptTimeout):
            await (Timeout(2) | gate | between | Timeout(2)).call(script.aio)
        assert (len(script.calls), clock.now()) == (1, 2)

    in_virtual_time(place, waiting)
    assert events == []
    assert [issubclass(kind, Exception) for kind in gate.errors] == [False]


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_an_attempt_that_timed_out_is_in_the_history(place: str) -> None:
    async def waiting(_: VirtualClock) -> None:
        with pytest.raises(errors.AttemptTimeout) as caught:
            await (Retry(attempts=2, backoff=[1]) | Timeout(2)).call(Script(*[ok(takes=9)] * 2).aio)
        found = report_of(caught.value)
        assert (found.reason, found.attempts, found.elapsed) == (Reason.attempts, 2, 5)
        assert [(str(record.kind), record.elapsed) for record in found.history] == [("timeout", 2)] * 2

    in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_deadline_around_a_retry_is_reported_by_the_retry(place: str) -> None:
    """The retry is the outermost layer that the deadline ends; it reports the earlier failures."""

    async def waiting(clock: VirtualClock) -> None:
        script = Script(ok(takes=HOUR), ok(takes=HOUR))
        with deadline(5), pytest.raises(errors.DeadlineExceeded) as caught:
            await (Retry(backoff=[1] * 3) | Timeout(3)).call(script.aio)
        assert (len(script.calls), clock.now()) == (2, 5)
        assert report_of(caught.value).limit == "deadline"
        assert isinstance(caught.value.__cause__, errors.AttemptTimeout)
        assert caught.value.__cause__.limit == "attempt"

    in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_deadline_around_a_longer_limit_is_reported_by_the_limit(place: str) -> None:
    """The limit is the outermost layer that the deadline ends."""

    async def waiting(clock: VirtualClock) -> None:
        script = Script(ok(takes=HOUR), ok(takes=HOUR))
        with deadline(5), pytest.raises(errors.AttemptTimeout) as caught:
            await (Timeout(60) | Retry(backoff=[1] * 3) | Timeout(3)).call(script.aio)
        assert (len(script.calls), clock.now()) == (2, 5)
        assert (caught.value.limit, caught.value.seconds) == ("deadline", 5)

    in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_stream_with_limits_of_the_whole_and_of_each_attempt(place: str) -> None:
    delays = iter([9.0, 1.0])

    @(Timeout(30) | Retry(backoff=[1]) | Timeout(2))
    async def items() -> AsyncIterator[int]:
        await SYSTEM.asleep(next(delays))
        yield 1
        await SYSTEM.asleep(HOUR)
        yield 2

    async def waiting(clock: VirtualClock) -> float:
        assert [item async for item in items()] == [1, 2]
        return clock.now()

    assert in_virtual_time(place, waiting) == HOUR + 4


# ---------------------------------------------------------------------------------- blocking


def test_a_limit_of_each_blocking_attempt() -> None:
    """In virtual time, which includes the sleeps of a worker."""
    sleeps = [9.0, 9.0, 1.0]

    @(Timeout(60, worker=Worker()) | Retry(backoff=[1] * 3) | Timeout(5, worker=Worker()))
    def fetch() -> int:
        SYSTEM.sleep(sleeps.pop(0))
        return 3

    with virtual_time():
        assert fetch() == 3
    assert sleeps == []


def test_a_limit_of_a_whole_blocking_call() -> None:
    """Its retry, on the worker, knows the time left and starts nothing that would be too late."""
    calls: list[None] = []

    @(Timeout(HOUR, worker=Worker()) | Retry(on=OSError, backoff=[HOUR] * 3, give_up_after=None))
    def fetch() -> None:
        calls.append(None)
        raise OSError

    with pytest.raises(OSError) as caught:  # noqa: PT011  the operation's own
        fetch()
    assert (len(calls), report_of(caught.value).limit) == (1, "deadline")


@pytest.mark.parametrize("on", [Exception, errors.WorkerStillRunning, always(True)])
def test_a_worker_that_is_still_running_ends_the_retry_around_it(on: Any) -> None:
    """Whatever its rules return: a second attempt would run beside it."""
    pipeline = Retry(on=on, backoff=[0] * 3) | Timeout(SOON, worker=THREAD)
    with stuck(times=1) as operation, pytest.raises(errors.WorkerStillRunning) as caught:
        pipeline.call(operation)
    assert (report_of(caught.value).reason, report_of(caught.value).attempts) == (
        Reason.worker_still_running,
        1,
    )


def test_workers_may_overlap_if_allowed() -> None:
    pipeline = Retry(attempts=3, backoff=[0] * 3) | Timeout(SOON, worker=OVERLAPPING)
    with stuck(times=3) as operation, pytest.raises(errors.AttemptTimeout) as caught:
        pipeline.call(operation)
    assert len(set(operation.calls)) == 3
    assert report_of(caught.value).reason is Reason.attempts


def test_a_worker_that_is_still_running_inside_another_worker_ends_the_retry() -> None:
    pipeline = Timeout(HOUR, worker=Worker()) | Retry(on=Exception) | Timeout(SOON, worker=THREAD)
    with stuck(times=1) as operation, pytest.raises(errors.WorkerStillRunning) as caught:
        pipeline.call(operation)
    assert report_of(caught.value).reason is Reason.worker_still_running


def test_a_gate_records_that_a_worker_is_still_running() -> None:
    gate = Open()
    with stuck() as operation, pytest.raises(errors.WorkerStillRunning):
        (gate | Timeout(SOON, worker=THREAD)).call(operation)
    assert gate.errors == [errors.WorkerStillRunning]


def test_acall_of_blocking_code_with_a_limit_of_its_own() -> None:
    """The policy and the limit inside have a worker thread each; the function does not run on the loop's."""
    seen: list[int] = []

    @Timeout(HOUR, worker=Worker())
    def fetch() -> None:
        seen.append(threading.get_ident())

    async def waiting(_: VirtualClock) -> None:
        await Retry().acall(fetch)

    in_virtual_time("asyncio inside", waiting)
    assert seen != [threading.get_ident()]
