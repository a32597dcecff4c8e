"""Threads that switch as often as possible, for tests of shared state."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import pytest

SHORT = 1e-6  # seconds
THREADS = 32


@contextmanager
def frequent_switches() -> Generator[None]:
    """Switch threads every microsecond, which is every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORT)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.fixture
def switching() -> Iterator[None]:
    """Switch threads every microsecond."""
    with frequent_switches():
        yield


def run_in_threads(*works: Callable[[str], None], threads: int = THREADS) -> None:
    """Distribute the functions over threads that all start at once; raise their errors as a group."""
    failures: list[BaseException] = []
    start = threading.Barrier(threads)

    def run(index: int) -> None:
        start.wait()
        try:
            works[index % len(works)](f"thread {index}")
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {threads} threads", failures)
