"""The timer shared by all limits of a loop: never early, no limit lost, nothing retained."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._runtime.asyncio_timer import MAX_STALE, Timer, TimerEntry
from redouble.testing import virtual_time
from tests.support.fakes import ASYNC, in_colour
from tests.support.limited_calls import LONG
from tests.support.virtual_time import unwaiting

LOOPS = pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])
TINY = 0.005  # really waited for

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)


def run(colour: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return in_colour(colour, lambda: None, main)


def timer() -> Timer:
    """Return the timer of the running loop."""
    own: Timer = vars(asyncio.get_running_loop())["_redouble_timer"]
    return own


def live(of: Timer) -> list[float]:
    """Return the moments of the limits that are in use."""
    return [moment for moment, _, cut in of.heap if cut._task is not None]


def check(of: Timer) -> None:
    """See that it will wake in time for the earliest, and keeps no more than it may."""
    moments = live(of)
    assert of.armed <= min(moments, default=inf)
    assert (of._handle() is None) == (of.armed == inf)
    assert of.stale == len(of.heap) - len(moments)
    assert len(of.heap) <= 2 * len(moments) + 2 * MAX_STALE + 2


async def limited(seconds: float, takes: float = LONG) -> bool:
    """Sleep under a limit; return True if it was reached."""
    with TimerEntry(seconds) as cut:
        await asyncio.sleep(takes)
    assert cut.cancel_called is cut.cancelled_caught
    return cut.cancelled_caught


# ---------------------------------------------------------------------------- in time


@LOOPS
def test_no_task_is_cancelled_early(colour: str) -> None:
    early: list[float] = []

    async def one(number: int) -> None:
        seconds = TINY * (number % 7 + 1) / 3
        began = monotonic()
        assert await limited(seconds)
        early.append(min(0.0, monotonic() - began - seconds))

    async def main() -> None:
        await asyncio.gather(*map(one, range(100)))

    run(colour, main)
    assert early == [0.0] * 100


@LOOPS
@pytest.mark.parametrize("order", [1, -1], ids=["rising", "falling"])
def test_limits_are_reached_in_order(colour: str, order: int) -> None:
    """Also if a later one is set first: then the timer is armed again."""
    reached: list[float] = []

    async def one(number: int) -> None:
        cut = TimerEntry(TINY * number)
        moment = next(moment for moment, _, own in timer().heap if own is cut)
        with cut:
            await asyncio.sleep(LONG)
        reached.append(moment)

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in [1, 2, 3, 4][::order]))

    run(colour, main)
    assert reached == sorted(reached)
    assert len(reached) == 4


@LOOPS
def test_no_time_at_all(colour: str) -> None:
    async def main() -> bool:
        return await limited(0)

    assert run(colour, main)


def test_no_limit_at_all() -> None:
    async def main() -> None:
        assert not await limited(inf, takes=0)
        assert not hasattr(asyncio.get_running_loop(), "_redouble_timer")

    asyncio.run(main())


def test_a_coroutine_driven_by_hand() -> None:
    """There is no task that could be cancelled, so nothing is cut."""

    async def main() -> None:
        with TimerEntry(0.0) as cut:
            pass
        assert not cut.cancel_called

    with pytest.raises(StopIteration):
        main().send(None)


@pytest.mark.parametrize("place", ["around", "inside"])
def test_virtual_time_reaches_every_limit_exactly(place: str) -> None:
    """Whatever the origin of the loop's clock: a rounding error must not lead to an endless wait."""

    async def main() -> None:
        with virtual_time() as clock:
            for sevenths in range(1, 100):
                before = clock.now()
                assert await limited(sevenths / 7)
                assert clock.now() - before == pytest.approx(sevenths / 7)

    if place == "inside":
        asyncio.run(main())
    else:
        with virtual_time():
            asyncio.run(main())


def test_a_limit_that_was_left_does_not_move_virtual_time() -> None:
    async def main(now: Callable[[], float]) -> float:
        assert not await limited(LONG, takes=1)
        await asyncio.sleep(0)
        return now()

    with virtual_time() as clock:
        assert asyncio.run(main(clock.now)) == 1


STARTS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20)).filter(lambda s: s[1] != s[2]),
    min_size=1,
    max_size=20,
)


@given(starts=STARTS)
def test_exactly_those_are_cut_that_take_longer(starts: list[tuple[int, int, int]]) -> None:
    """Random starts, limits and ends: every task ends as it should, and the invariants of the timer hold."""

    async def one(begins: int, seconds: int, takes: int) -> None:
        await asyncio.sleep(begins)
        assert await limited(seconds, takes) is (takes > seconds)
        assert asyncio.get_running_loop().time() == begins + min(seconds, takes)
        check(timer())

    async def main() -> None:
        await asyncio.gather(*(one(*start) for start in starts))
        assert live(timer()) == []

    with virtual_time():
        asyncio.run(main())


# ------------------------------------------------------------ the right task is cancelled


@LOOPS
def test_a_limit_that_was_left_cuts_nothing_later(colour: str) -> None:
    """The timer still has the moment; by then the task is somewhere else, under other limits or none."""

    async def main() -> None:
        for _ in range(20):
            assert not await limited(TINY / 10, takes=0)
        assert not await limited(LONG, takes=TINY)
        await asyncio.sleep(TINY)

    run(colour, main)


@LOOPS
def test_a_limit_that_is_left_in_the_turn_of_its_moment(colour: str) -> None:
    """Its cancellation was already scheduled, and must not affect what the task does next."""

    async def main() -> None:
        with TimerEntry(0.0) as cut:
            while any(own is cut for _, _, own in timer().heap):  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not cut.cancel_called

    run(colour, main)


def test_nothing_of_the_call_that_set_it_stays_with_the_timer() -> None:
    held: ContextVar[object] = ContextVar("held")

    class Big:
        """Something to be held."""

    async def first() -> ref[Big]:
        big = Big()
        held.set(big)
        assert not await limited(LONG, takes=0)
        return ref(big)

    async def main() -> None:
        big = await asyncio.create_task(first())
        await asyncio.sleep(0)
        assert timer()._handle() is not None
        gc.collect()
        assert big() is None

    asyncio.run(main())


@LOOPS
def test_those_that_were_left_among_many_that_were_not(colour: str) -> None:
    """They are kept as long as most are in use: looking for them would cost more."""
    many = 3 * MAX_STALE

    async def main() -> None:
        first = [TimerEntry(LONG + number) for number in range(2 * MAX_STALE)]
        others = [TimerEntry(LONG) for _ in range(many)]
        for cut in first[MAX_STALE // 2 :]:
            cut.__exit__(None, None, None)
        assert await limited(TINY)
        check(timer())
        assert timer().stale > MAX_STALE
        for cut in others + first:
            cut.__exit__(None, None, None)
        assert await limited(TINY)
        check(timer())
        assert live(timer()) == []

    run(colour, main)
