"""Worker processes: started, parked, reused and killed; none outlives the program.

A process waits for work on a connection. `child` is the code that runs in it.
"""

from __future__ import annotations

import atexit
import multiprocessing.process
import os
from _thread import allocate_lock
from multiprocessing import connection, get_context
from threading import current_thread, main_thread
from typing import Any

from redouble._drivers.workers.child import LOAD, READY, Reply, before_exit, main
from redouble._drivers.workers.pickling import unpack
from redouble.errors import WorkerFailed

START_TIMEOUT = 60.0  # seconds that a process may take to start, or to import a module
REAP_TIMEOUT = 1.0  # seconds to wait for a process to exit
LONGEST_WAIT = 1e6  # seconds: the operating system counts milliseconds in a small integer
MAX_IDLE = os.cpu_count() or 1


class WorkerProcess:
    """One worker process, and the connection to it."""

    def __init__(self, start: str) -> None:
        _block_at_exit()
        self._start = start
        self._ready = self._late = False
        self.loaded: set[str | None] = set()  # modules that it has imported
        context: Any = get_context(start)
        self._wire, wire = context.Pipe()
        self._process = context.Process(target=main, args=(wire,), name="redouble worker")
        try:
            self._process.start()
        except Exception as error:
            self._wire.close()
            raise WorkerFailed(f"no worker process could be started: {error}") from error
        finally:
            wire.close()
        _all.add(self)
        if _ending:
            self.kill()  # otherwise the interpreter's exit would wait for it
            self.end()
            raise WorkerFailed("no worker process could be started: the program is ending")

    @classmethod
    def idle(cls, start: str) -> WorkerProcess:
        """Return an idle process, or start one."""
        parked, taken = _idle.setdefault(start, []), list[WorkerProcess]()
        try:
            while parked:
                taken.extend(map(parked.pop, (-1,)))  # one call: a signal handler that raises cannot lose it
                if not taken[0]._ready or not taken[0].has_reply(0):
                    return taken[0]
                taken.pop().end()  # an idle process sends nothing: it has died
        except IndexError:  # another thread took the last one
            pass
        except BaseException:
            parked.extend(taken)
            raise
        return cls(start)

    def is_ready(self, seconds: float) -> bool:
        """Wait until the process has started; return True if it has. Raise if that takes far too long."""
        try:
            if not self._ready and self.has_reply(min(seconds, START_TIMEOUT)):
                self._ready = self._wire.recv_bytes() == READY
        except (EOFError, OSError):
            raise WorkerFailed(
                f"a worker process ended before it was ready ({self._exit()}). In a script, put the code "
                "that starts work below `if __name__ == '__main__':`"
            ) from None
        if not self._ready and seconds > START_TIMEOUT:
            raise WorkerFailed(f"a worker process was not ready after {START_TIMEOUT:g} s")
        return self._ready

    def load(self, module: str | None, work: bytes) -> None:
        """Let it import the module of a function; it is ready again afterwards."""
        self._ready = self._late = False
        self.loaded.add(module)
        self.send(LOAD + work)

    def send(self, work: bytes) -> None:
        """Send a call."""
        try:
            self._wire.send_bytes(work)
        except OSError:
            raise WorkerFailed(f"the worker process has died ({self._exit()})") from None

    def has_reply(self, seconds: float) -> bool:
        """Return True if it replies, or dies, within this time."""
        while seconds > LONGEST_WAIT:
            if connection.wait([self._wire], LONGEST_WAIT):
                return True
            seconds -= LONGEST_WAIT
        return bool(connection.wait([self._wire], seconds))

    def receive(self) -> Reply:
        """Return its reply."""
        try:
            reply: Reply = unpack(self._wire.recv_bytes())
        except (EOFError, OSError):
            raise WorkerFailed(f"the worker process has died ({self._exit()})") from None
        return reply

    def park(self) -> None:
        """Keep it for the next call, or end it if enough are idle."""
        parked = _idle.setdefault(self._start, [])
        if len(parked) >= MAX_IDLE or (self._late and not self._ready):
            if not self._ready:
                self.kill()
            self.end()
        elif self._ready:
            parked.append(self)
        else:
            self._late = True  # kept once although it is late: a call may need it before it has started
            parked.insert(0, self)

    def kill(self) -> None:
        """Kill it, which ends a wait for its reply."""
        self._process.kill()

    def end(self) -> None:
        """Let it exit, and kill it if it does not."""
        self._wire.close()  # an idle process exits
        self._process.join(REAP_TIMEOUT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(REAP_TIMEOUT)
        _all.discard(self)

    def _exit(self) -> str:
        _block_at_exit()
        self._process.join(REAP_TIMEOUT)
        code = self._process.exitcode
        if code is None:
            return "exit code unknown"  # another thread has just reaped it
        return f"signal {-code}" if code < 0 else f"exit code {code}"


_idle: dict[str, list[WorkerProcess]] = {}  # by how they are started
_all: set[WorkerProcess] = set()
_ending: list[None] = []  # not empty if the program is ending; a list, so that it needs no `global`


def _block_at_exit() -> None:
    """Block for ever in a thread, other than the main thread, of a program that is ending."""
    if _ending and current_thread() is not main_thread():  # pragma: no cover  exit is not measured
        end = allocate_lock()
        end.acquire()
        end.acquire()


def _forget_after_fork() -> None:
    """Forget all processes in a forked child: they are the parent's, and exit must not wait for them."""
    children: set[Any] = getattr(multiprocessing.process, "_children", set())
    children.difference_update(process._process for process in _all)
    _idle.clear()
    _all.clear()


@atexit.register  # after multiprocessing's handler, and so called before it: that one waits for the workers
def kill_all() -> None:
    """Kill all worker processes: the results of calls that are still running are not needed any more."""
    _ending.append(None)
    for process in list(_all):
        process.kill()


before_exit.append(kill_all)  # otherwise multiprocessing would wait for the workers of a worker


if hasattr(os, "register_at_fork"):  # pragma: no branch  elsewhere there is no fork
    os.register_at_fork(after_in_child=_forget_after_fork)
