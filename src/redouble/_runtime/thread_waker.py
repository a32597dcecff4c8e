"""A bell for blocking code: one thread waits for it, any other rings it. Async code has its backend's."""

from __future__ import annotations

from _thread import allocate_lock
from contextlib import suppress
from threading import TIMEOUT_MAX

__all__ = ["ThreadWaker"]


class ThreadWaker:
    """Rings once; ringing again does no harm."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake who waits, or will."""
        with suppress(RuntimeError):  # it has rung already: who rang was interrupted before noting it
            self._lock.release()

    def wait(self, seconds: float) -> None:
        """Wait until it rings, for up to so many seconds."""
        self._lock.acquire(True, seconds if seconds < TIMEOUT_MAX else -1)

    @property
    def silent(self) -> bool:
        """Whether it has not rung yet."""
        return self._lock.locked()
