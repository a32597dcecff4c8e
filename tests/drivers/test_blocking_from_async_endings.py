"""How blocking functions called from async code end: by a limit, by a cancellation, or after their loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial
from threading import Event, Thread, current_thread
from typing import Any, Literal

import pytest
import trio

import redouble
from redouble import Reason, Retry, Worker, errors, remaining, report
from redouble._drivers.workers import threads as _threads
from redouble.types import Event as PolicyEvent
from tests.support.drivers.blocking_calls import failure, run_beside, turns_until
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import (
    LONG,
    NO_GRACE,
    OVERLAPPING,
    STILL_RUNNING,
    StuckAttempt,
    until_cancelled,
)
from tests.support.fakes import ASYNC, Boom, always, run_async
from tests.support.virtual_time import at
from tests.support.workers.threads import idle

pytestmark = pytest.mark.usefixtures(idle.__name__)

LOOPS = pytest.mark.parametrize("colour", ASYNC)
CLOSED = pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])

# ---------------------------------------------------------------------------------- limits


@LOOPS
@pytest.mark.parametrize(
    ("options", "raises", "reason", "limit"),
    [
        ({"attempt_timeout": SOON}, errors.WorkerStillRunning, STILL_RUNNING, "attempt"),
        ({"attempt_timeout": SOON, "wrap": True}, errors.WorkerStillRunning, STILL_RUNNING, "attempt"),
        ({"attempt_timeout": SOON, "attempts": 1}, errors.AttemptTimeout, "attempts", "attempt"),
        ({"attempt_timeout": SOON, "on": always(False)}, errors.AttemptTimeout, "stopped", "attempt"),
        ({"timeout": SOON}, errors.DeadlineExceeded, "timeout", "total"),
        ({"work_timeout": SOON}, errors.DeadlineExceeded, "work_timeout", "work"),
        ({"timeout": LONG, "attempt_timeout": SOON}, errors.WorkerStillRunning, STILL_RUNNING, "attempt"),
    ],
)
def test_the_limit_that_ended_the_call_is_reported(
    colour: str, options: dict[str, Any], raises: type[Exception], reason: str, limit: str
) -> None:
    """In virtual time, so that no time passes before the attempt begins; waiting for it takes real time."""
    policy = Retry(worker=NO_GRACE, backoff=[0] * 9, **options)

    async def waiting(_: object) -> None:
        await policy.acall(stuck)

    with StuckAttempt() as stuck, pytest.raises(raises) as caught:
        at(f"{colour} inside", lambda _: None, waiting)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.limit, reported.workers_left) == (reason, limit, 1)
    assert stuck.called(1)


@LOOPS
def test_a_deadline_ends_the_call(colour: str) -> None:
    async def main() -> object:
        with redouble.deadline(SOON), pytest.raises(errors.DeadlineExceeded) as caught:
            await Retry(worker=NO_GRACE).acall(stuck)
        return caught.value.report and caught.value.report.limit

    with StuckAttempt() as stuck:
        assert run_async(colour, main) == "deadline"


@LOOPS
def test_an_attempt_that_is_too_slow_is_cancelled_and_retried(colour: str) -> None:
    seen: list[object] = []
    events: list[PolicyEvent] = []

    def work() -> str:
        if seen:
            return "done"
        seen.append(remaining(LONG) <= SOON)
        until_cancelled()
        seen.append(remaining())
        return "late"

    policy = Retry(
        attempt_timeout=SOON,
        attempts=99,  # on a busy machine the second may be too slow, too
        backoff=[0] * 99,
        worker=Worker(grace=LONG),
        on_failure=events.append,
    )
    assert run_async(colour, lambda: policy.acall(work)) == "done"
    assert seen == [True, 0.0]
    assert {(event.kind, event.limit) for event in events} == {("timeout", "attempt")}


@LOOPS
def test_overlap_allows_attempts_beside_a_stuck_worker(colour: str) -> None:
    events: list[PolicyEvent] = []
    policy = Retry(
        attempt_timeout=SOON, worker=OVERLAPPING, backoff=[0] * 99, attempts=99, on_success=events.append
    )
    with StuckAttempt("in time") as stuck:
        assert run_async(colour, lambda: policy.acall(stuck)) == "in time"
    assert len(events) == 1
    assert events[0].attempt > 1


# ------------------------------------------------------------------------------ cancelled


@LOOPS
@pytest.mark.parametrize("grace", [False, True])
def test_cancellation_of_the_caller_cancels_the_worker(colour: str, grace: bool) -> None:
    """The worker is not awaited; no rule is called, and no event is emitted."""
    begun, stopped, seen = Event(), Event(), list[object]()

    def work() -> None:
        begun.set()
        until_cancelled()
        stopped.set()
        if grace:
            stuck.released.wait()

    def never(what: object) -> bool:
        raise AssertionError(f"{what!r} was judged, or emitted")

    async def call() -> None:
        try:
            await policy.acall(work)
        except Exception as error:
            seen.append(error)
        except BaseException:
            seen.append("cancelled")
            raise

    async def other() -> None:
        await turns_until((stopped if grace else begun).is_set)

    limits: dict[str, Any] = {"attempt_timeout": SOON} if grace else {}
    policy = Retry(on=never, on_failure=never, on_give_up=never, worker=Worker(grace=LONG), **limits)
    with StuckAttempt() as stuck:
        run_async(colour, lambda: run_beside(colour, call, other))
        assert stopped.wait(LONG)
    assert seen == ["cancelled"]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collect the errors that threads do not handle."""
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    return seen


def is_reusable(threads: list[Thread]) -> bool:
    """Wait for the only worker to be idle; return True if it can be used again."""
    while not _threads._idle:
        threads[0].join(0.001)
    return Retry(worker=Worker()).call(current_thread) is threads[0]


@LOOPS
def test_a_worker_that_outlives_its_loop_is_parked(colour: str, broken: list[object]) -> None:
    """No event loop is left for it to wake."""
    begun, threads = Event(), list[Thread]()

    def work() -> None:
        threads.append(current_thread())
        begun.set()
        stuck.released.wait()

    with StuckAttempt() as stuck:
        call = partial(Retry().acall, work)
        run_async(colour, lambda: run_beside(colour, call, lambda: turns_until(begun.is_set)))
    assert is_reusable(threads)
    assert broken == []


def new_loop(colour: str) -> asyncio.AbstractEventLoop:
    if colour == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


@CLOSED
@pytest.mark.parametrize("error", [None, Boom])
def test_a_worker_is_parked_after_its_loop_was_closed(
    colour: str, error: type[Exception] | None, broken: list[object]
) -> None:
    """Trio has no such case: its run ends after all of its tasks."""
    begun, threads = Event(), list[Thread]()

    def work() -> None:
        threads.append(current_thread())
        begun.set()
        stuck.released.wait()
        if error is not None:
            raise error

    async def main() -> None:
        calls.append(asyncio.ensure_future(Retry(attempt_timeout=LONG).acall(work)))
        await turns_until(begun.is_set)

    calls: list[asyncio.Future[None]] = []
    with StuckAttempt() as stuck:
        loop = new_loop(colour)
        loop.set_exception_handler(lambda loop, context: None)  # it reports that a task was left pending
        loop.run_until_complete(main())
        loop.close()
    assert is_reusable(threads)
    assert broken == []
    assert not calls.pop().done()
    gc.collect()


@LOOPS
def test_a_stuck_worker_counts_for_its_own_call_only(colour: str) -> None:
    with StuckAttempt() as stuck:
        for _ in range(2):
            error = failure(colour, Retry(attempt_timeout=SOON, worker=NO_GRACE), stuck)
            reported = report(error)
            assert reported is not None
            assert (reported.reason, reported.workers_left) == (Reason.worker_still_running, 1)


# ------------------------------------------------------- cancelled before the call


@LOOPS
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_nothing_begins_in_a_task_that_is_cancelled_already(
    colour: str, kind: Literal["thread", "process"]
) -> None:
    calls: list[None] = []
    policy = Retry(worker=Worker(kind))

    async def in_asyncio() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await policy.acall(calls.append, None)

    async def in_trio() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await policy.acall(calls.append, None)
        assert scope.cancelled_caught

    run_async(colour, in_trio if colour == "trio" else in_asyncio)
    assert _threads._idle == []
    assert calls == []


@CLOSED
def test_a_task_that_caught_its_cancellation_can_make_calls(colour: str) -> None:
    async def main() -> object:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await Retry().acall(str, "done")

    assert run_async(colour, main) == "done"
