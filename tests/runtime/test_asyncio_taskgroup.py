"""Task groups that fail inside attempts: retried like any error, without a leftover cancellation request.

Before Python 3.13 a failed group leaves its task counted as being cancelled, though no task requested it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redouble import Retry, report
from tests.support.call_shapes import ASYNC_SHAPES, AsyncShape, AsyncWork
from tests.support.fakes import Boom

SHAPES = pytest.mark.parametrize("shape", ASYNC_SHAPES.values(), ids=ASYNC_SHAPES)


def policy(**options: Any) -> Retry:
    said: dict[str, Any] = {"on": Exception, "attempts": 3, "backoff": [0] * 9}
    return Retry(**said | options)


async def failing() -> None:
    raise Boom


async def late() -> None:
    """Fail after the group has reached its end and waits there."""
    await asyncio.sleep(0)
    raise Boom


async def grouped(*children: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.TaskGroup() as group:
        for child in children:
            group.create_task(_once(child))


async def _once(child: Callable[[], Awaitable[object]]) -> None:
    await child()


def asks() -> int:
    """Return the number of cancellation requests of the current task."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


# ------------------------------------------------------------ how a group's error is raised


async def as_it_is() -> None:
    await grouped(failing)


async def of_a_late_child() -> None:
    await grouped(late, failing)


async def with_a_body_of_its_own() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(failing())
        await asyncio.sleep(0)
        await asyncio.Event().wait()


async def of_its_own_body() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(late())
        raise Boom


async def as_a_cause() -> None:
    try:
        await grouped(failing)
    except ExceptionGroup as error:
        raise LookupError from error


async def as_a_context() -> None:
    try:
        await grouped(failing)
    except ExceptionGroup:
        raise LookupError  # noqa: B904  that is the case


async def far_down() -> None:
    try:
        await as_a_cause()
    except LookupError as error:
        raise KeyError from error


async def of_two() -> None:
    """Leave one by the error of another."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        await grouped(failing)


async def one_after_the_other() -> None:
    try:
        await grouped(failing)
    except* Boom:
        await grouped(failing)


async def in_a_child() -> None:
    """Fail in the group of another task: the request that it left belongs to that task."""
    await grouped(as_it_is)


WAYS: list[AsyncWork] = [
    as_it_is,
    of_a_late_child,
    with_a_body_of_its_own,
    of_its_own_body,
    as_a_cause,
    as_a_context,
    far_down,
    of_two,
    one_after_the_other,
    in_a_child,
]
EVERY_WAY = pytest.mark.parametrize("work", WAYS, ids=[way.__name__ for way in WAYS])


@SHAPES
@EVERY_WAY
@pytest.mark.parametrize("options", [{}, {"timeout": 60}, {"wrap": True}], ids=str)
def test_a_group_that_fails_is_retried(shape: AsyncShape, work: AsyncWork, options: dict[str, Any]) -> None:
    """After the last failed attempt the task has no request left: the next call is retried too."""

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011  any: the way says which
                await shape(policy(**options), work)
            said = report(caught.value)
            assert said is not None
            assert (said.reason, said.attempts) == ("attempts", 3)
            assert asks() == 0

    asyncio.run(main())


@SHAPES
@EVERY_WAY
def test_a_group_that_fails_at_first(shape: AsyncShape, work: AsyncWork) -> None:
    calls: list[int] = []

    async def recovering() -> str:
        calls.append(asks())
        if len(calls) < 3:
            await work()
        return "done"

    async def main() -> None:
        assert await shape(policy(), recovering) == "done"
        assert (calls, asks()) == ([0, 0, 0], 0)

    asyncio.run(main())


@SHAPES
def test_one_that_no_rule_retries_leaves_nothing_either(shape: AsyncShape) -> None:
    async def main() -> None:
        with pytest.raises(ExceptionGroup):
            await shape(policy(on=KeyError), as_it_is)
        assert asks() == 0

    asyncio.run(main())


# -------------------------------------------------------------------- the caller's cancellation


@SHAPES
@EVERY_WAY
def test_the_callers_cancellation_is_still_honoured(shape: AsyncShape, work: AsyncWork) -> None:
    """The request of the group is withdrawn, and no other."""
    calls: list[object] = []

    async def cancelled() -> None:
        calls.append(None)
        try:
            await work()
        finally:
            cancel()  # like a cancellation by another task at this moment

    async def main() -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011  any: the way says which
            await shape(policy(), cancelled)
        said = report(caught.value)
        assert said is not None
        assert said.reason == "stopped"
        assert asks() == 1
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert len(calls) == 1


@SHAPES
def test_a_group_that_fails_while_it_is_cancelled(shape: AsyncShape) -> None:
    """The group makes an error of it; it is the caller's cancellation all the same."""
    calls, begun = list[object](), asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Boom

    async def work() -> None:
        calls.append(None)
        begun.set()
        if len(calls) == 1:
            await grouped(stubborn)

    async def main() -> None:
        task = asyncio.ensure_future(shape(policy(), work))
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((ExceptionGroup, asyncio.CancelledError)):
            await task
        assert task.cancelling() == 1

    asyncio.run(main())
    assert len(calls) == 1


def ended(raising: AsyncWork) -> tuple[str | None, int]:
    """Make a call in a task that is being cancelled; return its end and the number of requests."""
    seen: list[tuple[str | None, int]] = []

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await policy().call(raising)
        except Exception as error:
            said = report(error)
            seen.append((said and said.reason, task.cancelling()))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    return seen.pop()


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def test_a_task_that_does_not_belong_to_the_group() -> None:
    """An error of another task's group, raised here: there is nothing to take back."""

    async def raising() -> None:
        other = asyncio.ensure_future(grouped(failing))
        await asyncio.wait([other])
        cancel()
        other.result()

    assert ended(raising) == ("stopped", 1)


def test_errors_that_go_round_in_circles() -> None:
    """Causes are followed, up to a maximum."""
    first, second = Boom(), Boom()
    first.__cause__, second.__cause__ = second, first

    async def raising() -> None:
        cancel()
        raise first

    assert ended(raising) == ("stopped", 1)
