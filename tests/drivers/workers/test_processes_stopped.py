"""Calls in worker processes are stopped by killing the process, at every step of the call."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redouble import Timeout, Worker, errors, report
from redouble._drivers.workers import process_pool as _pool
from redouble._drivers.workers.processes import ProcessJob
from redouble._drivers.workers.threads import ThreadJob
from tests.support.workers import functions as in_process
from tests.support.workers.calls import (
    ASYNCS,
    AT_ONCE,
    COLOURS,
    LONG,
    cancelled_when,
    idle_processes,
    in_any,
    policy,
    process_exists,
    without_idle_processes,
)
from tests.support.workers.functions import PATIENCE, WorkerConnections

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="looks for processes as POSIX does")


@COLOURS
def test_a_process_that_takes_too_long_is_killed(colour: str) -> None:
    victim = in_any(colour, policy(), in_process.pid)
    with WorkerConnections() as line, pytest.raises(errors.AttemptTimeout) as caught:
        in_any(colour, policy(attempts=1, attempt_timeout=AT_ONCE), in_process.stuck, line.port)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.limit, reported.workers_left) == ("attempt", 0)
    assert not process_exists(victim)


@COLOURS
def test_a_killed_call_is_retried_in_another_process(colour: str, tmp_path: Path) -> None:
    """The second attempt finds the file; on a slow machine, a later one does."""
    victim = in_any(colour, policy(), in_process.pid)
    path = tmp_path / "file"
    seen: list[str] = []

    def create_file(event: Any) -> None:
        seen.append(type(event.error).__name__)
        path.touch()

    retrying = policy(attempts=50, attempt_timeout=0.1, backoff=[0] * 50, on_retry=create_file)
    assert in_any(colour, retrying, in_process.stuck_unless, path) == "done"
    assert set(seen) == {"AttemptTimeout"}
    assert in_any(colour, policy(), in_process.pid) != victim


@COLOURS
@pytest.mark.parametrize("limit", ["timeout", "work_timeout"])
def test_a_limit_of_the_call_kills_the_process_and_ends_the_call(colour: str, limit: str) -> None:
    victim = in_any(colour, policy(), in_process.pid)
    with WorkerConnections() as line, pytest.raises(errors.DeadlineExceeded) as caught:
        in_any(colour, policy(**{limit: AT_ONCE}), in_process.stuck, line.port)
    assert caught.value.reason == limit
    assert not process_exists(victim)


def test_a_timeout_layer_kills_the_process() -> None:
    victim = policy().call(in_process.pid)
    with WorkerConnections() as line, pytest.raises(errors.AttemptTimeout):
        Timeout(AT_ONCE, worker=in_process.PROCESS).call(in_process.stuck, line.port)
    assert not process_exists(victim)


def test_a_process_of_a_fork_server_is_killed_too() -> None:
    """It is not our child, so that only its closed socket shows its end."""
    by_server = policy(worker=Worker(kind="process", start="forkserver"), attempts=1)
    with WorkerConnections() as line:
        first = by_server.call(in_process.stay, line.port)
        assert line.accept() == first
        with pytest.raises(errors.AttemptTimeout):
            policy(worker=by_server.worker, attempts=1, attempt_timeout=AT_ONCE).call(
                in_process.stuck, line.port
            )
        line.wait_for_exit()
    assert by_server.call(in_process.pid) != first


# ------------------------------------------------------------- while the process starts


@COLOURS
def test_the_start_of_a_process_does_not_count_for_the_attempt(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pool, "main", in_process.slow_main)
    retrying = policy(attempts=1, attempt_timeout=in_process.STARTING * 0.9)
    with without_idle_processes():
        assert in_any(colour, retrying, in_process.pid) != os.getpid()


@COLOURS
def test_the_start_of_a_process_counts_for_the_call(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "main", in_process.held_main)
    with WorkerConnections() as line, without_idle_processes():
        monkeypatch.setenv("REDOUBLE_TEST_PORT", str(line.port))
        with pytest.raises(errors.DeadlineExceeded) as caught:
            in_any(colour, policy(timeout=AT_ONCE), in_process.pid)
        line.accept()
        reported = report(caught.value)
        assert reported is not None
        assert (reported.limit, reported.workers_left) == ("total", 0)


def test_a_process_that_starts_too_slowly_serves_the_next_call() -> None:
    """Otherwise a call with little time would never find a process that has started."""
    with without_idle_processes():
        with pytest.raises(errors.DeadlineExceeded):
            policy(timeout=AT_ONCE / 10).call(in_process.pid)
        (process,) = idle_processes()
        assert policy().call(in_process.pid) == process._process.pid


def test_a_process_that_hangs_during_its_start_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second job that waits for it in vain ends it."""
    with WorkerConnections() as line, without_idle_processes():
        monkeypatch.setenv("REDOUBLE_TEST_PORT", str(line.port))
        ready = policy().call(in_process.pid)
        job = prepared_job()
        with monkeypatch.context() as patched:
            patched.setattr(_pool, "main", in_process.held_main)
            with pytest.raises(errors.DeadlineExceeded):
                policy(timeout=AT_ONCE).call(in_process.pid)
        line.accept()
        job.release()
        assert policy().call(in_process.pid) == ready
        with job_of(ready), pytest.raises(errors.DeadlineExceeded):
            policy(timeout=AT_ONCE).call(in_process.pid)
        line.wait_for_exit()


@contextmanager
def job_of(process: int) -> Generator[None]:
    """Occupy this process for the duration of the block."""
    job = prepared_job()
    assert job._process._process.pid == process
    yield
    job.release()


@COLOURS
def test_a_process_that_ends_during_its_start_raises_worker_failed_once(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without_idle_processes():
        with monkeypatch.context() as patched:
            patched.setattr(_pool, "main", in_process.broken_main)
            with pytest.raises(errors.WorkerFailed, match=r"ended before it was ready \(exit code 0\)"):
                in_any(colour, policy(), in_process.pid)
        assert in_any(colour, policy(), in_process.pid) != os.getpid()


# ----------------------------------------------------------------------- cancellation


@ASYNCS
def test_cancellation_during_the_call_kills_the_process(colour: str) -> None:
    with WorkerConnections() as line:
        cancelled_when(colour, line.accept, lambda: policy().acall(in_process.stuck, line.port))
        line.wait_for_exit()


@ASYNCS
def test_cancellation_during_the_start_does_not_kill_the_process(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues to start, for another job; here the test ends it before."""
    monkeypatch.setattr(_pool, "main", in_process.held_main)
    with WorkerConnections() as line, without_idle_processes():
        monkeypatch.setenv("REDOUBLE_TEST_PORT", str(line.port))
        cancelled_when(colour, line.accept, lambda: policy().acall(in_process.pid))
        line.release()
        line.wait_for_exit()


@ASYNCS
def test_a_process_whose_call_gets_no_thread_serves_the_next_call(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread prepares the process; here no other can be started for the call itself."""
    before = policy().call(in_process.pid)
    start, jobs = ThreadJob.start, list[ThreadJob]()

    def fail_second(job: ThreadJob, seconds: float) -> None:
        jobs.append(job)
        if len(jobs) == 2:
            raise errors.WorkerFailed("no thread")
        start(job, seconds)

    with monkeypatch.context() as patched:
        patched.setattr(ThreadJob, "start", fail_second)
        with pytest.raises(errors.WorkerFailed, match="no thread"):
            in_any(colour, policy(), in_process.pid)
    assert policy().call(in_process.pid) == before


def prepared_job() -> ProcessJob:
    job = ProcessJob("spawn", in_process.pid)
    assert job.prepare()
    return job


def test_a_prepared_job_that_is_stopped_releases_its_process() -> None:
    """It never makes its call."""
    before = policy().call(in_process.pid)
    job = prepared_job()
    job.stop()
    assert job.run(LONG) is None
    assert policy().call(in_process.pid) == before


def test_a_job_that_is_stopped_before_it_has_a_process_still_starts_one() -> None:
    """It serves the next job."""
    with without_idle_processes():
        job = ProcessJob("spawn", in_process.pid)
        job.stop()
        assert job.prepare()
        (process,) = idle_processes()
        assert policy().call(in_process.pid) == process._process.pid


def test_the_wait_for_a_process_that_is_never_ready_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_pool, "main", in_process.held_main)
    monkeypatch.setattr(_pool, "START_TIMEOUT", AT_ONCE)
    with WorkerConnections() as line, without_idle_processes():
        monkeypatch.setenv("REDOUBLE_TEST_PORT", str(line.port))
        with pytest.raises(errors.WorkerFailed, match=r"was not ready after 0\.05 s"):
            ProcessJob("spawn", in_process.pid).prepare()


def test_a_process_is_released_once() -> None:
    with without_idle_processes():
        job = prepared_job()
        job.release()
        job.release()
        job.stop()
        job.close()
        (process,) = idle_processes()
        assert policy().call(in_process.pid) == process._process.pid


def test_cancellation_after_the_end_does_not_kill_the_process() -> None:
    """The process may serve another job by then."""
    job = prepared_job()
    process = job.run(LONG)
    other = prepared_job()
    job.stop()
    other.start(LONG)
    assert other.wait(PATIENCE)
    assert other.result() == process
