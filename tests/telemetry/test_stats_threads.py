"""Counts are exact, and `stats()` works, while other threads make calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

from redouble import Bulkhead, Retry, stats
from redouble._internal.locks import gil
from redouble._telemetry import registry
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


@pytest.mark.parametrize("with_gil", [True, False])
def test_counts_are_exact_on_many_threads(with_gil: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil, "enabled", with_gil)
    name = f"stats threads {with_gil}"
    policy = Retry(on=Boom, attempts=3, backoff=[0, 0], name=name)

    def fails() -> None:
        raise Boom

    def work() -> None:
        for _ in range(100):
            with pytest.raises(Boom):
                policy.call(fails)

    together(*[work] * THREADS)
    found = stats()["policies"][name]
    calls = 100 * THREADS
    assert (found["failures"], found["retries"], found["given_up"]) == (3 * calls, 2 * calls, calls)


def test_without_a_gil_every_count_changes_under_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil, "enabled", False)
    policy = Retry(on=Boom, attempts=3, backoff=[0, 0], name="stats without a GIL")
    counts: Any = counts_of("stats without a GIL")
    changed: list[tuple[str, bool]] = []

    def set_attribute(self: object, name: str, value: object) -> None:
        if value != getattr(self, name):
            changed.append((name, registry._lock._owned_by_this_thread()))
        object.__setattr__(self, name, value)

    kind: type[Any] = counts.__class__
    counts.__class__ = type("Watched", (kind,), {"__slots__": (), "__setattr__": set_attribute})

    def fails() -> None:
        raise Boom

    def stream() -> Generator[int]:
        yield 1
        raise Boom

    with pytest.raises(Boom):
        policy.call(fails)
    with pytest.raises(Boom):
        list(policy.call(stream))
    assert {name for name, _ in changed} == {"failures", "retries", "given_up"}
    assert len(changed) == 3 + 2 + 1 + 2
    assert all(held for _, held in changed)


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
