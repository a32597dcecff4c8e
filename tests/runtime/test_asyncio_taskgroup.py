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
    given: dict[str, Any] = {"on": Exception, "attempts": 3, "backoff": [0] * 9}
    return Retry(**given | options)


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


def cancelling() -> int:
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
    """Exit one group by the error of another."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        await grouped(failing)


async def one_after_the_other() -> None:
    try:
        await grouped(failing)
    except* Boom:
        await grouped(failing)


async def in_a_child() -> None:
    """Fail in the group of a child task, which keeps the leftover request."""
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
    """After the last failed attempt no cancellation request is left: the next call is retried too."""

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011  of any type
                await shape(policy(**options), work)
            reported = report(caught.value)
            assert reported is not None
            assert (reported.reason, reported.attempts) == ("attempts", 3)
            assert cancelling() == 0

    asyncio.run(main())


@SHAPES
@EVERY_WAY
def test_a_group_that_fails_twice_is_retried_to_success(shape: AsyncShape, work: AsyncWork) -> None:
    calls: list[int] = []

    async def recovering() -> str:
        calls.append(cancelling())
        if len(calls) < 3:
            await work()
        return "done"

    async def main() -> None:
        assert await shape(policy(), recovering) == "done"
        assert (calls, cancelling()) == ([0, 0, 0], 0)

    asyncio.run(main())


@SHAPES
def test_a_group_that_no_rule_retries_leaves_no_cancellation_request(shape: AsyncShape) -> None:
    async def main() -> None:
        with pytest.raises(ExceptionGroup):
            await shape(policy(on=KeyError), as_it_is)
        assert cancelling() == 0

    asyncio.run(main())


# -------------------------------------------------------------------- the caller's cancellation


@SHAPES
@EVERY_WAY
def test_the_callers_cancellation_is_still_honoured(shape: AsyncShape, work: AsyncWork) -> None:
    """Only the cancellation request of the group is withdrawn."""
    calls: list[object] = []

    async def cancelled() -> None:
        calls.append(None)
        try:
            await work()
        finally:
            cancel()  # like a cancellation by another task at this moment

    async def main() -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011  of any type
            await shape(policy(), cancelled)
        reported = report(caught.value)
        assert reported is not None
        assert reported.reason == "stopped"
        assert cancelling() == 1
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert len(calls) == 1


@SHAPES
def test_a_group_that_fails_while_it_is_cancelled_is_not_retried(shape: AsyncShape) -> None:
    """The group raises an error, but the cancellation request of the caller is still there."""
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
            reported = report(error)
            seen.append((reported and reported.reason, task.cancelling()))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    return seen.pop()


def cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def test_no_request_is_withdrawn_for_the_group_of_another_task() -> None:
    """The error of another task's group is raised in this task."""

    async def raising() -> None:
        other = asyncio.ensure_future(grouped(failing))
        await asyncio.wait([other])
        cancel()
        other.result()

    assert ended(raising) == ("stopped", 1)


def test_a_cycle_of_causes_is_followed_a_limited_number_of_times() -> None:
    first, second = Boom(), Boom()
    first.__cause__, second.__cause__ = second, first

    async def raising() -> None:
        cancel()
        raise first

    assert ended(raising) == ("stopped", 1)
