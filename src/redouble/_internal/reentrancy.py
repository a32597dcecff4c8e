"""Mutual exclusion that includes re-entrant calls of the same thread.

While a thread runs an operation of a shared object, a signal handler, the garbage collector or a callback may
call the same object on the same thread. A lock that is not re-entrant would deadlock there; a re-entrant one
lets the inner call change state in the middle of the outer change. Here such a call is deferred: it runs
when the running operation has ended, completely, even if that one raised.

`ReentrancySafe` excludes other threads, which wait. `SerialQueue` lets no thread wait: what cannot run now is
left to the thread that is running an operation. `ReloadLock` keeps the last request only.
"""

from __future__ import annotations

from _thread import RLock, get_ident
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeAlias, TypeVar

from redouble._internal.locks import ForkSafe

__all__ = ["ReentrancySafe", "ReloadLock", "SerialQueue"]


T = TypeVar("T")

DeferredCall: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]


class ReentrancySafe(ForkSafe):
    """A shared object whose operations run one at a time: in all threads, and in re-entrant calls.

    `_owned_by_this_thread()` is True in a re-entrant call. An operation that has to return a result, and so
    cannot be deferred, asks that first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._deferred: deque[DeferredCall] = deque()

    def _run_exclusively(self, operation: Callable[..., T], *args: Any) -> T | None:
        """Run an operation under the lock and return its result; in a re-entrant call defer it, return None.

        It is deferred until the operation further up this stack has ended.
        """
        if self._owned_by_this_thread():
            self._deferred.append((operation, args))
            return None
        return self._run_now(operation, *args)

    def _run_now(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation under the lock, even in a re-entrant call: one that only reads."""
        try:
            with self._lock:  # a signal handler that raises cannot run between the acquisition and the block
                result = operation(*args)
        finally:
            if self._deferred:
                self._run_deferred()
        return result

    def _run_deferred(self) -> None:
        """Run all deferred operations, if this thread is not inside one; those behind one that raises too."""
        complete = False
        try:
            while self._deferred and not self._owned_by_this_thread():
                with self._lock:
                    if self._deferred:  # else another thread has run it
                        operation, args = self._deferred.popleft()
                        operation(*args)
                self._after_deferred()
            complete = True
        finally:
            if not complete:
                self._run_deferred()

    def _after_deferred(self) -> None:
        """Do what has to follow a deferred operation without the lock, such as waking a waiter."""

    def _after_fork(self) -> None:
        super()._after_fork()
        self._deferred.clear()  # the parent runs them


class SerialQueue:
    """Calls that run in order and one at a time, under no lock; no thread waits for another."""

    def __init__(self) -> None:
        self._calls: deque[DeferredCall] = deque()
        self._lock = RLock()
        self._running = False

    def add(self, call: Callable[..., object], *args: Any) -> None:
        """Queue a call."""
        self._calls.append((call, args))

    def run(self) -> None:
        """Run the queued calls, unless a call runs, on this or another thread, which then runs them too."""
        while self._calls and self._run_if_idle():
            pass

    def _run_if_idle(self) -> bool:
        mine = False
        try:
            with self._lock:
                if not self._running:
                    mine = self._running = True
            while mine and self._calls:
                call, args = self._calls.popleft()
                call(*args)
            return mine
        finally:
            if mine:
                self._running = False


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
