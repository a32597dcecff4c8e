"""Worker threads: parked, reused and ended; the context of their jobs, results and errors."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, current_thread
from time import monotonic
from typing import Any

import pytest

from redouble import SYSTEM, Retry, Worker, cancelled, report
from redouble._drivers.workers import threads as _threads
from redouble._runtime.clock import virtual
from redouble.testing import virtual_time
from tests.support.fakes import Boom, Panic
from tests.support.thread_switching import switching
from tests.support.workers.calls import LONG
from tests.support.workers.threads import POLICY, VAR, idle

pytestmark = pytest.mark.usefixtures(idle.__name__)


# ----------------------------------------------------------------------- parked and reused


def test_one_thread_does_one_job_after_the_other(idle: list[Thread]) -> None:
    threads = [POLICY.call(current_thread) for _ in range(9)]
    assert set(threads) == set(idle)
    assert len(idle) == 1
    assert idle[0].daemon
    assert idle[0].name == "redouble worker"


def test_all_policies_share_the_worker_threads(idle: list[Thread]) -> None:
    assert Retry(worker=Worker(grace=1)).call(current_thread) is POLICY.call(current_thread)
    assert len(idle) == 1


def test_concurrent_jobs_have_a_thread_each(idle: list[Thread]) -> None:
    together = threading.Barrier(5)

    def work() -> Thread:
        together.wait()
        return current_thread()

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(POLICY.call, work) for _ in range(5)]
        threads = {future.result() for future in futures}
    assert threads == set(idle)
    assert len(idle) == 5


def test_the_thread_parked_last_is_taken_first(idle: list[Thread]) -> None:
    """So that the surplus threads of a burst stay idle, and end."""
    go, begun = {name: Event() for name in "abc"}, threading.Barrier(4)

    def work(name: str) -> Thread:
        begun.wait()
        go[name].wait()
        return current_thread()

    with ThreadPoolExecutor(3) as pool:
        futures = {name: pool.submit(POLICY.call, work, name) for name in go}
        begun.wait()
        order: list[Thread] = []
        for name in "bca":
            go[name].set()
            order.append(futures[name].result())
    assert idle == order
    assert [POLICY.call(current_thread) for _ in range(3)] == [order[-1]] * 3


def test_an_idle_thread_ends_after_the_idle_timeout(
    idle: list[Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threads, "IDLE_TIMEOUT", 0.001)
    for _ in range(3):
        thread = POLICY.call(current_thread)
        thread.join()
        assert idle == []
        assert not thread.is_alive()


def test_no_job_is_lost_if_its_thread_is_about_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_threads, "IDLE_TIMEOUT", 0.0)
    assert [POLICY.call(int, str(number)) for number in range(2000)] == [*range(2000)]


def test_a_thread_that_is_taken_as_its_idle_timeout_ends_runs_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread finds that it is no longer idle, and waits for the job instead of ending."""
    job = _threads.ThreadJob(monotonic, current_thread, (), {})
    jobs = [job]

    class Stack(list[Any]):
        def remove(self, thread: Any, /) -> None:
            while jobs:
                jobs.pop().start()  # pops the thread that is about to remove itself
            super().remove(thread)

    monkeypatch.setattr(_threads, "IDLE_TIMEOUT", 0.0)
    monkeypatch.setattr(_threads, "_idle", Stack())
    thread = POLICY.call(current_thread)
    job.wait(LONG)
    assert job.ended_in_time()
    assert job.result() is thread


def test_a_failed_job_does_not_end_its_thread(idle: list[Thread]) -> None:
    thread = POLICY.call(current_thread)
    for error in (Panic(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(), Boom()):
        with pytest.raises(type(error)):
            Retry(worker=Worker()).call(raising, error)
    assert POLICY.call(current_thread) is thread
    assert idle == [thread]


def raising(error: BaseException) -> None:
    raise error


# --------------------------------------------------------------------- the context of a job


def test_a_job_runs_in_a_copy_of_the_callers_context() -> None:
    fails = [Boom(), Boom()]

    def work() -> str:
        before = VAR.get()
        VAR.set("changed on the worker")
        if fails:
            raise fails.pop()
        return before

    token = VAR.set("outside")
    try:
        assert POLICY.call(work) == "outside"  # in every attempt
        assert VAR.get() == "outside"
    finally:
        VAR.reset(token)
    assert POLICY.call(VAR.get) == "unset"


def test_virtual_time_applies_on_the_worker() -> None:
    fails = [Boom(), Boom()]

    def work() -> object:
        SYSTEM.sleep(60)
        if fails:
            raise fails.pop()
        return virtual()

    with virtual_time() as clock:
        policy = Retry(on=Boom, backoff=[3600, 7200], give_up_after=None, worker=Worker())
        assert policy.call(work) is clock
        assert clock.delays == [60, 3600, 60, 7200, 60]
        assert clock.now() == 3600 + 7200 + 3 * 60
    assert POLICY.call(virtual) is None


def test_nested_workers_have_a_thread_each(idle: list[Thread]) -> None:
    def deeper(levels: int) -> list[Thread]:
        return [current_thread(), *(POLICY.call(deeper, levels - 1) if levels else [])]

    threads = POLICY.call(deeper, 9)
    assert len(set(threads)) == len(idle) == 10
    assert not POLICY.call(cancelled)


# ---------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", [Boom, Panic, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_errors_are_raised_with_the_traceback_of_the_worker(kind: type[BaseException]) -> None:
    raised = kind("on the worker")

    def where_it_went_wrong() -> None:
        raise raised

    with pytest.raises(kind) as caught:
        Retry(attempts=1, worker=Worker()).call(where_it_went_wrong)
    assert caught.value is raised
    names = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
    assert names[0] == test_errors_are_raised_with_the_traceback_of_the_worker.__name__
    assert names[-1] == "where_it_went_wrong"
    assert (report(raised) is None) is not isinstance(raised, Exception)


def test_a_stop_iteration_is_retried_like_any_error() -> None:
    fails = [StopIteration(1), StopIteration(2)]

    def work() -> str:
        if fails:
            raise fails.pop()
        return "done"

    assert Retry(on=StopIteration, backoff=[0, 0], worker=Worker()).call(work) == "done"


def test_an_error_that_is_falsy_or_cannot_be_compared_is_raised() -> None:
    class Odd(Boom):
        def __bool__(self) -> bool:
            return False

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    with pytest.raises(Odd):
        Retry(attempts=1, worker=Worker()).call(raising, Odd())


# --------------------------------------------------------------------------------- stress


@pytest.mark.stress
@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("seconds", [10.0, 0.0], ids=["parked", "ending at once"])
def test_many_jobs_from_many_threads(
    seconds: float, idle: list[Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job is done exactly once, by no more threads than there are callers."""
    monkeypatch.setattr(_threads, "IDLE_TIMEOUT", seconds)
    callers, jobs = 16, 100
    done: list[tuple[int, int, int]] = []
    threads: set[Any] = set()
    start = threading.Barrier(callers)

    def work(caller: int, number: int, attempts: list[int]) -> tuple[int, int]:
        attempts.append(number)
        done.append((caller, number, len(attempts)))
        threads.add(current_thread())
        if number % 5 == 0 and len(attempts) < 3:
            raise Boom(caller, number)
        return caller, number

    def calling(caller: int) -> list[tuple[int, int]]:
        start.wait()
        return [POLICY.call(work, caller, number, []) for number in range(jobs)]

    with ThreadPoolExecutor(callers) as pool:
        seen = list(pool.map(calling, range(callers)))
    assert seen == [[(caller, number) for number in range(jobs)] for caller in range(callers)]
    wanted = {
        (caller, number, attempt)
        for caller in range(callers)
        for number in range(jobs)
        for attempt in range(1, 4 if number % 5 == 0 else 2)
    }
    assert len(done) == len(wanted)
    assert set(done) == wanted
    if seconds:
        assert threads == set(idle)
        assert len(idle) <= callers
