"""Limits in real time, with tasks inside an attempt, with clocks that jump and on suspended laptops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from redouble import Retry, errors
from redouble.testing import VirtualClock
from redouble.types import Event
from tests.support.call_shapes import EVERY_ASYNC_SHAPE, AsyncShape, AsyncWork
from tests.support.drivers.limited_calls import (
    LONG,
    SHAPES,
    call_in_real_time,
    call_in_virtual_time,
    swallowing,
    working,
)
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import ASYNC, Boom, Call, Script, Virtual, fail, ok
from tests.support.virtual_time import in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

TINY = 0.01  # really waited for
HOUR = 3600.0

# ------------------------------------------------------------------------- in real time


@SHAPES
@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("observed", [True, False])
def test_limits_hold_in_real_time(colour: str, shape: AsyncShape, observed: bool) -> None:
    call = call_in_real_time(colour, shape, working((LONG, "never")), observed=observed, timeout=TINY)
    assert type(call.error) is errors.DeadlineExceeded
    assert call.took >= TINY
    assert call.report.limit == "total"
    call = call_in_real_time(
        colour, shape, working((LONG, "never"), (0, "done")), observed=observed, attempt_timeout=TINY
    )
    assert (call.value, call.error) == ("done", None)
    call = call_in_real_time(
        colour, shape, swallowing(Boom()), observed=observed, attempt_timeout=TINY, attempts=2
    )
    assert isinstance(call.error, Boom)
    assert (call.report.attempts, call.report.limit) == (2, None)


# ---------------------------------------------------------------- tasks inside an attempt


async def awaited(work: AsyncWork) -> object:
    return await work()


def grouped(colour: str, *children: AsyncWork) -> AsyncWork:
    """Return an operation that runs these children as tasks."""

    async def work() -> object:
        if colour == "asyncio":
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(awaited(child))
        else:
            async with trio.open_nursery() as nursery:
                for child in children:
                    nursery.start_soon(child)
        return "done"

    return work


COLOURS = pytest.mark.parametrize("colour", ["asyncio", "trio", "bare"])


@COLOURS
@SHAPES
def test_the_tasks_of_an_attempt_are_cancelled_with_it(colour: str, shape: AsyncShape) -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await working((LONG, "never"))()
        finally:
            ended.append("child")

    call = call_in_virtual_time(colour, shape, grouped(colour, child, child), timeout=2)
    assert type(call.error) is errors.DeadlineExceeded
    assert (call.took, ended) == (2, ["child"] * 2)


@COLOURS
@SHAPES
def test_a_task_that_fails_while_it_is_cancelled(colour: str, shape: AsyncShape) -> None:
    """Its error is the failure of the attempt: it is retried, and raised in the end."""
    work = grouped(colour, swallowing(Boom("child")), working((LONG, "never")))
    call = call_in_virtual_time(colour, shape, work, attempt_timeout=2, attempts=2)
    assert is_group_of_boom(call.error)
    assert (call.took, call.report.attempts, call.report.reason) == (5, 2, "attempts")
    assert call.event_texts == ["failure 1", "retry 1", "failure 2", "give_up 2"]


def is_group_of_boom(error: object) -> bool:
    """Return True if the error is an exception group of one `Boom`."""
    members: tuple[object, ...] = getattr(error, "exceptions", ())
    return [type(member) for member in members] == [Boom]


@COLOURS
@SHAPES
def test_a_task_that_fails_is_a_failure_of_the_attempt(colour: str, shape: AsyncShape) -> None:
    work = grouped(colour, working((1, Boom("child"))), working((LONG, "never")))
    call = call_in_virtual_time(colour, shape, work, attempt_timeout=2, attempts=2)
    assert is_group_of_boom(call.error)
    assert (call.took, call.report.attempts, call.report.reason) == (3, 2, "attempts")


@COLOURS
@SHAPES
def test_a_task_that_fails_at_the_moment_of_the_limit(colour: str, shape: AsyncShape) -> None:
    """Either may win, and no cancellation is left over for the next attempt."""
    broken = grouped(colour, working((2, Boom("child"))), working((LONG, "never")))
    works = [broken, working((1, "done"))]

    async def work() -> object:
        return await works.pop(0)()

    call = call_in_virtual_time(colour, shape, work, attempt_timeout=2)
    assert (call.value, call.took) == ("done", 4)
    assert call.event_texts[-1] == "success 2"


@COLOURS
def test_calls_in_the_tasks_of_an_attempt_have_limits_of_their_own(colour: str) -> None:
    inner = Retry(on=Exception, attempt_timeout=1, backoff=[0.5], attempts=None, timeout=60)

    async def child() -> object:
        return await inner.call(working((LONG, "never"), (0.25, "done")))

    call = call_in_virtual_time(colour, around, grouped(colour, *[child] * 9), attempt_timeout=2)
    assert (call.value, call.took) == ("done", 1.75)
    call = call_in_virtual_time(
        colour, around, grouped(colour, *[child] * 9), attempt_timeout=1.6, attempts=1
    )
    assert type(call.error) is errors.AttemptTimeout
    assert call.took == 1.6


async def around(policy: Retry, work: AsyncWork) -> object:
    return await policy(work)()


# -------------------------------------------------------------------------- other clocks


JUMPS: list[tuple[Script, dict[str, Any], Call]] = [
    # an hour forwards: the limit has passed, but a result is a result
    ([ok("done", takes=HOUR)], {"timeout": 10}, Call("done", attempts=1)),
    ([fail(takes=HOUR)], {"timeout": 10}, Call(raises=Boom, reason="timeout", limit="total", attempts=1)),
    ([fail(takes=HOUR)], {"work_timeout": 10}, Call(raises=Boom, reason="work_timeout", limit="work")),
    # an hour back: time counts as standing still, and no limit is extended
    ([fail(takes=-HOUR), ok("done")], {"timeout": 10}, Call("done", attempts=2, sleeps=[1])),
    (
        [fail(takes=-HOUR)] * 9,
        {"timeout": 10, "attempts": 3},
        Call(raises=Boom, reason="attempts", attempts=3),
    ),
    (
        [fail(takes=-HOUR)],
        {"timeout": 10, "attempts": None},
        Call(raises=Boom, reason="timeout", limit="total", attempts=10),
    ),
    (
        [fail(takes=-HOUR), fail(takes=2 * HOUR)],
        {"timeout": 10},
        Call(raises=Boom, reason="timeout", attempts=2),
    ),
]


@pytest.mark.parametrize(("script", "options", "expected"), JUMPS)
def test_limits_hold_when_the_clock_jumps(
    drive: Drive, script: Script, options: dict[str, Any], expected: Call
) -> None:
    assert drive(script, backoff=[1] * 99, give_up_after=None, **options) == expected


class Suspended(Virtual):
    """The clock of a laptop that is closed during every wait, and opened an hour later."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.time += HOUR


@pytest.mark.parametrize("limit", ["timeout", "give_up_after"])
def test_a_laptop_is_suspended_during_a_delay(drive: Drive, limit: str) -> None:
    """The next attempt would be too late and does not begin; the last error is raised."""
    limits: dict[str, Any] = {"give_up_after": None, limit: 10}
    name = "total" if limit == "timeout" else limit
    expected = Call(raises=Boom, reason="timeout", limit=name, attempts=1, sleeps=[1])
    assert drive(["fail", ok()], backoff=[1], clock=Suspended, **limits) == expected
    wrapped = Call(raises=errors.DeadlineExceeded, reason="timeout", limit=name, attempts=1, sleeps=[1])
    assert drive(["fail", ok()], backoff=[1], clock=Suspended, wrap=True, **limits) == wrapped


def test_a_suspended_laptop_does_not_count_as_work(drive: Drive) -> None:
    expected = Call("done", attempts=2, sleeps=[1])
    limits: dict[str, Any] = {"work_timeout": 10, "give_up_after": None}
    assert drive(["fail", ok("done")], backoff=[1], clock=Suspended, **limits) == expected


@SHAPES
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_limit_that_passes_while_the_loop_is_blocked(colour: str, shape: AsyncShape) -> None:
    """If the operation then returns, the call succeeds; if it awaits, it is cancelled."""

    async def waiting(clock: VirtualClock) -> None:
        async def work() -> str:
            clock.advance(HOUR)
            return "done"

        assert await shape(Retry(timeout=2, give_up_after=None), work) == "done"

        async def waits() -> None:
            clock.advance(HOUR)
            await working((LONG, "never"))()

        with pytest.raises(errors.DeadlineExceeded):
            await shape(Retry(timeout=2, give_up_after=None), waits)
        assert clock.now() == 2 * HOUR

    in_virtual_time(colour, waiting)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize("shape", ["run", "call", "decorator", "loop", "enter"])
@pytest.mark.parametrize("limit", ["timeout", "attempt_timeout", "work_timeout"])
def test_an_operation_that_blocks_past_the_limit_is_late(colour: str, shape: str, limit: str) -> None:
    """It could not be cancelled, because it never awaited."""
    limits_reported: list[str] = []

    async def waiting(clock: VirtualClock) -> None:
        async def work() -> str:
            clock.advance(takes.pop())
            return "done"

        takes = [1.0, HOUR]
        policy = Retry(give_up_after=None, on_success=record_limit, **limits)
        for _ in range(2):
            assert await EVERY_ASYNC_SHAPE[shape](policy, work) == "done"

    def record_limit(event: Event) -> None:
        limits_reported.append(str(event.limit))

    limits: dict[str, Any] = {limit: 2}
    in_virtual_time(colour, waiting)
    assert limits_reported == [
        {"timeout": "total", "attempt_timeout": "attempt", "work_timeout": "work"}[limit],
        "None",
    ]
