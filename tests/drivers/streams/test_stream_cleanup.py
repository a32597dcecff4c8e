"""The cleanup of abandoned async sources: it awaits, fails or is cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from redouble import Retry
from redouble._runtime.asyncio_backend import PrimedCoroutine
from redouble.types import Event
from tests.support.drivers.stream_cleanup import LOG, source, turns
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.streams import SHAPES, Shape, stacked

pytestmark = pytest.mark.usefixtures("empty_log")

EVERY = SHAPES | {"stacked": stacked}
EVERY_SHAPE = pytest.mark.parametrize("shape", EVERY.values(), ids=EVERY)
ASYNCIO = pytest.mark.parametrize("colour", ASYNC[:-1])


async def leave(make: Callable[[], Any]) -> None:
    async for _ in make():
        break
    LOG.append("left")


POLICY = Retry(on=Boom)


# ----------------------------------------------------------------------------- asyncio


@EVERY_SHAPE
@ASYNCIO
def test_cleanup_that_awaits_continues_in_its_own_task(colour: str, shape: Shape) -> None:
    """It starts at once, and runs in that task from its first step on."""
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
def test_a_timeout_in_the_cleanup_does_not_cancel_the_consumer(colour: str) -> None:
    """The timeout and the task group of the cleanup belong to the task of the cleanup."""

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
def test_a_stream_dropped_in_a_callback_is_cleaned_up(colour: str) -> None:
    """In a callback of the event loop no task is running."""

    async def main() -> None:
        kept = [POLICY(source(lambda: turns(2)))()]
        await anext(kept[0])
        asyncio.get_running_loop().call_soon(kept.clear)
        await turns(9)

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "clean"]


@ASYNCIO
@pytest.mark.parametrize("waits", [0, 2])
def test_an_error_of_the_cleanup_is_reported(colour: str, waits: int) -> None:
    """The loop's exception handler gets the error, and observers get a failure and a give-up."""
    events: list[str] = []

    def record(event: Event) -> None:
        events.append(f"{event.what} {event.reason}")

    async def clean() -> None:
        await turns(waits)
        raise KeyError("cleanup")

    async def main() -> None:
        def failed(loop: object, context: dict[str, Any]) -> None:
            LOG.append(str(context["exception"]))

        asyncio.get_running_loop().set_exception_handler(failed)
        policy = Retry(on=Boom, on_success=record, on_failure=record, on_give_up=record)
        await leave(policy(source(clean)))
        await turns(9)
        gc.collect()

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "left", "'cleanup'"]
    assert events == ["failure None", "give_up committed"]


@ASYNCIO
def test_cleanup_that_awaits_a_cancelled_future_is_silent(colour: str) -> None:
    """The loop's exception handler is not called, as for any other cancelled task."""

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
def test_cleanup_is_cancelled_when_the_loop_ends(colour: str) -> None:
    """The cleanup may handle the cancellation, like every other task."""

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
def test_cancelling_the_task_of_a_finished_cleanup_changes_nothing(colour: str) -> None:
    """The consumer cancels all other tasks, after the cleanup has run to its end."""

    async def main() -> None:
        await leave(POLICY(source(lambda: turns(0))))
        mine = asyncio.current_task()
        for task in asyncio.all_tasks() - {mine}:
            task.cancel()
        await turns(2)

    in_colour(colour, lambda: None, main)
    assert LOG == ["cleaning", "clean", "left"]


def test_a_primed_coroutine_is_a_coroutine() -> None:
    """It can be awaited, thrown into and closed, like any coroutine that a task is made of."""

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
    primed = PrimedCoroutine(work())
    primed.begin()
    primed.close()
    assert LOG == ["done", "over", "over"]
    primed = PrimedCoroutine(work())
    primed.begin()
    with pytest.raises(KeyError):
        primed.throw(KeyError())
