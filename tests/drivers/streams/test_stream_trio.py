"""Abandoned sources under Trio: a finaliser closes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from redouble import Retry
from tests.support.drivers.stream_cleanup import LOG, source, turns
from tests.support.fakes import Boom

POLICY = Retry(on=Boom)
MESSAGE = "a stream that was abandoned could not be closed"

pytestmark = pytest.mark.usefixtures("empty_log")


def in_trio(
    clean: Callable[[], Awaitable[object]], then: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Abandon a stream after its first item, then await ``then()``."""

    async def main() -> None:
        async for _ in POLICY(source(clean))():
            break
        LOG.append("left")
        await (then or trio.lowlevel.checkpoint)()

    trio.run(main)


def test_trio_cleanup_that_awaits_runs_in_its_own_task() -> None:
    """It starts a little later, because a coroutine that has started cannot move to another Trio task."""
    tasks: list[object] = []

    async def clean() -> None:
        for _ in range(3):
            tasks.append(trio.lowlevel.current_task())
            await trio.lowlevel.checkpoint()

    async def then() -> None:
        tasks.append(trio.lowlevel.current_task())
        await turns(9)
        LOG.append("end")

    in_trio(clean, then)
    assert LOG == ["left", "cleaning", "clean", "end"]
    assert len(set(tasks)) == 2
    assert tasks.count(tasks[0]) == 1


def test_trio_cleanup_is_cancelled_at_the_end_of_the_run() -> None:
    """Each await of the cleanup is cancelled."""

    async def clean() -> None:
        for _ in range(3):
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                LOG.append("cancelled")

    in_trio(clean)
    assert LOG == ["left", "cleaning", "cancelled", "cancelled", "cancelled", "clean"]


def test_trio_cleanup_does_not_affect_the_scopes_of_the_consumer() -> None:
    async def clean() -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(0) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught

    async def then() -> None:
        with trio.move_on_after(0) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        await turns(9)

    in_trio(clean, then)
    assert LOG == ["left", "cleaning", "clean"]


def test_trio_an_event_awaited_by_the_cleanup_wakes_no_other_task() -> None:
    event = trio.Event()

    async def then() -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(set_and_end, scope)
                await trio.sleep_forever()
        assert scope.cancelled_caught

    async def set_and_end(scope: trio.CancelScope) -> None:
        await turns(2)
        event.set()
        await turns(2)
        scope.cancel()

    in_trio(event.wait, then)
    assert LOG == ["left", "cleaning", "clean"]


NURSERY = """
import trio
from redouble import Retry

async def source():
    try:
        yield 1
        yield 2
    finally:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0)

async def main():
    async for _ in Retry()(source)():
        break
    for _ in range(9):
        await trio.sleep(0)
    print("left")

trio.run(main)
"""


def test_trio_survives_a_nursery_in_the_cleanup() -> None:
    """It runs in another process, because an internal error of Trio would end this one."""
    ended = subprocess.run([sys.executable, "-c", NURSERY], capture_output=True, text=True, check=False)  # noqa: S603
    assert "TrioInternalError" not in ended.stderr
    assert (ended.returncode, ended.stdout) == (0, "left\n")


@pytest.mark.parametrize("waits", [0, 2])
def test_trio_logs_an_error_of_the_cleanup(waits: int, caplog: pytest.LogCaptureFixture) -> None:
    """An error in one of Trio's system tasks would end the whole run."""

    async def clean() -> None:
        await turns(waits)
        raise KeyError("cleanup")

    in_trio(clean, lambda: turns(9))
    assert LOG == ["left", "cleaning"]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [MESSAGE]
    assert "KeyError: 'cleanup'" in caplog.text


def test_trio_cleans_up_a_stream_that_is_left_at_the_end_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def items() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            LOG.append("clean")
            raise KeyError("cleanup")

    async def main() -> None:
        async for _ in POLICY(items)():
            break
        LOG.append("left")

    trio.run(main)
    assert LOG == ["left", "clean"]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [MESSAGE]
