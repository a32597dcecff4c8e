"""Delays and limits use Trio's mock clock."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import trio

import redouble
from redouble import Outcome, Report, Retry
from redouble._runtime.backend import under_trio
from tests.support.runtime.mock_clock import Busy, flaky, mocked


def test_delays_use_the_mock_clock() -> None:
    """A minute of delays takes no real time, and counts as a minute."""
    policy = Retry(on=Busy, backoff=[60, 60], give_up_after=None)

    async def main() -> tuple[str, float, Outcome[str]]:
        started = trio.current_time()
        value = await policy(flaky(1))()
        between = trio.current_time() - started
        return value, between, await policy.run(flaky(2))

    value, between, outcome = mocked(main)
    assert (value, between) == ("done", 60)
    assert (outcome.report.attempts, outcome.report.elapsed) == (3, 120)


def test_limits_use_the_mock_clock() -> None:
    async def slow() -> None:
        await trio.sleep(20)
        raise Busy

    async def main() -> Report:
        return (await Retry(on=Busy, backoff=[5, 5, 5], give_up_after=30).run(slow)).report

    reported = mocked(main)
    assert (reported.reason, reported.limit, reported.attempts, reported.elapsed) == (
        "timeout",
        "give_up_after",
        2,
        45,
    )
    assert [entry.delay for entry in reported.history] == [5, None]


def test_a_call_can_be_the_main_function() -> None:
    policy = Retry(on=Busy, backoff=[60], give_up_after=61)
    assert mocked(lambda: policy.call(flaky(1))) == "done"


def test_the_time_of_a_call_counts_from_its_first_await() -> None:
    """The clock outside of the run is another one."""
    policy = Retry(on=Busy, backoff=[20, 20], give_up_after=50)
    called, ran, decorated = policy.call(flaky(2)), policy.run(flaky(2)), policy(flaky(2))()

    async def main() -> tuple[str, Outcome[str], str]:
        await trio.sleep(10_000)
        return await called, await ran, await decorated

    first, outcome, last = mocked(main)
    assert (first, outcome.value, last) == ("done", "done", "done")
    assert (outcome.report.elapsed, outcome.report.attempts) == (40, 3)


def test_a_close_that_awaits_unexpectedly_is_interrupted() -> None:
    """Trio closes an abandoned stream in a cancelled scope: a `close()` that waits is interrupted there."""
    log: list[str] = []

    async def closing() -> None:
        try:
            await trio.sleep(1)
        finally:
            log.append("interrupted")

    class Ticks:
        def __aiter__(self) -> Ticks:
            return self

        async def __anext__(self) -> int:
            return 1

        def close(self) -> Any:
            return closing()

    async def main() -> None:
        async for _ in Retry().stream(Ticks):
            break

    trio.run(main)
    assert log == ["interrupted"]


@pytest.mark.parametrize("loaded", ["trio", "trio.lowlevel"])
def test_while_another_thread_imports_trio_a_call_is_not_under_trio(
    monkeypatch: pytest.MonkeyPatch, loaded: str
) -> None:
    """Its modules are there, and lack their attributes."""
    for name in ("trio", "trio.lowlevel"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, loaded, ModuleType(loaded))
    assert not under_trio()
    with redouble.deadline(5):
        assert 0 < (redouble.remaining() or 0) <= 5
