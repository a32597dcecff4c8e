"""Trio's mock clock is followed, by delays and by limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import trio
import trio.testing

from redouble import Outcome, Report, Retry


class Busy(Exception):
    pass


def flaky(failures: int) -> Callable[[], Coroutine[Any, Any, str]]:
    """Return a coroutine function that fails so often, and then does not."""
    left = failures

    async def fetch() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise Busy
        return "done"

    return fetch


def mocked(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run under Trio, whose mock clock jumps whenever all tasks sleep."""
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_mock_clock_is_followed() -> None:
    """A minute of delays takes no time at all, and counts as a minute."""
    policy = Retry(on=Busy, backoff=[60, 60], give_up_after=None)

    async def main() -> tuple[str, float, Outcome[str]]:
        started = trio.current_time()
        value = await policy(flaky(1))()
        between = trio.current_time() - started
        return value, between, await policy.run(flaky(2))

    value, between, outcome = mocked(main)
    assert (value, between) == ("done", 60)
    assert (outcome.report.attempts, outcome.report.elapsed) == (3, 120)


def test_limits_are_measured_by_it_too() -> None:
    async def slow() -> None:
        await trio.sleep(20)
        raise Busy

    async def main() -> Report:
        return (await Retry(on=Busy, backoff=[5, 5, 5], give_up_after=30).run(slow)).report

    said = mocked(main)
    assert (said.reason, said.limit, said.attempts, said.elapsed) == ("timeout", "give_up_after", 2, 45)
    assert [entry.delay for entry in said.history] == [5, None]


def test_a_call_can_be_the_main_function() -> None:
    policy = Retry(on=Busy, backoff=[60], give_up_after=61)
    assert mocked(lambda: policy.call(flaky(1))) == "done"


def test_a_call_made_outside_of_it() -> None:
    """The time outside is another one, and means nothing inside."""
    policy = Retry(on=Busy, backoff=[20, 20], give_up_after=50)
    called, ran, decorated = policy.call(flaky(2)), policy.run(flaky(2)), policy(flaky(2))()

    async def main() -> tuple[str, Outcome[str], str]:
        await trio.sleep(10_000)
        return await called, await ran, await decorated

    first, outcome, last = mocked(main)
    assert (first, outcome.value, last) == ("done", "done", "done")
    assert (outcome.report.elapsed, outcome.report.attempts) == (40, 3)


def test_an_abandoned_stream_whose_closing_waits_unforeseen(caplog: pytest.LogCaptureFixture) -> None:
    """A plain `close()` that returns an awaitable is interrupted at its first wait, and that is logged."""
    log: list[str] = []

    async def closing() -> None:
        try:
            await trio.sleep(1)
        finally:
            log.append("cut")

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
    assert log == ["cut"]
    assert caplog.messages == ["a stream that was abandoned could not be closed"]
