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
from redouble.types import Event as Told
from tests.drivers.test_attempt import AT_ONCE, BESIDE, LONG, SOON, STUCK, Stuck, until_told
from tests.drivers.test_blocking_from_async import beside, failure, run, turns
from tests.drivers.workers.test_threads import idle
from tests.support.fakes import ASYNC, Boom, always
from tests.support.virtual_time import at

pytestmark = pytest.mark.usefixtures(idle.__name__)

LOOPS = pytest.mark.parametrize("colour", ASYNC)
CLOSED = pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])

# ---------------------------------------------------------------------------------- limits


@LOOPS
@pytest.mark.parametrize(
    ("options", "raises", "reason", "limit"),
    [
        ({"attempt_timeout": SOON}, errors.WorkerStillRunning, STUCK, "attempt"),
        ({"attempt_timeout": SOON, "wrap": True}, errors.WorkerStillRunning, STUCK, "attempt"),
        ({"attempt_timeout": SOON, "attempts": 1}, errors.AttemptTimeout, "attempts", "attempt"),
        ({"attempt_timeout": SOON, "on": always(False)}, errors.AttemptTimeout, "stopped", "attempt"),
        ({"timeout": SOON}, errors.DeadlineExceeded, "timeout", "total"),
        ({"work_timeout": SOON}, errors.DeadlineExceeded, "work_timeout", "work"),
        ({"timeout": LONG, "attempt_timeout": SOON}, errors.WorkerStillRunning, STUCK, "attempt"),
    ],
)
def test_what_ends_the_call(
    colour: str, options: dict[str, Any], raises: type[Exception], reason: str, limit: str
) -> None:
    """In virtual time, so that none is lost before the attempt begins; waiting for it is real."""
    policy = Retry(worker=AT_ONCE, backoff=[0] * 9, **options)

    async def waiting(_: object) -> None:
        await policy.acall(stuck)

    with Stuck() as stuck, pytest.raises(raises) as caught:
        at(f"{colour} inside", lambda _: None, waiting)
    said = report(caught.value)
    assert said is not None
    assert (said.reason, said.limit, said.workers_left) == (reason, limit, 1)
    assert stuck.called(1)


@LOOPS
def test_a_deadline_ends_it_too(colour: str) -> None:
    async def main() -> object:
        with redouble.deadline(SOON), pytest.raises(errors.DeadlineExceeded) as caught:
            await Retry(worker=AT_ONCE).acall(stuck)
        return caught.value.report and caught.value.report.limit

    with Stuck() as stuck:
        assert run(colour, main) == "deadline"


@LOOPS
def test_an_attempt_that_is_too_slow_is_cancelled_and_retried(colour: str) -> None:
    seen: list[object] = []
    told: list[Told] = []

    def work() -> str:
        if seen:
            return "done"
        seen.append(remaining(LONG) <= SOON)
        until_told()
        seen.append(remaining())
        return "late"

    policy = Retry(
        attempt_timeout=SOON,
        attempts=99,  # a busy machine may not come to the second in time either
        backoff=[0] * 99,
        worker=Worker(grace=LONG),
        on_failure=told.append,
    )
    assert run(colour, lambda: policy.acall(work)) == "done"
    assert seen == [True, 0.0]
    assert {(event.kind, event.limit) for event in told} == {("timeout", "attempt")}


@LOOPS
def test_beside_a_worker_that_does_not_stop_if_that_is_allowed(colour: str) -> None:
    told: list[Told] = []
    policy = Retry(attempt_timeout=SOON, worker=BESIDE, backoff=[0] * 99, attempts=99, on_success=told.append)
    with Stuck("in time") as stuck:
        assert run(colour, lambda: policy.acall(stuck)) == "in time"
    assert len(told) == 1
    assert told[0].attempt > 1


# ------------------------------------------------------------------------------ cancelled


@LOOPS
@pytest.mark.parametrize("grace", [False, True])
def test_the_caller_is_cancelled(colour: str, grace: bool) -> None:
    """The operation is asked to stop, it is not awaited, and nothing is judged or given up."""
    begun, told, seen = Event(), Event(), list[object]()

    def work() -> None:
        begun.set()
        until_told()
        told.set()
        if grace:
            stuck.go.wait()

    def never(what: object) -> bool:
        raise AssertionError(f"{what!r} was judged, or told")

    async def call() -> None:
        try:
            await policy.acall(work)
        except Exception as error:
            seen.append(error)
        except BaseException:
            seen.append("cancelled")
            raise

    async def other() -> None:
        await turns((told if grace else begun).is_set)

    limits: dict[str, Any] = {"attempt_timeout": SOON} if grace else {}
    policy = Retry(on=never, on_failure=never, on_give_up=never, worker=Worker(grace=LONG), **limits)
    with Stuck() as stuck:
        run(colour, lambda: beside(colour, call, other))
        assert told.wait(LONG)
    assert seen == ["cancelled"]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collect the errors that threads do not handle."""
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    return seen


def went_back(threads: list[Thread]) -> bool:
    """Wait for the only worker to be idle; return True if it can be used again."""
    while not _threads._idle:
        threads[0].join(0.001)
    return Retry(worker=Worker()).call(current_thread) is threads[0]


@LOOPS
def test_a_worker_that_outlives_its_loop(colour: str, broken: list[object]) -> None:
    """It has no event loop to wake; it is parked all the same."""
    begun, threads = Event(), list[Thread]()

    def work() -> None:
        threads.append(current_thread())
        begun.set()
        stuck.go.wait()

    with Stuck() as stuck:
        call = partial(Retry().acall, work)
        run(colour, lambda: beside(colour, call, lambda: turns(begun.is_set)))
    assert went_back(threads)
    assert broken == []


def new_loop(colour: str) -> asyncio.AbstractEventLoop:
    if colour == "asyncio":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


@CLOSED
@pytest.mark.parametrize("error", [None, Boom])
def test_a_loop_that_is_closed_with_a_call_in_flight(
    colour: str, error: type[Exception] | None, broken: list[object]
) -> None:
    """Which Trio does not do: it ends no run before its tasks."""
    begun, threads = Event(), list[Thread]()

    def work() -> None:
        threads.append(current_thread())
        begun.set()
        stuck.go.wait()
        if error is not None:
            raise error

    async def main() -> None:
        calls.append(asyncio.ensure_future(Retry(attempt_timeout=LONG).acall(work)))
        await turns(begun.is_set)

    calls: list[asyncio.Future[None]] = []
    with Stuck() as stuck:
        loop = new_loop(colour)
        loop.set_exception_handler(lambda loop, said: None)  # it does say that a task was left behind
        loop.run_until_complete(main())
        loop.close()
    assert went_back(threads)
    assert broken == []
    assert not calls.pop().done()
    gc.collect()


@LOOPS
def test_reasons_of_workers_are_not_those_of_others(colour: str) -> None:
    """A worker that could not be stopped in one call is no concern of the next."""
    with Stuck() as stuck:
        for _ in range(2):
            error = failure(colour, Retry(attempt_timeout=SOON, worker=AT_ONCE), stuck)
            said = report(error)
            assert said is not None
            assert (said.reason, said.workers_left) == (Reason.worker_still_running, 1)


# -------------------------------------------------------------------- cancelled before


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

    run(colour, in_trio if colour == "trio" else in_asyncio)
    assert _threads._idle == []
    assert calls == []


@CLOSED
def test_a_task_that_goes_on_though_it_was_cancelled(colour: str) -> None:
    """It has caught its cancellation: what it does from then on is its own business."""

    async def main() -> object:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await Retry().acall(str, "done")

    assert run(colour, main) == "done"
