"""The time left and the current call in tasks that a call starts: part of the call that awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias

import anyio
import pytest
import trio

from redouble import RateLimit, Retry, Timeout, current, deadline, remaining
from redouble._runtime import asyncio_backend
from redouble.errors import RateLimited
from redouble.testing import VirtualClock
from tests.support.call_shapes import EVERY_ASYNC_SHAPE
from tests.support.fakes import Boom
from tests.support.virtual_time import at, in_virtual_colour, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

Work: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
Start: TypeAlias = Callable[[Work], Awaitable[object]]


# ------------------------------------------------------------------- how tasks are awaited


async def awaited(work: Work) -> object:
    return await asyncio.create_task(work())


async def waited_for(work: Work) -> object:
    """Which starts a task before Python 3.12."""
    return await asyncio.wait_for(work(), 3600)


async def gathered(work: Work) -> object:
    return (await asyncio.gather(asyncio.sleep(0), work()))[1]


async def gathered_twice(work: Work) -> object:
    return (await asyncio.gather(asyncio.gather(waited_for(work)), awaited(nothing)))[0][0]


async def grouped(work: Work) -> object:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
    return task.result()


async def grouped_by_anyio(work: Work) -> object:
    results: list[object] = []

    async def child() -> None:
        results.append(await work())

    async with anyio.create_task_group() as group:
        group.start_soon(child)
    return results[0]


async def nursed(work: Work) -> object:
    results: list[object] = []

    async def child() -> None:
        results.append(await work())

    async with trio.open_nursery() as outer:
        outer.start_soon(nothing)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
    return results[0]


async def nothing() -> None:
    """Do nothing."""


class Awaitables:
    """An awaitable of another class, whose generator the awaiting coroutine delegates to."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, object]:
        return (yield from awaited(self._work).__await__())


async def by_an_object(work: Work) -> object:
    return await Awaitables(work)


ASYNCIO_WAYS: list[Start] = [awaited, waited_for, gathered, gathered_twice, grouped, by_an_object]
WAYS = [
    *(pytest.param("asyncio", way, id=way.__name__) for way in [*ASYNCIO_WAYS, grouped_by_anyio]),
    *(pytest.param("trio", way, id=f"trio {way.__name__}") for way in (nursed, grouped_by_anyio)),
]
EVERY_WAY = pytest.mark.parametrize(("colour", "start"), WAYS)


def run(colour: str, main: Callable[[VirtualClock], Awaitable[object]]) -> Any:
    return in_virtual_colour(colour, lambda clock: None, main)


async def look() -> tuple[object, object]:
    call = current()
    return remaining("none"), None if call is None else (call.name, call.attempt)


@EVERY_WAY
@pytest.mark.parametrize("shape", EVERY_ASYNC_SHAPE)
def test_a_task_is_part_of_the_call_that_awaits_it(colour: str, start: Start, shape: str) -> None:
    async def main(clock: VirtualClock) -> list[object]:
        policies = [Retry(timeout=10, name="a"), Retry(give_up_after=20, name="b"), Retry(name="c")]
        return [await EVERY_ASYNC_SHAPE[shape](policy, partial(start, look)) for policy in policies]

    assert run(colour, main) == [(10, ("a", 1)), (20, ("b", 1)), ("none", ("c", 1))]


@EVERY_WAY
def test_the_limits_of_all_calls_around_the_tasks_count(colour: str, start: Start) -> None:
    async def main(clock: VirtualClock) -> list[object]:
        outer, inner = Timeout(30), Retry(timeout=20, name="inner")
        child = Retry(give_up_after=40, name="child")

        async def nested() -> object:
            clock.advance(15)
            return await inner.call(start, look)

        return [
            await outer.call(start, nested),
            await outer.call(start, partial(child.call, look)),
            await outer.call(start, partial(Retry(attempt_timeout=50).acall, remaining)),
        ]

    inner, outer, on_worker = run(colour, main)
    assert inner == (15, ("inner", 1))
    assert outer == (30, ("child", 1))
    assert 0 < on_worker <= 30


@EVERY_WAY
def test_a_gate_in_a_task_waits_no_longer_than_the_call(colour: str, start: Start) -> None:
    async def main(clock: VirtualClock) -> object:
        limit = RateLimit(0.1)
        await limit.call(look)

        async def waits() -> object:
            with pytest.raises(RateLimited) as refused:
                await limit.call(look)
            return refused.value.retry_after

        return await Retry(give_up_after=0.5).call(start, waits), clock.now()

    assert run(colour, main) == (10, 0)


@EVERY_WAY
def test_a_delay_in_a_task_is_no_longer_than_the_time_left(colour: str, start: Start) -> None:
    async def fails() -> None:
        raise Boom

    async def main(clock: VirtualClock) -> object:
        async def inner() -> object:
            return (await Retry(on=Boom, backoff=[10]).run(fails)).report.reason

        return await Retry(give_up_after=5).call(start, inner), clock.now()

    assert run(colour, main) == ("timeout", 0)


@EVERY_WAY
def test_behind_async_generators(colour: str, start: Start) -> None:
    async def items() -> AsyncIterator[object]:
        yield await start(look)

    async def more() -> AsyncIterator[object]:
        async for item in Retry(timeout=20, name="inner").stream(items):
            yield item

    async def main(clock: VirtualClock) -> object:
        async def read() -> object:
            return [item async for item in more()]

        return await Retry(timeout=10).call(read)

    assert run(colour, main) == [(10, ("inner", 1))]


# ----------------------------------------------------------------- tasks that are no part


async def in_background(work: Work) -> object:
    task = asyncio.create_task(work())
    await asyncio.sleep(1)
    return await task


async def shielded(work: Work) -> object:
    return await asyncio.shield(work())


async def waited(work: Work) -> object:
    task = asyncio.create_task(work())
    await asyncio.wait([task])
    return task.result()


async def shared(work: Work) -> object:
    """Each of two calls awaits the task, and neither is the one around it."""
    task = asyncio.create_task(work())
    return (await asyncio.gather(wait_for_task(task), wait_for_task(task)))[0]


async def wait_for_task(task: asyncio.Task[object]) -> object:
    return await task


def do_nothing(future: object, task: object) -> None:
    """Do nothing."""


class Listener:
    """A callback that answers no question about itself."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __call__(self, *_: object) -> None:
        """Do nothing."""


async def with_callbacks(work: Work) -> object:
    """Callbacks of other kinds lead nowhere."""
    current_task: Any = asyncio.current_task()
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(work())
    task.add_done_callback(future.set_result)
    task.add_done_callback(partial(do_nothing, future))
    task.add_done_callback(partial(Listener(), future))
    task.add_done_callback(Listener())
    task.add_done_callback(current_task.remove_done_callback)
    return (await future).result()


@pytest.mark.parametrize("start", [in_background, shielded, waited, shared, with_callbacks])
def test_a_task_is_no_part_of_a_call_whose_cancellation_would_not_reach_it(start: Start) -> None:
    async def main(clock: VirtualClock) -> object:
        return await Retry(timeout=10).call(start, look)

    assert run("asyncio", main) == ("none", None)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_task_is_no_part_of_what_the_task_of_its_group_does_meanwhile(colour: str) -> None:
    """The group was opened outside of the call."""

    async def main(clock: VirtualClock) -> object:
        seen: list[object] = []

        async def child() -> None:
            await clock.asleep(1)
            seen.append(await look())

        async with anyio.create_task_group() as group:
            group.start_soon(child)
            await Retry(timeout=10).call(clock.asleep, 2)
        return seen

    assert run(colour, main) == [("none", None)]


def test_a_deadline_is_inherited_by_every_task() -> None:
    async def main(clock: VirtualClock) -> object:
        async def attempt() -> object:
            with deadline(remaining(0.0)):
                return [await start(look) for start in (in_background, shielded, waited, shared)]

        return await Retry(timeout=10).call(attempt)

    assert run("asyncio", main) == [(10, None), (9, None), (9, None), (9, None)]


def test_tasks_that_await_one_another_end_the_search() -> None:
    async def main(clock: VirtualClock) -> object:
        seen: list[object] = []
        me: Any = asyncio.current_task()

        async def blocked() -> None:
            await me

        async def child() -> None:
            await asyncio.sleep(1)
            seen.append(await look())
            raise Boom  # or they would wait for ever

        with pytest.raises(Boom):
            await asyncio.gather(child(), blocked())
        return seen

    assert run("asyncio", main) == [("none", None)]


def test_code_without_a_task_has_no_calls_around_it() -> None:
    """A callback of the event loop, a coroutine that is driven by hand."""

    async def main(clock: VirtualClock) -> object:
        seen: list[object] = []
        asyncio.get_running_loop().call_soon(lambda: seen.append(remaining("none")))
        await Retry(timeout=10).call(asyncio.sleep, 1)
        return seen

    assert at("asyncio around", lambda clock: None, main) == ["none"]
    assert list(asyncio_backend.awaiting_tasks()) == []
