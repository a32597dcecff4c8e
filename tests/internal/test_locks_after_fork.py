"""Locks of modules after a fork, and weak references that let their objects be freed at once."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from redouble import CircuitBreaker, Retry, observe, stats
from redouble._internal.locks import ForkSafeLock, _after_fork
from redouble._telemetry import observers as _watch
from redouble._telemetry import registry as _register
from redouble.config import register
from redouble.config._options import error_names as _names
from redouble.instruments import memory


@contextmanager
def taken(lock: ForkSafeLock) -> Generator[None]:
    """Hold the lock in a thread that never releases it, like a thread of the parent after a fork."""
    has, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.rlock:
            has.set()
            done.wait()

    holder = threading.Thread(target=hold, daemon=True)
    old = lock._lock
    holder.start()
    has.wait()
    try:
        _after_fork()
        assert lock._lock is not old
        yield
    finally:
        new, lock._lock = lock._lock, old  # the holder releases the lock
        done.set()
        holder.join()
        lock._lock = new


class Busy(Exception):
    """An error type to register."""


USES: dict[str, tuple[ForkSafeLock, Callable[[], object]]] = {
    "observers": (_watch._lock, lambda: observe(print).remove()),
    "names": (_register._lock, lambda: (Retry(name="after a fork"), stats())),
    "registered": (_names._lock, lambda: register("tests.AfterAFork", Busy)),
}


@pytest.mark.parametrize("use", USES)
def test_a_lock_held_by_another_thread_is_free_in_a_child(use: str) -> None:
    lock, work = USES[use]
    with taken(lock):
        work()


def test_the_lock_of_metrics_is_free_in_a_child() -> None:
    with memory.instrument() as metrics:
        metrics._lock.acquire()
        _after_fork()
        worker = threading.Thread(target=lambda: Retry(name="forked").call(int))
        worker.start()
        worker.join()
    assert metrics.counter("calls", name="forked") == 1


def test_an_unreferenced_breaker_is_freed_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        breaker = CircuitBreaker(name="gone at once")
        function = breaker(len)
        assert function([]) == 0
        gone = weakref.ref(breaker)
        del breaker
        assert "gone at once" in stats()["breakers"]
        del function
        assert gone() is None
        assert "gone at once" not in stats()["breakers"]
    finally:
        gc.enable()
