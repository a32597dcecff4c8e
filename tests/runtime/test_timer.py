"""The timer of all limits of a loop: never early, no limit lost, nothing retained."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from time import monotonic
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._runtime.asyncio_timer import MAX_STALE, RepeatingTimerEntry, TimerEntry
from redouble.testing import virtual_time
from tests.support.drivers.limited_calls import LONG
from tests.support.fakes import run_async
from tests.support.runtime.timers import LOOPS, TINY, check, limited, live, timer
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


# --------------------------------------------------------------------------- accuracy


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

    run_async(colour, main)
    assert early == [0.0] * 100


@LOOPS
@pytest.mark.parametrize("order", [1, -1], ids=["rising", "falling"])
def test_limits_are_reached_in_order(colour: str, order: int) -> None:
    """Also if a later one is set first, so that the timer is armed again."""
    reached: list[float] = []

    async def one(number: int) -> None:
        cut = TimerEntry(TINY * number)
        moment = next(moment for moment, _, own in timer().heap if own is cut)
        with cut:
            await asyncio.sleep(LONG)
        reached.append(moment)

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in [1, 2, 3, 4][::order]))

    run_async(colour, main)
    assert reached == sorted(reached)
    assert len(reached) == 4


@pytest.mark.parametrize(("seconds", "armed_again"), [(9.0, False), (1.0, True)])
def test_an_entry_that_is_armed_again_arms_the_timer_only_if_it_is_the_earliest(
    seconds: float, armed_again: bool
) -> None:
    async def main() -> None:
        with RepeatingTimerEntry(7.0) as repeating, TimerEntry(5.0):
            before = timer().armed
            repeating.rearm(seconds)
            assert (timer().armed < before) is armed_again
            check(timer())

    with virtual_time():
        asyncio.run(main())


@LOOPS
def test_a_limit_of_zero_is_reached(colour: str) -> None:
    async def main() -> bool:
        return await limited(0)

    assert run_async(colour, main)


def test_an_infinite_limit_needs_no_timer() -> None:
    async def main() -> None:
        assert not await limited(inf, takes=0)
        assert not hasattr(asyncio.get_running_loop(), "_redouble_timer")

    asyncio.run(main())


def test_a_coroutine_driven_by_hand_is_not_cancelled() -> None:
    """There is no task to cancel."""

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


def test_an_exited_limit_does_not_advance_virtual_time() -> None:
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
def test_exactly_the_tasks_that_take_longer_are_cancelled(starts: list[tuple[int, int, int]]) -> None:
    """With random starts, limits and durations; and the invariants of the timer hold."""

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
def test_an_exited_limit_cancels_nothing_later(colour: str) -> None:
    """The timer still has its moment; by then the task runs under other limits, or none."""

    async def main() -> None:
        for _ in range(20):
            assert not await limited(TINY / 10, takes=0)
        assert not await limited(LONG, takes=TINY)
        await asyncio.sleep(TINY)

    run_async(colour, main)


@LOOPS
def test_a_limit_exited_in_the_iteration_of_its_moment_cancels_nothing(colour: str) -> None:
    """Its cancellation was already scheduled, and must not affect what the task does next."""

    async def main() -> None:
        with TimerEntry(0.0) as cut:
            while any(own is cut for _, _, own in timer().heap):  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not cut.cancel_called

    run_async(colour, main)


def test_the_timer_keeps_no_reference_to_the_context_of_a_call() -> None:
    held: ContextVar[object] = ContextVar("held")

    class Big:
        """An object to be weakly referenced."""

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
def test_exited_limits_are_kept_while_most_limits_are_in_use(colour: str) -> None:
    """Searching for them would cost more."""
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

    run_async(colour, main)
