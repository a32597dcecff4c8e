"""No worker process outlives the program, however that ends, and its exit waits for none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.workers.functions import PATIENCE, WorkerConnections

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills and forks as POSIX does")

PATHS = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])


def script(tmp_path: Path, text: str, *, guarded: bool = True) -> list[str]:
    """Write a script that uses worker processes; return the command that runs it."""
    head = """\
        import os, signal, sys, threading
        import redouble
        from tests.support.workers import functions as in_process
        """
    path = tmp_path / "script.py"
    body = dedent(text)
    if guarded:
        body = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in body.splitlines())
    path.write_text(dedent(head) + body, encoding="utf-8")
    return [sys.executable, str(path)]


def started(command: list[str], *args: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603  a script of ours
        [*command, *map(str, args)],
        env=os.environ | {"PYTHONPATH": PATHS, "PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
@pytest.mark.parametrize("work", ["stuck", "stay"])
def test_a_worker_process_ends_when_its_parent_is_killed(tmp_path: Path, start: str, work: str) -> None:
    """During a call, or while it is idle."""
    command = script(
        tmp_path,
        """
        worker = redouble.Worker(kind="process", start=sys.argv[2])
        redouble.Retry(worker=worker).call(getattr(in_process, sys.argv[3]), int(sys.argv[1]))
        print("done", flush=True)
        sys.stdin.read()
        """,
    )
    with (
        WorkerConnections() as line,
        started(command, line.port, start, work, stdin=subprocess.PIPE) as parent,
    ):
        line.accept()
        if work == "stay":
            assert parent.stdout is not None
            assert parent.stdout.readline() == "done\n"
        parent.kill()
        line.wait_for_exit()
        assert ended(parent)[0] == -signal.SIGKILL


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_exit_waits_for_no_worker_process(tmp_path: Path, start: str) -> None:
    """One is idle, and one runs a call of a daemon thread."""
    command = script(
        tmp_path,
        """
        policy = redouble.Retry(worker=redouble.Worker(kind="process", start=sys.argv[2]))
        busy = threading.Thread(target=policy.call, args=(in_process.stuck, int(sys.argv[1])), daemon=True)
        busy.start()
        policy.call(in_process.stay, int(sys.argv[1]))
        sys.stdin.readline()
        """,
    )
    with WorkerConnections() as line, started(command, line.port, start, stdin=subprocess.PIPE) as parent:
        assert line.accept() != line.accept()
        assert ended(parent) == (0, "", "")
        line.wait_for_exit()


def test_a_thread_that_continues_during_exit_starts_no_process(tmp_path: Path) -> None:
    """The exit would wait for a new process."""
    command = script(
        tmp_path,
        """
        import atexit, multiprocessing.util
        atexit.register(threading.Event().wait, 0.3)  # another exit handler, which takes a while
        policy = redouble.Retry(worker=redouble.Worker(kind="process"))
        once = threading.Event()

        def call_repeatedly():
            while True:
                try:
                    policy.call(in_process.pid)
                except redouble.errors.WorkerFailed:
                    pass
                once.set()

        threading.Thread(target=call_repeatedly, daemon=True).start()
        once.wait()
        """,
    )
    with started(command) as parent:
        assert ended(parent) == (0, "", "")


def test_ctrl_c_raises_keyboard_interrupt_in_the_parent_only(tmp_path: Path) -> None:
    """The whole process group gets the signal. The worker ignores it, and is killed when the parent ends."""
    command = script(
        tmp_path,
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
        redouble.Retry(worker=redouble.Worker(kind='process')).call(in_process.stuck, int(sys.argv[1]))
        """,
    )
    with WorkerConnections() as line, started(command, line.port) as parent:
        line.accept()
        os.killpg(parent.pid, signal.SIGINT)
        line.wait_for_exit()
        code, _, err = ended(parent)
    assert code == -signal.SIGINT
    assert err.count("Traceback") == err.count("\nKeyboardInterrupt") == 1


def test_a_script_without_a_main_guard_raises_worker_failed(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        "redouble.Retry(worker=redouble.Worker(kind='process')).call(in_process.pid)",
        guarded=False,
    )
    with started(command) as parent:
        code, _, err = ended(parent)
    assert code == 1
    assert "WorkerFailed: a worker process ended before it was ready (exit code 1)" in err
    assert "`if __name__ == '__main__':`" in err


def test_text_printed_by_a_worker_precedes_the_result(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        policy = redouble.Retry(worker=redouble.Worker(kind="process"))
        for word in ("one", "two"):
            policy.call(in_process.print_word, word)
            print("returned", word, flush=True)
        """,
    )
    with started(command) as parent:
        assert ended(parent) == (0, "one\nreturned one\ntwo\nreturned two\n", "")


def test_a_forked_child_has_its_own_worker_processes(tmp_path: Path) -> None:
    """Its exit does not end those of the parent."""
    command = script(
        tmp_path,
        """
        policy = redouble.Retry(worker=redouble.Worker(kind="process"))
        before = policy.call(in_process.pid)
        child = os.fork()
        if not child:
            sys.exit(0 if policy.call(in_process.pid) != before else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), policy.call(in_process.pid) == before)
        """,
    )
    with started(command) as parent:
        assert ended(parent)[:2] == (0, "0 True\n")


def test_a_forked_child_does_not_keep_the_workers_of_a_killed_parent_alive(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        call = redouble.Retry(worker=redouble.Worker(kind="process")).call
        threading.Thread(target=call, args=(in_process.stuck, int(sys.argv[1])), daemon=True).start()
        sys.stdin.readline()
        if not os.fork():
            sys.stdin.read()
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    with WorkerConnections() as line, started(command, line.port, stdin=subprocess.PIPE) as parent:
        line.accept()
        assert parent.stdin is not None
        parent.stdin.write("go\n")
        parent.stdin.flush()
        line.wait_for_exit()
