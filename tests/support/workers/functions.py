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

from redouble import Retry, Worker, bind, cancelled, current, observe, remaining
from redouble._drivers.workers.child import serve
from redouble._runtime.deadline import enclosing_calls
from redouble.types import CurrentCall, Event

PROCESS = Worker(kind="process")
PATIENCE = 20.0  # seconds; only a failing test waits this long
HOST = "127.0.0.1"
STARTING = 0.6  # seconds that `slow_main` takes

open_sockets: list[socket.socket] = []


class WorkerConnections:
    """Accepts a connection from each worker, which is closed when the worker process ends."""

    def __init__(self) -> None:
        self._server = socket.create_server((HOST, 0))
        self._server.settimeout(PATIENCE)
        self.port: int = self._server.getsockname()[1]
        self._connections: list[socket.socket] = []

    def accept(self) -> int:
        """Wait until a worker connects, and return its process id."""
        connection, _ = self._server.accept()
        connection.settimeout(PATIENCE)
        self._connections.append(connection)
        return int(connection.recv(20))

    def release(self) -> None:
        """Release all waiting workers."""
        for connection in self._connections:
            connection.sendall(b"!")

    def wait_for_exit(self) -> None:
        """Wait until all worker processes have ended."""
        for connection in self._connections:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (*self._connections, self._server):
            connection.close()


def connect(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port))
    connection.sendall(str(os.getpid()).encode())
    return connection


# ------------------------------------------------------------------------- operations


def pid() -> int:
    return os.getpid()


def echo(*args: object, **kwargs: object) -> object:
    return args, kwargs


def remaining_and_cancelled() -> tuple[float | None, bool]:
    return remaining(), cancelled()


def calls_around() -> list[tuple[object, ...]]:
    """Return what this code knows of the calls around it, of this process and of that of its caller."""
    return [
        (call.attempt, call.attempts, call.name, call.labels, call.left(), call.left(soft=True))
        for call in enclosing_calls(None)
    ]


def current_call() -> tuple[CurrentCall | None, float | None]:
    return current(), remaining()


def stuck(port: int) -> int:
    """Run until the test releases it."""
    with connect(port) as connection:
        connection.recv(1)
    return os.getpid()


def stay(port: int) -> int:
    """Keep the connection open, and return."""
    open_sockets.append(connect(port))
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


def print_word(word: str) -> None:
    print(word)


class UnpicklableError(Exception):
    """An error that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text, threading.Lock())


class OneWayError(Exception):
    """It can be pickled, but not unpickled."""

    def __init__(self, text: str, more: str) -> None:
        super().__init__(text + more)


class NotAnError(Exception):
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


def retry_in_vain(log: str) -> None:
    """Fail three times under a policy; write one character for each call to the file."""

    def fails() -> NoReturn:
        with Path(log).open("a") as file:
            file.write(".")
        raise ConnectionError

    Retry(attempts=3, backoff=[0, 0]).call(fails)
