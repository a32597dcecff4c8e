"""Operations that do not stop when told to, and are let go at the end of a test."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from redouble._runtime.ambient import ambient

SOON = 0.01  # a limit that no such operation keeps
IN_A_WHILE = 0.2  # a deadline before which one is surely begun

A_MOMENT = 0.001


class Stuck:
    """An operation that goes on until it is let go."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()

    def __call__(self) -> str:
        self.calls.append(threading.get_ident())
        self.begun.release()
        self.let_go.wait()
        return "late"


@contextmanager
def stuck(times: int = 1) -> Generator[Stuck]:
    """Give one, see that it was called as often, and leave nothing of it behind."""
    before, operation = len(ambient.active), Stuck()
    try:
        yield operation
        for _ in range(times):
            operation.begun.acquire()  # a limit may pass before its thread has come this far
    finally:
        operation.let_go.set()
        while len(ambient.active) > before:  # a thread that was abandoned has yet to end
            threading.Event().wait(A_MOMENT)
    assert len(operation.calls) == times
