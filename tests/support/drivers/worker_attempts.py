"""Blocking attempts on a worker thread, and the settings and limits of their tests."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Semaphore
from types import TracebackType
from typing import Self

from redouble import Outcome, Retry, Worker, cancelled

NO_GRACE = Worker(grace=0)


OVERLAPPING = Worker(grace=0, overlap=True)


STILL_RUNNING = "worker_still_running"  # the reason of a report


LONG = 60.0  # seconds: a limit that no attempt reaches


class StuckAttempt:
    """An operation that ignores cancellation and runs until the end of its ``with`` block.

    With a ``result``, only the first attempt does so; the others return the result.
    """

    def __init__(self, result: str | None = None) -> None:
        self.result = result
        self.released = Event()
        self._calls: list[None] = []
        self._started = Semaphore(0)

    def __call__(self) -> str:
        self._calls.append(None)
        first = len(self._calls) == 1
        self._started.release()
        if not first and self.result is not None:
            return self.result
        self.released.wait()
        return "late"

    def called(self, times: int) -> bool:
        """Wait for this many calls, and return True if there were no more."""
        return all(self._started.acquire(timeout=LONG) for _ in range(times)) and len(self._calls) == times

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.released.set()


def until_cancelled() -> None:
    """Run until the attempt is cancelled."""
    pause = Event()
    while not cancelled():
        pause.wait(0.001)


def outcome_of(policy: Retry, work: Callable[[], object]) -> Outcome[object]:
    """Make a call, and return its outcome."""
    return policy.run(work)
