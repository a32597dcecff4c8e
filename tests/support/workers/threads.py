"""Worker threads: a stack of idle threads for one test, and a policy that runs calls on them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from redouble import Retry, Worker
from redouble._drivers.workers import threads as _threads
from tests.support.fakes import Boom

POLICY = Retry(on=Boom, backoff=[0] * 9, worker=Worker())


VAR = ContextVar("VAR", default="unset")  # read and changed by a function on a worker thread


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[_threads._WorkerThread]]:
    """Replace the stack of idle threads for one test; at its end, end all threads that it started."""
    mine: list[_threads._WorkerThread] = []
    before = set(threading.enumerate())
    monkeypatch.setattr(_threads, "_idle", mine)
    yield mine
    for thread in set(threading.enumerate()) - before:
        if isinstance(thread, _threads._WorkerThread):
            while thread.is_alive():
                if thread in mine:
                    mine.remove(thread)
                    thread.wake.release()  # with nothing to do
                thread.join(0.001)


def settled() -> None:
    """Make each thread release its last job, which a thread does before the next one."""
    for _ in range(2):
        POLICY.call(int)
