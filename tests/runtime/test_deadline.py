"""Deadlines: what `remaining` returns, invalid values, and one object entered several times."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
import trio
import trio.testing

from redouble import deadline, remaining
from redouble._runtime.ambient import ambient
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import COLOURS, Boom, in_colour
from tests.support.virtual_time import PLACES, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

HOUR = 3600.0


# -------------------------------------------------------------------------- remaining


@pytest.mark.parametrize("place", PLACES)
def test_remaining_counts_down_to_zero(place: str) -> None:
    def blocking(clock: VirtualClock) -> list[object]:
        seen: list[object] = [remaining(), remaining(7), remaining("none")]
        with deadline(10):
            for step in (0, 4, 6, 1):
                clock.advance(step)
                seen += [remaining(), remaining("none")]
        return [*seen, remaining()]

    async def waiting(clock: VirtualClock) -> list[object]:
        return blocking(clock)

    counted = [10, 10, 6, 6, 0, 0, 0, 0]
    assert at(place, blocking, waiting) == [None, 7, "none", *counted, None]


@pytest.mark.parametrize("place", PLACES)
def test_the_earliest_of_nested_deadlines_counts(place: str) -> None:
    """A longer one inside extends nothing."""

    def blocking(clock: VirtualClock) -> list[float | None]:
        with deadline(10):
            seen = [remaining()]
            with deadline(3):
                seen.append(remaining())
                with deadline(60):
                    seen.append(remaining())
                clock.advance(1)
                seen.append(remaining())
            seen.append(remaining())
            with deadline(60):
                seen.append(remaining())
        return seen

    async def waiting(clock: VirtualClock) -> list[float | None]:
        return blocking(clock)

    assert at(place, blocking, waiting) == [10, 3, 3, 2, 9, 9]


@pytest.mark.parametrize("colour", COLOURS)
def test_remaining_only_decreases_in_real_time(colour: str) -> None:
    def blocking() -> list[float]:
        with deadline(timedelta(hours=1)):
            return [remaining(0.0) for _ in range(100)]

    async def waiting() -> list[float]:
        return blocking()

    seen = in_colour(colour, blocking, waiting)
    assert seen == sorted(seen, reverse=True)
    assert 0 < seen[-1] <= seen[0] <= HOUR


def test_a_deadline_of_a_trio_run_uses_the_clock_of_that_run() -> None:
    """Also in other threads, in which Trio does not run."""

    async def main() -> list[float | None]:
        with deadline(10):
            await trio.sleep(4)
            return [remaining(), await trio.to_thread.run_sync(remaining)]

    assert trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)) == [6, 6]


# ---------------------------------------------------------------------------- wrong values


@pytest.mark.parametrize("wrong", [None, "2s", True, [1], 1j])
def test_wrong_types_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^deadline=.*: write seconds as a number, or a timedelta"):
        deadline(wrong)


@pytest.mark.parametrize("wrong", [-1, -0.001, nan, inf, -inf, timedelta(seconds=-1), 10**400])
def test_wrong_values_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^deadline.* write a (finite )?number of seconds"):
        deadline(wrong)


def test_async_with_is_refused() -> None:
    async def main() -> None:
        block: Any = deadline(1)
        async with block:
            pytest.fail("entered")

    with pytest.raises(TypeError, match=r"write `with deadline\(\.\.\.\)` also in async code"):
        asyncio.run(main())


def test_exiting_a_deadline_that_was_never_entered_raises() -> None:
    with pytest.raises(RuntimeError, match="left more often than it was entered"):
        deadline(1).__exit__(None, None, None)
    assert not ambient.active


# ------------------------------------------------------------------------------ one object


def test_one_deadline_is_reusable_and_reentrant() -> None:
    block = deadline(10)
    with virtual_time() as clock:
        with block:
            clock.advance(4)
            with block:
                assert remaining() == 6
            assert remaining() == 6
        with block:
            assert remaining() == 10
        assert remaining() is None


def test_one_deadline_in_many_tasks() -> None:
    block = deadline(10)

    async def one(delay: float) -> float | None:
        await asyncio.sleep(delay)
        with block:
            await asyncio.sleep(delay)
            return remaining()

    async def main() -> list[float | None]:
        with virtual_time():
            return await asyncio.gather(*map(one, (3, 1, 2)))

    assert asyncio.run(main()) == [7, 9, 8]


def test_one_deadline_in_many_threads() -> None:
    block, wrong, barrier = deadline(HOUR), list[object](), threading.Barrier(8)

    def one() -> None:
        for _ in range(200):
            barrier.wait()
            with block:
                if remaining() is None:
                    wrong.append("inside")
            if remaining() is not None:
                wrong.append("outside")

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_ambient_flag_is_set_inside_a_deadline() -> None:
    with deadline(1):
        assert ambient.active
        with pytest.raises(Boom), deadline(2):
            raise Boom
        assert ambient.active
    assert not ambient.active
