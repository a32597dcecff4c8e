"""Where limits end: at the first item of a stream, and once a context manager has been entered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio

from redouble import Retry, deadline, errors
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from tests.support.drivers.limited_calls import LONG, LimitedCall, policy_of
from tests.support.fakes import Boom
from tests.support.virtual_time import in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

COLOURS = pytest.mark.parametrize("colour", ["asyncio", "trio"])
LIMITS = pytest.mark.parametrize(
    "limits",
    [{"timeout": 2}, {"attempt_timeout": 2}, {"work_timeout": 2}, {"timeout": 3, "attempt_timeout": 2}],
    ids=str,
)


def some(**options: Any) -> Retry:
    return policy_of(LimitedCall(), observed=False, **options)


async def slowly(first: float, second: float = LONG, ended: list[str] | None = None) -> AsyncIterator[str]:
    """Yield two items, the first after ``first`` seconds, the second after ``second`` more."""
    try:
        await backend().sleep(first)
        yield "first"
        await backend().sleep(second)
        yield "second"
    finally:
        if ended is not None:
            ended.append("closed")


@COLOURS
@LIMITS
def test_a_stream_has_no_limit_after_its_first_item(colour: str, limits: dict[str, Any]) -> None:
    async def waiting(clock: VirtualClock) -> None:
        for stream in (some(**limits)(slowly)(1), some(**limits).stream(lambda: slowly(1))):
            began = clock.now()
            assert [item async for item in stream] == ["first", "second"]
            assert clock.now() - began == 1 + LONG

    in_virtual_time(colour, waiting)


@COLOURS
def test_a_stream_whose_first_item_is_too_late_is_closed(colour: str) -> None:
    ended: list[str] = []

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(errors.DeadlineExceeded):
            async for _ in some(timeout=2).stream(lambda: slowly(LONG, 0, ended)):
                raise AssertionError
        assert clock.now() == 2
        with pytest.raises(errors.AttemptTimeout):
            async for _ in some(attempt_timeout=2, attempts=3)(slowly)(LONG, 0, ended):
                raise AssertionError
        assert clock.now() == 2 + 2 + 1 + 2 + 1 + 2

    in_virtual_time(colour, waiting)
    assert ended == ["closed"] * 4


@COLOURS
def test_a_stream_whose_first_item_is_late_is_retried(colour: str) -> None:
    firsts: list[float] = [LONG, 1]

    async def waiting(clock: VirtualClock) -> list[str]:
        items = [
            item async for item in some(timeout=9, attempt_timeout=2).stream(lambda: slowly(firsts.pop(0)))
        ]
        assert clock.now() == 2 + 1 + 1 + LONG
        return items

    assert in_virtual_time(colour, waiting) == ["first", "second"]


@COLOURS
def test_the_time_to_open_a_stream_is_limited(colour: str) -> None:
    async def opening() -> AsyncIterator[str]:
        await backend().sleep(LONG)
        return slowly(0)

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(errors.DeadlineExceeded):
            async for _ in some(timeout=2).stream(opening):
                raise AssertionError
        assert clock.now() == 2

    in_virtual_time(colour, waiting)


@COLOURS
def test_limits_restart_when_a_stream_is_resumed(colour: str) -> None:
    async def breaking(number: int) -> AsyncIterator[int]:
        await backend().sleep(1)
        yield number
        raise Boom

    async def waiting(clock: VirtualClock) -> list[int]:
        seen: list[int] = []
        policy = some(timeout=3)
        async for number in policy.stream(lambda: breaking(0), resume=lambda last: breaking(last + 1)):
            seen.append(number)
            if number == 5:
                break
        assert clock.now() == 6 + 5
        return seen

    assert in_virtual_time(colour, waiting) == [0, 1, 2, 3, 4, 5]


# ------------------------------------------------------------------ context managers


@asynccontextmanager
async def connection(takes: float, log: list[str]) -> AsyncGenerator[str]:
    """Connect in ``takes`` seconds, and disconnect in one second."""
    try:
        await backend().sleep(takes)
        log.append("connected")
        yield "connection"
        log.append("disconnecting")
        await backend().sleep(1)
    finally:
        log.append("gone")


@COLOURS
@LIMITS
def test_the_body_of_an_entered_manager_has_no_limit(colour: str, limits: dict[str, Any]) -> None:
    log: list[str] = []

    async def waiting(clock: VirtualClock) -> None:
        async with some(**limits).enter(connection, 1, log) as entered:
            assert entered == "connection"
            await backend().sleep(LONG)
        assert clock.now() == 1 + LONG + 1

    in_virtual_time(colour, waiting)
    assert log == ["connected", "disconnecting", "gone"]


@COLOURS
def test_a_manager_that_enters_too_slowly_exits(colour: str) -> None:
    log: list[str] = []

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(errors.AttemptTimeout):
            async with some(attempt_timeout=2, attempts=2).enter(connection, LONG, log):
                raise AssertionError
        assert clock.now() == 2 + 1 + 2

    in_virtual_time(colour, waiting)
    assert log == ["gone", "gone"]


@COLOURS
def test_an_error_of_the_body_is_raised_unchanged(colour: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        own = TimeoutError("mine")
        with pytest.raises(TimeoutError) as caught:
            async with some(timeout=2).enter(connection, 1, []):
                await backend().sleep(LONG)
                raise own
        assert caught.value is own

    in_virtual_time(colour, waiting)


@COLOURS
def test_nested_managers_have_a_limit_each(colour: str) -> None:
    log: list[str] = []

    async def waiting(clock: VirtualClock) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(5):
                await stack.enter_async_context(some(timeout=2).enter(connection, 1, log))
            with pytest.raises(errors.DeadlineExceeded):
                await stack.enter_async_context(some(timeout=2).enter(connection, LONG, log))
            assert clock.now() == 5 + 2
            await backend().sleep(LONG)
        assert clock.now() == 5 + 2 + LONG + 5

    in_virtual_time(colour, waiting)
    assert log == ["connected"] * 5 + ["gone"] + ["disconnecting", "gone"] * 5


@COLOURS
def test_a_deadline_limits_entering(colour: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        with deadline(2):
            with pytest.raises(errors.DeadlineExceeded) as caught:
                async with some().enter(connection, LONG, []):
                    raise AssertionError
            assert caught.value.report is not None
            assert caught.value.report.limit == "deadline"
        async with some().enter(connection, 1, []):
            pass
        assert clock.now() == 2 + 2

    in_virtual_time(colour, waiting)


def test_a_nursery_may_be_entered_under_a_limit() -> None:
    """A nursery has a cancel scope of its own, inside that of the limit."""

    async def waiting(clock: VirtualClock) -> list[str]:
        done: list[str] = []

        async def child() -> None:
            await trio.sleep(LONG)
            done.append("child")

        async with some(timeout=2).enter(trio.open_nursery) as nursery:
            nursery.start_soon(child)
            nursery.start_soon(child)
        assert clock.now() == LONG
        return done

    assert in_virtual_time("trio", waiting) == ["child", "child"]
