"""Counts are exact, and `stats()` works, while other threads make calls."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from redouble import Bulkhead, Retry, stats
from redouble._telemetry.registry import SECTIONS, counts_of
from tests.support.fakes import Boom
from tests.support.thread_switching import frequent_switches

THREADS = 4


def together(*work: Callable[[], object]) -> None:
    """Run all functions at once, each on its own thread; raise the errors."""
    failed: list[BaseException] = []
    ready = threading.Barrier(len(work))

    def one(do: Callable[[], object]) -> None:
        ready.wait()
        try:
            do()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=[do]) for do in work]
    with frequent_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in failed:
        raise error


def test_counts_are_exact_on_many_threads() -> None:
    policy = Retry(on=Boom, attempts=3, backoff=[0, 0], name="stats threads")

    def fails() -> None:
        raise Boom

    def work() -> None:
        for _ in range(100):
            with pytest.raises(Boom):
                policy.call(fails)

    together(*[work] * THREADS)
    found = stats()["policies"]["stats threads"]
    calls = 100 * THREADS
    assert (found["failures"], found["retries"], found["given_up"]) == (3 * calls, 2 * calls, calls)


def test_stats_can_be_read_while_objects_are_created_and_freed() -> None:
    over = threading.Event()

    def create_and_free() -> None:
        while not over.is_set():
            for number in range(20):
                Bulkhead(1, name=f"stats {number}")
                Retry(name=f"stats {number}")

    def read() -> None:
        try:
            for _ in range(50):
                assert list(stats()) == [*SECTIONS]
        finally:
            over.set()

    together(create_and_free, read, create_and_free)


def test_policies_of_one_name_created_concurrently_share_their_counts() -> None:
    for number in range(50):
        found = list[object]()
        name = f"stats together {number}"
        together(*[lambda: found.append(counts_of(name))] * THREADS)  # noqa: B023  called within the iteration
        assert len({id(counts) for counts in found}) == 1
