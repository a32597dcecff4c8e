"""Limits, cancellation and results at the same moment, and operations that catch their cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from redouble import Retry, errors, report
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from tests.support.call_shapes import ASYNC_SHAPES, EVERY_ASYNC_SHAPE, AsyncShape, AsyncWork
from tests.support.drivers.limited_calls import (
    COLOURS,
    LIMIT_NAMES,
    LONG,
    SHAPES,
    LimitedCall,
    call_in_virtual_time,
    policy_of,
    swallowing,
    working,
)
from tests.support.fakes import Boom
from tests.support.virtual_time import in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

SWALLOWED = [name for name in EVERY_ASYNC_SHAPE if name != "enter"]
LIMITS = pytest.mark.parametrize("limit", ["timeout", "attempt_timeout", "work_timeout"])


def some(**options: Any) -> Retry:
    return policy_of(LimitedCall(), observed=False, **options)


# ------------------------------------------------ operations that catch their cancellation


@COLOURS
@LIMITS
@pytest.mark.parametrize("shape", SWALLOWED)
def test_an_operation_that_catches_the_cancellation_and_returns_is_late(
    colour: str, limit: str, shape: str
) -> None:
    limits: dict[str, Any] = {limit: 2}
    call = call_in_virtual_time(colour, EVERY_ASYNC_SHAPE[shape], swallowing("late"), **limits)
    assert (call.value, call.took) == ("late", 2)
    assert call.event_texts == [f"success 1 {LIMIT_NAMES[limit]}"]


@COLOURS
def test_a_late_success_is_marked_in_the_report(colour: str) -> None:
    async def outcome(policy: Retry, work: AsyncWork) -> object:
        async def coloured() -> object:
            return await work()

        return await policy.run(coloured)

    late: Any = call_in_virtual_time(colour, outcome, swallowing("late"), timeout=2).value
    assert (late.ok, late.value, late.report.limit, late.report.late) == (True, "late", "total", True)
    timely: Any = call_in_virtual_time(colour, outcome, working((1, "done")), timeout=2).value
    assert (timely.ok, timely.report.limit, timely.report.late) == (True, None, False)
    again: Any = call_in_virtual_time(
        colour, outcome, working((LONG, ""), (1, "done")), attempt_timeout=2
    ).value
    assert (again.ok, again.report.limit, again.report.late) == (True, None, False)


def test_asyncio_cancels_an_operation_that_continues_once_only() -> None:
    call = call_in_virtual_time(
        "asyncio", EVERY_ASYNC_SHAPE["call"], swallowing("late", waits=LONG), timeout=2
    )
    assert (call.value, call.took) == ("late", 2 + LONG)


@pytest.mark.parametrize("shape", EVERY_ASYNC_SHAPE)
def test_trio_cancels_an_operation_that_continues_again(shape: str) -> None:
    call = call_in_virtual_time("trio", EVERY_ASYNC_SHAPE[shape], swallowing("late", waits=LONG), timeout=2)
    assert type(call.error) is errors.DeadlineExceeded
    assert call.took == 2


@COLOURS
def test_a_manager_that_is_entered_late(colour: str) -> None:
    """On asyncio it stays entered. Trio would cancel the body, so there it is exited again."""
    call = call_in_virtual_time(colour, EVERY_ASYNC_SHAPE["enter"], swallowing("late"), timeout=2)
    assert call.took == 2
    if colour == "asyncio":
        assert (call.value, call.event_texts) == ("late", ["success 1 total"])
    else:
        assert type(call.error) is errors.DeadlineExceeded


@COLOURS
@SHAPES
def test_an_error_raised_on_cancellation_is_the_failure_of_the_attempt(
    colour: str, shape: AsyncShape
) -> None:
    """It is retried like any other failure."""
    boom = Boom("while cleaning up")
    call = call_in_virtual_time(colour, shape, swallowing(boom), attempt_timeout=2, attempts=2)
    assert (call.error, call.took) == (boom, 5)
    assert (call.report.attempts, call.report.reason, call.report.limit) == (2, "attempts", None)


@COLOURS
@SHAPES
def test_an_error_raised_on_cancellation_by_the_timeout_ends_the_call(colour: str, shape: AsyncShape) -> None:
    boom = Boom("while cleaning up")
    call = call_in_virtual_time(colour, shape, swallowing(boom), timeout=2)
    assert (call.error, call.took) == (boom, 2)
    assert (call.report.attempts, call.report.reason, call.report.limit) == (1, "timeout", "total")


@pytest.mark.parametrize("ending", ["cut", "late", "raise", "return", "fail"])
@pytest.mark.parametrize("before", [0, 1])
@SHAPES
def test_our_cancellation_requests_are_withdrawn(shape: AsyncShape, before: int, ending: str) -> None:
    """Only ours: earlier cancellation requests belong to other code."""
    works: dict[str, AsyncWork] = {
        "cut": working((LONG, "never")),
        "late": swallowing("late"),
        "raise": swallowing(Boom()),
        "return": working((1, "done")),
        "fail": working((1, Boom())),
    }

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(before):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
        with suppress(errors.DeadlineExceeded, Boom):
            await shape(some(timeout=2, attempts=1), works[ending])
        await asyncio.sleep(LONG)  # nothing is left that could cancel this
        return task.cancelling()

    assert in_virtual_time("asyncio", lambda _: main()) == before


# ---------------------------------------------------------------- the caller's cancellation


@SHAPES
@pytest.mark.parametrize("armed", ["before", "after"])
@pytest.mark.parametrize("moment", [1.0, 2.0, 2.5])
def test_the_callers_cancellation_beats_our_limit(shape: AsyncShape, moment: float, armed: str) -> None:
    """Before the limit, in the same loop iteration, and while the operation cleans up afterwards."""
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            await asyncio.sleep(1)
            cleaned.append("up")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(shape(some(timeout=2), work))
        if armed == "after":  # the timer of the limit was set first
            await asyncio.sleep(0)
        loop.call_at(moment, task.cancel, "the caller")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1

    in_virtual_time("asyncio", lambda _: main())
    assert cleaned == (["up"] if moment == 1 else [])


@SHAPES
@pytest.mark.parametrize("outer", [1.0, 2.0])
def test_an_asyncio_timeout_around_the_call_wins(shape: AsyncShape, outer: float) -> None:
    async def main(clock: VirtualClock) -> float:
        began = clock.now()
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(outer):
                await shape(some(timeout=2), working((LONG, "never")))
        assert not isinstance(caught.value, errors.RedoubleError)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return clock.now() - began

    assert in_virtual_time("asyncio", main) == outer


@SHAPES
@pytest.mark.parametrize("outer", [1.0, 2.0])
def test_a_trio_scope_around_the_call_wins(shape: AsyncShape, outer: float) -> None:
    async def main(clock: VirtualClock) -> float:
        began = clock.now()
        with trio.move_on_after(outer) as scope:
            await shape(some(timeout=2), working((LONG, "never")))
        assert scope.cancelled_caught
        return clock.now() - began

    assert in_virtual_time("trio", main) == outer


@SHAPES
def test_our_limit_applies_inside_a_longer_asyncio_timeout(shape: AsyncShape) -> None:
    async def main() -> None:
        with pytest.raises(errors.DeadlineExceeded):
            async with asyncio.timeout(3):
                await shape(some(timeout=2), working((LONG, "never")))

    in_virtual_time("asyncio", lambda _: main())


# ------------------------------------------------------------------------ the same moment


@pytest.mark.parametrize("shape", ASYNC_SHAPES)
@pytest.mark.parametrize("late", [0.0, 5e-10])
@pytest.mark.parametrize("first", ["limit", "result"])
@pytest.mark.parametrize("ending", ["done", Boom("lost")], ids=["returns", "raises"])
def test_an_operation_that_ends_in_the_iteration_of_its_limit_is_not_cancelled(
    shape: str, first: str, late: float, ending: object
) -> None:
    """Whichever of the two timers was set first."""

    async def main() -> object:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()

        def give() -> None:
            if isinstance(ending, Exception):
                answer.set_exception(ending)
            else:
                answer.set_result(ending)

        async def work() -> object:
            if first == "limit":
                loop.call_at(2 + late, give)
            return await answer

        if first == "result":
            loop.call_at(2 + late, give)
        try:
            return await ASYNC_SHAPES[shape](some(timeout=2), work)
        except Boom as error:
            reported = report(error)
            assert reported is not None
            assert (reported.reason, reported.limit) == ("timeout", "total")
            return error

    assert in_virtual_time("asyncio", lambda _: main()) is ending


@pytest.mark.stress
@pytest.mark.parametrize("colour", ["asyncio", "asyncio inside", "trio", "trio inside"])
@pytest.mark.parametrize("limits", [[2.0] * 1000, [1 + 0.1 * n for n in range(1000)]], ids=["same", "many"])
def test_a_thousand_concurrent_limits_are_exact(colour: str, limits: list[float]) -> None:
    """All at the same moment, or one after the other."""
    ended: list[tuple[float, float]] = []

    async def sleep_long() -> None:
        await backend().sleep(LONG)

    async def waiting(clock: VirtualClock) -> None:
        began = clock.now()

        async def one(limit: float) -> None:
            with pytest.raises(errors.DeadlineExceeded):
                await some(timeout=limit).call(sleep_long)
            ended.append((limit, clock.now() - began))

        await side_by_side(colour, [partial(one, limit) for limit in limits])

    in_virtual_time(colour, waiting)
    assert len(ended) == len(limits)
    assert all(moment == pytest.approx(limit) for limit, moment in ended)


async def side_by_side(colour: str, tasks: list[Callable[[], Awaitable[object]]]) -> None:
    if colour.startswith("trio"):
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(task)
    else:
        await asyncio.gather(*(task() for task in tasks))
