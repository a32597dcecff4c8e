"""Functions that tests run in worker processes, which import them by name, and a way to detect their end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, Self

from redouble import Retry, Worker, bind, cancelled, observe, remaining
from redouble._drivers.workers.child import serve
from redouble.types import Event

PROCESS = Worker(kind="process")
PATIENCE = 20.0  # seconds; only a failing test waits this long
HOST = "127.0.0.1"
STARTING = 0.6  # seconds that `slow_main` takes

kept: list[socket.socket] = []


class Line:
    """Accepts a connection from each worker, which is closed when the worker process ends."""

    def __init__(self) -> None:
        self._server = socket.create_server((HOST, 0))
        self._server.settimeout(PATIENCE)
        self.port: int = self._server.getsockname()[1]
        self._lines: list[socket.socket] = []

    def answer(self) -> int:
        """Wait until a worker connects, and return its process id."""
        line, _ = self._server.accept()
        line.settimeout(PATIENCE)
        self._lines.append(line)
        return int(line.recv(20))

    def hang_up(self) -> None:
        """Release all waiting workers."""
        for line in self._lines:
            line.sendall(b"!")

    def hear_the_end(self) -> None:
        """Wait until all worker processes have ended."""
        for line in self._lines:
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1) == b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in (*self._lines, self._server):
            line.close()


def called_in(port: int) -> socket.socket:
    line = socket.create_connection((HOST, port))
    line.sendall(str(os.getpid()).encode())
    return line


# ------------------------------------------------------------------------- operations


def pid() -> int:
    return os.getpid()


def echo(*args: object, **kwargs: object) -> object:
    return args, kwargs


def left() -> tuple[float | None, bool]:
    return remaining(), cancelled()


def stuck(port: int) -> int:
    """Run until the test releases it."""
    with called_in(port) as line:
        line.recv(1)
    return os.getpid()


def stay(port: int) -> int:
    """Keep the connection open, and return."""
    kept.append(called_in(port))
    return os.getpid()


def stuck_unless(path: Path) -> str:
    if not path.exists():
        threading.Event().wait()
    return "done"


def killed_once(path: Path) -> str:
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def leave(code: int) -> NoReturn:
    os._exit(code)


def leave_thread() -> int:
    """Return while a thread of the process runs for ever."""
    threading.Thread(target=threading.Event().wait).start()
    return os.getpid()


def fail(kind: type[BaseException], *args: object) -> NoReturn:
    error = kind(*args)
    error.add_note("noted there")
    raise error


def locked() -> object:
    return threading.Lock()


def nested() -> object:
    inner = Retry(on=Exception, attempts=2, backoff=[0], name="inner")
    return inner.call(fail, OSError, "lost")


def speak(word: str) -> None:
    print(word)


class Held(Exception):
    """An error that cannot be pickled."""

    def __init__(self, said: str) -> None:
        super().__init__(said, threading.Lock())


class OneWay(Exception):
    """It can be pickled, but not unpickled."""

    def __init__(self, said: str, more: str) -> None:
        super().__init__(said + more)


class Odd(Exception):
    """An error that is unpickled as something else."""

    def __reduce__(self) -> Any:
        return (str, ("odd",))


class Unreadable:
    """It can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return (int, ("no number",))


# -------------------------------------------------------------------------- decorated

retried = Retry(on=OSError, attempts=2, backoff=[0], worker=PROCESS)


@retried
def doubled(number: int) -> tuple[int, int]:
    return os.getpid(), 2 * number


class Shop:
    @retried
    def method(self, number: int) -> tuple[int, int]:
        return os.getpid(), 2 * number

    @staticmethod
    @retried
    def static(number: int) -> tuple[int, int]:
        return os.getpid(), 2 * number

    @classmethod
    @retried
    def of_class(cls, number: int) -> tuple[int, int]:
        return os.getpid(), 2 * number


# ------------------------------------------------------------- main functions of a process


def slow_main(wire: Connection) -> None:
    """Start slowly."""
    threading.Event().wait(STARTING)
    serve(wire)


def held_main(wire: Connection) -> None:
    """Never become ready."""
    stuck(int(os.environ["REDOUBLE_TEST_PORT"]))


def broken_main(wire: Connection) -> None:
    """End before becoming ready."""


def bound_events() -> list[Event]:
    """Make a call that binds a field, and return its events."""
    events: list[Event] = []

    @Retry()
    def work() -> None:
        bind(inside=True)

    with observe(events.append):
        work()
    return events
