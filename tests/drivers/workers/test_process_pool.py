"""The pool of worker processes: they are reused, replaced when they die, and limited in number."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from redouble import errors
from redouble._drivers.workers import process_pool as _pool
from tests.support.workers import functions as in_process
from tests.support.workers.calls import (
    COLOURS,
    idle_processes,
    in_any,
    policy,
    process_exists,
    without_idle_processes,
)
from tests.support.workers.functions import PATIENCE, WorkerConnections

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills and forks as POSIX does")


# ------------------------------------------------------------------ killed from outside


@COLOURS
def test_an_idle_process_that_was_killed_is_replaced(colour: str) -> None:
    with without_idle_processes():
        victim = in_any(colour, policy(), in_process.pid)
        (parked,) = idle_processes()
        os.kill(victim, signal.SIGKILL)
        assert parked.has_reply(PATIENCE)
        assert in_any(colour, policy(), in_process.pid) != victim
        assert not process_exists(victim)
        assert parked not in _pool._all


def test_sending_to_a_killed_process_raises_worker_failed() -> None:
    with without_idle_processes():
        victim = policy().call(in_process.pid)
        taken = _pool.WorkerProcess.idle("spawn")
        os.kill(victim, signal.SIGKILL)
        assert taken.has_reply(PATIENCE)
        with pytest.raises(errors.WorkerFailed, match=r"has died \(signal 9\)"):
            taken.send(b"")
        taken.end()


@COLOURS
def test_a_process_killed_during_a_call_raises_worker_failed(colour: str) -> None:
    with WorkerConnections() as line, ThreadPoolExecutor(1) as pool:
        killed = pool.submit(lambda: os.kill(line.accept(), signal.SIGKILL))
        with pytest.raises(errors.WorkerFailed, match=r"the worker process has died \(signal 9\)"):
            in_any(colour, policy(), in_process.stuck, line.port)
        killed.result()


@COLOURS
def test_worker_failed_is_retried_if_the_policy_retries_it(colour: str, tmp_path: Path) -> None:
    retrying = policy(on=errors.WorkerFailed)
    assert in_any(colour, retrying, in_process.killed_once, tmp_path / "file") == "done"


# --------------------------------------------------------------------------- the pool


def test_at_most_max_idle_processes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "MAX_IDLE", 1)
    with without_idle_processes(), WorkerConnections() as line, ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(policy().call, in_process.stuck, line.port) for _ in range(3)]
        running = {line.accept() for _ in calls}
        line.release()
        assert {call.result() for call in calls} == running
        assert len(running) == 3
        assert [process for process in running if process_exists(process)] == [policy().call(in_process.pid)]
        assert len(idle_processes()) == 1


def test_a_surplus_process_that_does_not_exit_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "MAX_IDLE", 0)
    monkeypatch.setattr(_pool, "REAP_TIMEOUT", 0.1)
    with without_idle_processes():
        victim = policy().call(in_process.leave_thread)
        assert not process_exists(victim)


def test_a_process_is_started_if_another_thread_took_the_last_idle_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Taken(list[Any]):
        def __bool__(self) -> bool:
            return True

    with without_idle_processes():
        monkeypatch.setitem(_pool._idle, "spawn", Taken())
        assert policy().call(in_process.pid) != os.getpid()


def test_a_process_that_cannot_be_started_raises_worker_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here its main function cannot be pickled; the operating system may also refuse another process."""

    def nameless(wire: Connection) -> None: ...

    with without_idle_processes():
        monkeypatch.setattr(_pool, "main", nameless)
        outcome = policy().run(in_process.pid)
    assert isinstance(outcome.error, errors.WorkerFailed)
    assert str(outcome.error).startswith("no worker process could be started: ")
    assert outcome.report.reason == "stopped"


def test_a_wait_longer_than_the_system_allows_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "LONGEST_WAIT", 0.001)
    with without_idle_processes():
        policy().call(in_process.pid)
        (parked,) = idle_processes()
        assert not parked.has_reply(0.003)


def test_nothing_is_started_once_the_program_is_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_idle_processes():
        victim = policy().call(in_process.pid)
        (parked,) = idle_processes()
        monkeypatch.setattr(_pool, "_ending", [])
        monkeypatch.setattr(_pool, "_all", {parked})
        _pool.kill_all()
        assert parked.has_reply(PATIENCE)
        with pytest.raises(errors.WorkerFailed, match="could be started: the program is ending"):
            policy().call(in_process.pid)
        for process in list(_pool._all):
            process.end()
        assert not process_exists(victim)


def test_a_forked_child_forgets_the_processes_of_its_parent() -> None:
    """The child must neither use them nor wait for them when it exits."""
    with without_idle_processes():
        policy().call(in_process.pid)
        (parked,) = idle_processes()
        ours = _pool._all.copy()
        _pool._forget_after_fork()
        try:
            assert not idle_processes()
            assert not _pool._all
            assert parked._process not in multiprocessing.active_children()
        finally:
            _pool._all.update(ours)
            _pool._idle["spawn"] = [parked]


class Unaccounted:
    """A process that another thread has just reaped, so that its exit code is unknown."""

    exitcode = None

    def join(self, _: float) -> None:
        """Return at once."""


def test_an_unknown_exit_code_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_idle_processes():
        policy().call(in_process.pid)
        taken = _pool.WorkerProcess.idle("spawn")
        taken.kill()
        assert taken.has_reply(PATIENCE)
        with monkeypatch.context() as patch:
            patch.setattr(taken, "_process", Unaccounted())
            with pytest.raises(errors.WorkerFailed, match=r"has died \(exit code unknown\)"):
                taken.receive()
        taken.end()
