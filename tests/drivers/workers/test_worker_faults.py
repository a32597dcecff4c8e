"""Workers when no thread can be started, on Ctrl-C, after a fork and at the end of the program."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from threading import Thread, current_thread
from typing import Any

import pytest

from redouble import Retry, Worker, errors, report
from redouble._drivers.workers import processes as _processes
from redouble._drivers.workers import threads as _threads
from tests.support.fakes import ASYNC, COLOURS, in_colour
from tests.support.workers.threads import idle

pytestmark = pytest.mark.usefixtures(idle.__name__)

# ------------------------------------------------------------- no thread can be started


def exhausted(monkeypatch: pytest.MonkeyPatch, error: Exception, times: int) -> list[Thread]:
    """Let this many starts of threads fail; return those threads."""
    start, refused = Thread.start, list[Thread]()

    def failing(thread: Thread) -> None:
        if thread.name == "redouble worker" and len(refused) < times:
            refused.append(thread)
            raise error
        start(thread)

    monkeypatch.setattr(Thread, "start", failing)
    return refused


def called(colour: str, policy: Retry, work: Callable[[], Any]) -> Any:
    return in_colour(colour, lambda: policy.call(work), lambda: policy.acall(work))


NO_THREAD = RuntimeError("can't start new thread")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("error", [NO_THREAD, MemoryError()])
def test_a_thread_that_cannot_be_started_raises_worker_failed(
    colour: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not retried unless `on` includes it, because a retry would need another thread."""
    refused = exhausted(monkeypatch, error, 99)
    with pytest.raises(errors.WorkerFailed, match="no thread could be started") as caught:
        called(colour, Retry(worker=Worker()), lambda: None)
    assert caught.value.__cause__ is error
    assert len(refused) == 1
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.workers_left, reported.limit) == (
        "stopped",
        1,
        0,
        None,
    )


@pytest.mark.parametrize("colour", COLOURS)
def test_worker_failed_is_retried_if_on_includes_it(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = exhausted(monkeypatch, NO_THREAD, 2)
    policy = Retry(on=errors.WorkerFailed, backoff=[0, 0], worker=Worker())
    assert called(colour, policy, lambda: "done") == "done"
    assert len(refused) == 2


@pytest.mark.parametrize("colour", COLOURS)
def test_idle_threads_are_used_if_none_can_be_started(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Retry(worker=Worker())
    thread = called(colour, policy, current_thread)
    exhausted(monkeypatch, NO_THREAD, 99)
    assert [called(colour, policy, current_thread) for _ in range(3)] == [thread] * 3


@pytest.mark.parametrize("colour", ASYNC)
def test_a_thread_that_did_not_start_leaves_nothing_behind(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    exhausted(monkeypatch, NO_THREAD, 99)
    for _ in range(3):
        with pytest.raises(errors.WorkerFailed):
            called(colour, Retry(attempt_timeout=60), lambda: None)
    assert set(threading.enumerate()) <= before


# --------------------------------------------------------------------- in another process


START = """\
import asyncio, os, signal, sys, threading
import redouble
from redouble import Retry, Worker, errors
stopped = threading.Event()
policy = Retry(on=OSError, backoff=[0] * 9, worker=Worker(grace=0))
def until_cancelled():
    pause = threading.Event()
    while not redouble.cancelled():
        pause.wait(0.001)
    stopped.set()
def for_ever():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""


def program(script: str, start: str = START) -> list[str]:
    """Run a script in another process, successfully; return the lines that it printed."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", start + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  ours
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


STUCK = {
    "call": "Retry(attempt_timeout=0.01, worker=Worker(grace=0)).call(for_ever)",
    "acall": "asyncio.run(Retry(attempt_timeout=0.01, worker=Worker(grace=0)).acall(for_ever))",
}


@pytest.mark.parametrize("shape", STUCK)
def test_a_stuck_worker_does_not_delay_the_end_of_the_program(shape: str) -> None:
    script = f"""
try:
    {STUCK[shape]}
except errors.WorkerStillRunning:
    print("still running")
"""
    assert program(script) == ["still running"]


def test_busy_workers_do_not_delay_the_end_of_the_program() -> None:
    """The interpreter ends while they run, and they print nothing."""
    script = """
begun = threading.Event()
def work():
    while True:
        policy.call(begun.set)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
print("still running")
"""
    assert program(script) == ["still running"]


def test_workers_in_an_exit_handler() -> None:
    """A parked thread works there; starting another one works, or raises `WorkerFailed`."""
    script = """
import atexit
@atexit.register
def last():
    print(policy.call(str, "parked"))
    try:
        policy.call(policy.call, int)
    except errors.WorkerFailed:
        pass
    print("ended")
policy.call(int)
"""
    assert program(script) == ["parked", "ended"]


INTERRUPTED = {
    "call": "policy.call(work)",
    "limited": "Retry(attempt_timeout=60, worker=Worker(grace=60)).call(work)",
    "run": "policy.run(work)",
    "decorated": "policy(work)()",
    "inside": "policy.call(policy.call, work)",
    "asyncio": "asyncio.run(policy.acall(work))",
    "trio": "import trio; trio.run(policy.acall, work)",
}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
@pytest.mark.parametrize("shape", INTERRUPTED)
def test_ctrl_c_ends_the_call_and_cancels_the_operation(shape: str) -> None:
    """The call raises KeyboardInterrupt at once."""
    script = f"""
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
def work():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    until_cancelled()
try:
    {INTERRUPTED[shape]}
except KeyboardInterrupt:
    print("interrupted")
    print(stopped.wait(60))
    print(policy.call(str, "goes on"))
"""
    assert program(script) == ["interrupted", "True", "goes on"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_workers_of_its_own() -> None:
    """The threads of its parent do not exist in the child, neither idle nor busy ones."""
    script = """
begun = threading.Event()
def busy():
    begun.set()
    for_ever()
policy.call(int)
threading.Thread(target=policy.call, args=[busy], daemon=True).start()
begun.wait()
parked = policy.call(threading.current_thread)
child = os.fork()
if not child:
    mine = [policy.call(threading.current_thread) for _ in range(3)]
    fine = parked not in mine and len(set(mine)) == 1 and asyncio.run(policy.acall(str, "ok")) == "ok"
    os._exit(7 if fine else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(policy.call(threading.current_thread) is parked)
"""
    assert program(script) == ["7", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_job_may_fork() -> None:
    """The child has only this thread, and can start others."""
    script = """
def work():
    child = os.fork()
    if not child:
        try:
            code = policy.call(int, "7")
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(policy.call(work))
"""
    assert program(script) == ["7"]


def test_workers_load_no_event_loop_and_no_processes() -> None:
    """Without a worker the module of threads is not loaded."""
    names = {"asyncio", "trio", "multiprocessing", "logging", _threads.__name__, _processes.__name__}
    script = f"""
import sys
from redouble import Retry, Worker
def loaded():
    return sorted({names} & set(sys.modules))
Retry(timeout=9).call(int)
print(*loaded())
Retry(timeout=9, worker=Worker()).call(int)
print(*loaded())
"""
    assert program(script, start="") == ["", _threads.__name__]
