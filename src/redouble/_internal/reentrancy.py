"""Mutual exclusion that includes re-entrant calls of the same thread.

While a thread runs an operation of a shared object, a signal handler, the garbage collector or a callback may
call the same object on the same thread. A lock that is not re-entrant would deadlock there; a re-entrant one
lets the inner call change state in the middle of the outer change. Here such a call is deferred: it runs
when the running operation has ended, completely, even if that one raised.

`ReentrancySafe` excludes other threads, which wait. `SerialQueue` lets no thread wait: what cannot run now is
left to the thread that is running an operation.
"""

from __future__ import annotations

from _thread import RLock, get_ident
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from redouble._internal.locks import ForkSafe

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
        self._runners: set[int] = set()  # the threads that run deferred operations, or what follows them

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

    def _run_deferred(self, timeout: float = -1) -> None:
        """Run all deferred operations, if this thread is not inside one; those behind one that raises too.

        It does nothing inside what follows such an operation: further up this stack they are run one after
        the other, or hundreds of them would be too deep a recursion.

        timeout: how many seconds to wait for the operation of another thread, which then runs them instead.
        """
        complete = outermost = elsewhere = False
        thread = 0
        try:
            thread = get_ident()
            outermost = thread not in self._runners and not self._owned_by_this_thread()
            if outermost:
                self._runners.add(thread)
            while outermost and self._deferred:
                lock = self._lock
                if not lock.acquire(timeout=timeout):
                    elsewhere = True
                    break
                if self._deferred:  # else another thread has run it
                    operation, args = self._deferred.popleft()
                    operation(*args)
                lock.release()
                self._after_deferred()
            complete = True
        finally:
            if outermost:
                self._runners.discard(thread)
            if not complete:
                if outermost and self._owned_by_this_thread():
                    self._lock.release()
                self._run_deferred(min(timeout, 0))
        if outermost and self._deferred and not elsewhere:
            self._run_deferred(timeout)  # a signal handler deferred it after the last look at them

    def _after_deferred(self) -> None:
        """Do what has to follow a deferred operation without the lock, such as waking a waiter."""

    def _after_fork(self) -> None:
        super()._after_fork()
        self._deferred.clear()  # the parent runs them
        self._runners.clear()


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
