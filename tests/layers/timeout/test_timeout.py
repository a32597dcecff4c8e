"""`Timeout`: a limit as a layer, of async functions, and of streams until their first item."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from redouble import SYSTEM, Timeout, Worker, errors
from redouble._runtime.backend import backend
from redouble.testing import Script, VirtualClock, fail, ok, virtual_time
from tests.support.drivers.stuck_operations import SOON
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.virtual_time import HOUR, LOOP_PLACES, in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


# ----------------------------------------------------------------------------- a value


def test_a_timeout_is_a_value() -> None:
    assert Timeout(2) == Timeout(2.0) == Timeout(timedelta(seconds=2)) != Timeout(3)
    assert Timeout(2) != Timeout(2, worker=Worker()) == Timeout(2, worker=Worker())
    assert len({Timeout(2), Timeout(timedelta(seconds=2)), Timeout(2, Worker())}) == 2
    assert repr(Timeout(timedelta(milliseconds=1500))) == "Timeout(seconds=1.5, worker=None)"
    assert replace(Timeout(2), seconds=3) == Timeout(3)
    for same in (copy.deepcopy(Timeout(2, Worker())), pickle.loads(pickle.dumps(Timeout(2, Worker())))):
        assert same == Timeout(2, Worker())


def test_a_timeout_does_not_change() -> None:
    limit: Any = Timeout(2)
    with pytest.raises(FrozenInstanceError):
        limit.seconds = 3


@pytest.mark.parametrize("wrong", [None, "2s", True, [2]])
def test_a_limit_of_a_wrong_type_is_reported(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^Timeout seconds=.*: write seconds as a number, or a timedelta"):
        Timeout(wrong)


@pytest.mark.parametrize("wrong", [-1, nan, inf, timedelta(seconds=-1), 10**400])
def test_a_limit_with_a_wrong_value_is_reported(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^Timeout seconds.* write a (finite )?number of seconds"):
        Timeout(wrong)


@pytest.mark.parametrize("zero", [0, 0.0, timedelta()])
def test_a_limit_of_zero_is_reported(zero: Any) -> None:
    with pytest.raises(ValueError, match=r"^Timeout\(0\): no call could succeed; write more"):
        Timeout(zero)


@pytest.mark.parametrize("wrong", [3, "thread", Worker, True])
def test_a_wrong_worker_is_reported(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^Timeout worker=.*: write Worker\(\), or Worker"):
        Timeout(1, worker=wrong)


# ----------------------------------------------------------------------- async functions


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_call_that_takes_longer_is_cancelled(place: str) -> None:
    ended: list[str] = []

    async def fetch() -> None:
        try:
            await SYSTEM.asleep(HOUR)
        finally:
            ended.append("cancelled")

    async def waiting(clock: VirtualClock) -> float:
        with pytest.raises(errors.AttemptTimeout, match=r"fetch took longer than 2 s$") as caught:
            await Timeout(2).call(fetch)
        assert (caught.value.limit, caught.value.seconds) == ("attempt", 2)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.__cause__ is None
        return clock.now()

    assert in_virtual_time(place, waiting) == 2
    assert ended == ["cancelled"]


@pytest.mark.parametrize("colour", ASYNC)
def test_a_call_that_takes_longer_is_cancelled_in_real_time(colour: str) -> None:
    async def for_ever() -> None:
        await backend().sleep(1e6)

    with pytest.raises(errors.AttemptTimeout):
        in_colour(colour, lambda: None, lambda: Timeout(SOON).call(for_ever))


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_call_in_time_returns_its_result_or_raises_its_error(place: str) -> None:
    own = TimeoutError("its own")

    async def waiting(clock: VirtualClock) -> float:
        assert await Timeout(2).call(Script(ok(3, takes=1)).aio) == 3
        with pytest.raises(TimeoutError) as caught:
            await Timeout(2).call(Script(fail(own, takes=1)).aio)
        assert caught.value is own
        await SYSTEM.asleep(HOUR)  # nothing is cancelled afterwards
        return clock.now()

    assert in_virtual_time(place, waiting) == HOUR + 2


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_function_that_swallows_the_cancellation_keeps_its_outcome(place: str) -> None:
    """Its result is returned, and its error is raised."""

    async def stubborn(end: Exception | None) -> str:
        try:
            await SYSTEM.asleep(HOUR)
        except BaseException:
            if end is not None:
                raise end from None
        return "late"

    async def waiting(_: VirtualClock) -> None:
        assert await Timeout(2).call(stubborn, None) == "late"
        with pytest.raises(Boom):
            await Timeout(2).call(stubborn, Boom())

    in_virtual_time(place, waiting)


def test_a_cancellation_by_the_caller_is_not_a_timeout() -> None:
    async def main() -> bool:
        with virtual_time():
            task = asyncio.create_task(Timeout(2).call(Script(ok(takes=HOUR)).aio))
            asyncio.get_running_loop().call_later(2, task.cancel)
            await asyncio.wait([task])
            return task.cancelled()

    assert asyncio.run(main())


# -------------------------------------------------------------------------- async streams


async def items(*delays: float) -> AsyncIterator[int]:
    for number, delay in enumerate(delays):
        await SYSTEM.asleep(delay)
        yield number


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_stream_has_to_yield_its_first_item_in_time(place: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(errors.AttemptTimeout, match="items took longer than 2 s"):
            await anext(Timeout(2)(items)(3))
        assert clock.now() == 2

    in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_further_items_are_not_limited(place: str) -> None:
    async def waiting(clock: VirtualClock) -> float:
        stream = Timeout(2)(items)(1, HOUR, 5)
        await SYSTEM.asleep(HOUR)  # the time starts when the first item is requested
        assert [item async for item in stream] == [0, 1, 2]
        assert [item async for item in Timeout(2).call(items)] == []
        return clock.now()

    assert in_virtual_time(place, waiting) == 2 * HOUR + 6


def test_a_stream_that_timed_out_is_closed() -> None:
    closed: list[str] = []

    @Timeout(2)
    async def stream() -> AsyncIterator[int]:
        try:
            await SYSTEM.asleep(HOUR)
            yield 1
        finally:
            closed.append("stream")

    async def main() -> None:
        with virtual_time(), pytest.raises(errors.AttemptTimeout):
            async for _ in stream():
                pytest.fail("an item")
        assert closed == ["stream"]

    asyncio.run(main())


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_stream_ends_as_without_a_timeout(place: str) -> None:
    """Whether it fails, is closed, or handles an error that is thrown into it."""
    closed: list[str] = []

    @Timeout(2)
    async def stream(end: Exception | None) -> AsyncGenerator[int]:
        try:
            yield 1
            if end is not None:
                raise end
        except KeyError:
            yield 2
        finally:
            closed.append("stream")

    async def waiting(_: VirtualClock) -> None:
        failing, thrown, left = stream(Boom()), stream(None), stream(None)
        with pytest.raises(Boom):
            assert [item async for item in failing] == []
        assert [await anext(thrown), await thrown.athrow(KeyError())] == [1, 2]
        with pytest.raises(Boom):
            await thrown.athrow(Boom())
        assert await anext(left) == 1
        await left.aclose()

    in_virtual_time(place, waiting)
    assert closed == ["stream"] * 3


def test_wrong_arguments_of_a_stream_are_reported_at_once() -> None:
    fn: Any = Timeout(2)(items)
    with pytest.raises(TypeError, match="size"):
        fn(size=3)
