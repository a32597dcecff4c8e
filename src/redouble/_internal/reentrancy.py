"""Mutual exclusion that includes re-entrant calls of the same thread.

A re-entrant lock excludes other threads and cannot deadlock, but a signal handler or the garbage collector
may run in the middle of a change and request another one. Such a request is executed after the running
change: `SerialExecutor` queues every call, under a lock that its owner holds; `ReloadLock` has its own lock
and keeps the last request only.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from redouble._internal.locks import ForkSafe

__all__ = ["ReloadLock", "SerialExecutor"]


T = TypeVar("T")


class PendingCall(Generic[T]):
    """A queued call and its result."""

    __slots__ = ("args", "call", "result")

    def __init__(self, call: Callable[..., T], args: tuple[Any, ...]) -> None:
        self.call, self.args = call, args
        self.result: T | None = None


class SerialExecutor:
    """A FIFO executor of calls, used while its owner's lock is held. ``busy`` is True while a call runs."""

    def __init__(self, after: Callable[[], None]) -> None:
        self._after = after  # called when the queue is empty, and if a call raises
        self._queue: deque[PendingCall[Any]] = deque()
        self.busy = False

    def run(self, call: Callable[..., T], *args: Any) -> T | None:
        """Run the call and return its result; if another call runs further up this stack, only queue it.

        A queued call has no result yet: None is returned.
        """
        mine = PendingCall(call, args)
        self._queue.append(mine)
        while self._queue and not self.busy:
            self.busy = True
            try:
                while self._queue:
                    pending = self._queue.popleft()
                    pending.result = pending.call(*pending.args)
            finally:
                try:
                    self._after()
                finally:
                    self.busy = False
        return mine.result


NO_TIMEOUT = -1.0


class ReloadLock(ForkSafe, Generic[T]):
    """Mutual exclusion for reloads, which records a request that cannot be executed now.

    A request names what to reload; None repeats the last reload. Waiting is bounded, because a signal handler
    may have interrupted code that holds a lock which the reloading thread needs: the handler has to return.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads: set[int] = set()  # the threads that hold the lock or wait for it
        self._busy = False
        self._requests: deque[T | None] = deque(maxlen=1)

    @contextmanager
    def _exclusive(self, timeout: float = NO_TIMEOUT) -> Generator[bool]:
        """Acquire the lock and yield True; yield False after the timeout, and in a re-entrant call."""
        thread, lock, acquired = get_ident(), self._lock, False
        if thread in self._threads:
            yield False
            return
        try:
            self._threads.add(thread)
            acquired = lock.acquire(timeout=timeout)
            self._busy = acquired or self._busy
            yield acquired
        finally:
            self._threads.discard(thread)
            # A signal handler may raise between the acquisition and its assignment.
            if acquired or self._owned_by_this_thread():
                self._busy = False
                lock.release()

    def _request_repeat(self) -> None:
        """Request a repetition if a reload is running: an object that was just added would miss it."""
        if self._busy:
            self._record_request(None)

    def _record_request(self, request: T | None) -> None:
        """Record a request. Only one is kept: the last that names something to reload."""
        if request is not None or not self._requests:
            self._requests.append(request)

    def _execute_requests(self, execute: Callable[[T | None], object]) -> None:
        """Execute the recorded request; a thread that holds the lock does so after it releases the lock."""
        while self._requests and not self._busy and get_ident() not in self._threads:
            with suppress(IndexError):  # another thread has executed it
                execute(self._requests.pop())

    def _after_fork(self) -> None:
        super()._after_fork()
        self._threads.clear()  # of the parent
        self._busy = False
        self._requests.clear()
