"""Counts are exact, and `stats()` works, while other threads make calls."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from redouble import Bulkhead, Retry, stats
from redouble._telemetry.registry import SECTIONS, counts_of
from tests.support.fakes import Boom
from tests.telemetry.test_observers_endings import switching_all_the_time

THREADS = 4


def together(*work: Callable[[], object]) -> None:
    """Do all of it at once, each on a thread of its own; raise what went wrong."""
    failed: list[BaseException] = []
    ready = threading.Barrier(len(work))

    def one(do: Callable[[], object]) -> None:
        ready.wait()
        try:
            do()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=[do]) for do in work]
    with switching_all_the_time():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in failed:
        raise error


def test_counts_are_exact() -> None:
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


def test_stats_can_be_taken_while_things_come_and_go() -> None:
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for number in range(20):
                Bulkhead(1, name=f"stats {number}")
                Retry(name=f"stats {number}")

    def look() -> None:
        try:
            for _ in range(50):
                assert list(stats()) == [*SECTIONS]
        finally:
            over.set()

    together(come_and_go, look, come_and_go)


def test_policies_of_one_name_that_are_made_at_once_count_together() -> None:
    for number in range(50):
        found = list[object]()
        name = f"stats together {number}"
        together(*[lambda: found.append(counts_of(name))] * THREADS)  # noqa: B023  it is over before the next
        assert len({id(counts) for counts in found}) == 1
