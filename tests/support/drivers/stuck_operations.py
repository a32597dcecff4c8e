"""Operations that ignore cancellation, and are released at the end of a test."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from redouble._runtime.ambient import ambient

SOON = 0.01  # a limit that every such operation exceeds
IN_A_WHILE = 0.2  # a deadline before which an operation has certainly begun

A_MOMENT = 0.001


class StuckOperation:
    """An operation that runs until it is released."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.started = threading.Semaphore(0)
        self.released = threading.Event()

    def __call__(self) -> str:
        self.calls.append(threading.get_ident())
        self.started.release()
        self.released.wait()
        return "late"


@contextmanager
def stuck(times: int = 1) -> Generator[StuckOperation]:
    """Yield an operation; on exit release it, wait for its threads, and check the number of its calls."""
    before, operation = len(ambient.active), StuckOperation()
    try:
        yield operation
        for _ in range(times):
            operation.started.acquire()  # a limit may pass before the thread has got here
    finally:
        operation.released.set()
        while len(ambient.active) > before:  # an abandoned thread has not ended yet
            threading.Event().wait(A_MOMENT)
    assert len(operation.calls) == times
