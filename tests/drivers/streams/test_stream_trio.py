"""The closing of sources by a finaliser under Trio."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from redouble import Retry
from tests.drivers.streams.test_stream_cleanup import LOG, counting, source, turns
from tests.support.fakes import Boom

POLICY = Retry(on=Boom)
COMPLAINT = "a stream that was abandoned could not be closed"

pytestmark = pytest.mark.usefixtures(counting.__name__)


def in_trio(
    clean: Callable[[], Awaitable[object]], then: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Leave a stream, and then do something else."""

    async def main() -> None:
        async for _ in POLICY(source(clean))():
            break
        LOG.append("left")
        await (then or trio.lowlevel.checkpoint)()

    trio.run(main)


def test_trio_cleanup_that_waits() -> None:
    """It is done soon, in a task of its own: in Trio, nothing that has begun can change its task."""
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


def test_trio_cleanup_that_waits_for_nothing() -> None:
    """It is done at once, though the source waits elsewhere."""

    async def items() -> AsyncIterator[int]:
        await turns(1)
        try:
            for number in range(9):
                yield number
                await turns(1)
        finally:
            LOG.append("clean")

    async def main() -> None:
        async for _ in POLICY(items)():
            break
        LOG.append("left")

    trio.run(main)
    assert LOG == ["clean", "left"]


def test_trio_cleanup_at_the_end() -> None:
    """When all is over, what still waits is cancelled, and told so each time."""

    async def clean() -> None:
        for _ in range(3):
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                LOG.append("cancelled")

    in_trio(clean)
    assert LOG == ["left", "cleaning", "cancelled", "cancelled", "cancelled", "clean"]


def test_trio_scopes_are_left_as_they_were() -> None:
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


def test_trio_what_cleanup_waits_for_wakes_no_other_task() -> None:
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


def test_trio_cleanup_with_a_nursery() -> None:
    """Whatever becomes of that cleanup, Trio survives it. In a process of its own, lest this one does not."""
    ended = subprocess.run([sys.executable, "-c", NURSERY], capture_output=True, text=True, check=False)  # noqa: S603
    assert "TrioInternalError" not in ended.stderr
    assert (ended.returncode, ended.stdout) == (0, "left\n")


@pytest.mark.parametrize("waits", [0, 2])
def test_trio_cleanup_that_fails(waits: int, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; a task of Trio's own that failed would be the end of everything."""

    async def clean() -> None:
        await turns(waits)
        raise KeyError("cleanup")

    in_trio(clean, lambda: turns(9))
    assert LOG == ["left", "cleaning"]
    assert [record.getMessage() for record in caplog.records] == [COMPLAINT]
    assert "KeyError: 'cleanup'" in caplog.text


def test_trio_cleanup_that_fails_at_once(caplog: pytest.LogCaptureFixture) -> None:
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
    assert LOG == ["clean", "left"]
    assert [record.getMessage() for record in caplog.records] == [COMPLAINT]
