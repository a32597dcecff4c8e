"""What a source does when it is closed though nobody awaits it: cleanup that waits, fails, is cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from redouble import SYSTEM, Retry
from redouble._runtime.asyncio_backend import PrimedCoroutine
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.streams import SHAPES, Shape, stacked

EVERY = SHAPES | {"stacked": stacked}
EVERY_SHAPE = pytest.mark.parametrize("shape", EVERY.values(), ids=EVERY)
ASYNCIO = pytest.mark.parametrize("colour", ASYNC[:-1])
LOG: list[object] = []


@pytest.fixture(autouse=True)
def counting() -> None:
    LOG.clear()


async def turns(count: int) -> None:
    """Let others have theirs."""
    for _ in range(count):
        await SYSTEM.asleep(0)


def source(clean: Callable[[], Awaitable[object]]) -> Callable[[], Any]:
    """Make a source that cleans up in this way."""

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            LOG.append("cleaning")
            await clean()
            LOG.append("clean")

    return items


async def leave(make: Callable[[], Any]) -> None:
    async for _ in make():
        break
    LOG.append("left")


POLICY = Retry(on=Boom)


# ----------------------------------------------------------------------------- asyncio


@EVERY_SHAPE
@ASYNCIO
def test_cleanup_that_waits(colour: str, shape: Shape) -> None:
    """It begins at once, and goes on in a task of its own, which it is in from the start."""
    tasks: list[object] = []

    async def clean() -> None:
        for _ in range(3):
            tasks.append(asyncio.current_task())
            await asyncio.sleep(0)

    async def main() -> None:
        mine = asyncio.current_task()
        await leave(lambda: shape(POLICY, source(clean)))
        assert asyncio.current_task() is mine
        await turns(9)
        assert mine not in tasks

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "left", "clean"]
    assert len(tasks) == 3
    assert len(set(tasks)) == 1


@ASYNCIO
def test_cleanup_with_a_timeout(colour: str) -> None:
    """The scope belongs to the task of the cleanup; whoever left is not disturbed."""

    async def clean() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(turns(2))

    async def main() -> None:
        await leave(POLICY(source(clean)))
        await turns(20)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "left", "clean"]


@ASYNCIO
def test_cleanup_in_a_callback(colour: str) -> None:
    """There, no task is running."""

    async def main() -> None:
        kept = [POLICY(source(lambda: turns(2)))()]
        await anext(kept[0])
        asyncio.get_running_loop().call_soon(kept.clear)
        await turns(9)

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "clean"]


@ASYNCIO
@pytest.mark.parametrize("waits", [0, 2])
def test_cleanup_that_fails(colour: str, waits: int) -> None:
    """The loop is told, as of any task that fails unseen; observers are told that it failed."""
    told: list[str] = []

    def hear(event: Event) -> None:
        told.append(f"{event.what} {event.reason}")

    async def clean() -> None:
        await turns(waits)
        raise KeyError("cleanup")

    async def main() -> None:
        def failed(loop: object, context: dict[str, Any]) -> None:
            LOG.append(str(context["exception"]))

        asyncio.get_running_loop().set_exception_handler(failed)
        policy = Retry(on=Boom, on_success=hear, on_failure=hear, on_give_up=hear)
        await leave(policy(source(clean)))
        await turns(9)
        gc.collect()

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "left", "'cleanup'"]
    assert told == ["failure None", "give_up committed"]


@ASYNCIO
def test_cleanup_that_finds_itself_cancelled(colour: str) -> None:
    """It awaits something that was cancelled before: no noise, as in any other task."""

    async def clean() -> None:
        done = asyncio.get_running_loop().create_future()
        done.cancel()
        await done

    async def main() -> None:
        await leave(POLICY(source(clean)))
        await turns(9)

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "left"]


@ASYNCIO
def test_the_loop_ends_meanwhile(colour: str) -> None:
    """Then the cleanup is cancelled like every other task, and may see to it."""

    async def clean() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            LOG.append("cancelled")
            raise

    in_colour(colour, lambda: None, lambda: leave(POLICY(source(clean))))
    assert LOG == ["cleaning", "left", "cancelled"]
    LOG.clear()
    in_colour(colour, lambda: None, lambda: leave(POLICY(source(lambda: turns(0)))))
    assert LOG == ["cleaning", "clean", "left"]


@ASYNCIO
def test_cancelled_before_it_is_seen_to_have_ended(colour: str) -> None:
    """Somebody cancels all tasks: there is nothing left of this one, and nothing to say about it."""

    async def main() -> None:
        await leave(POLICY(source(lambda: turns(0))))
        mine = asyncio.current_task()
        for task in asyncio.all_tasks() - {mine}:
            task.cancel()
        await turns(2)

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "clean", "left"]


def test_what_has_begun_is_a_coroutine() -> None:
    """As any that a task may be made of: it can be awaited, thrown into and closed."""

    async def work() -> None:
        try:
            await asyncio.sleep(0)
            LOG.append("done")
        finally:
            LOG.append("over")

    async def awaiting() -> None:
        await PrimedCoroutine(work())

    asyncio.run(awaiting())
    assert LOG == ["done", "over"]
    begun = PrimedCoroutine(work())
    begun.begin()
    begun.close()
    assert LOG == ["done", "over", "over"]
    begun = PrimedCoroutine(work())
    begun.begin()
    with pytest.raises(KeyError):
        begun.throw(KeyError())
