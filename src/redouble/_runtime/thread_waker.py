"""The waker for blocking code. Async code uses `Backend.waker`."""

from __future__ import annotations

from _thread import allocate_lock
from contextlib import suppress
from math import inf
from threading import TIMEOUT_MAX

from redouble._runtime.clock import virtual


class ThreadWaker:
    """A one-shot event: one thread waits, any other thread wakes it. A second ``wake()`` does nothing."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the waiting thread, or let the next ``wait()`` return at once."""
        with suppress(RuntimeError):  # `wake()` was called before: the lock is released already
            self._lock.release()

    def wait(self, seconds: float) -> None:
        """Wait until ``wake()`` is called, for at most ``seconds``."""
        self._lock.acquire(True, seconds if seconds < TIMEOUT_MAX else -1)

    def wait_by_clock(self, seconds: float) -> None:
        """Wait for at most this time; a virtual clock is moved by it instead, unless it is unlimited."""
        clock = virtual()
        if clock is None or seconds == inf:
            self.wait(seconds)
        elif self.pending:
            clock._move_to(clock.now() + seconds)

    @property
    def pending(self) -> bool:
        """True until ``wake()`` is called."""
        return self._lock.locked()
