"""Virtual time under Trio: its mock clock is used, and made to jump if it does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from redouble import SYSTEM, Retry
from redouble.testing import Script, ok, virtual_time
from tests.support.call_shapes import ASYNC_CLOSING_SHAPES, CLOSING_SHAPES
from tests.support.runtime.virtual_loops import hour_long_call
from tests.support.virtual_time import HOUR, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

POLICY = Retry(backoff=[HOUR, HOUR], give_up_after=None)
REAL = r"^virtual_time\(\) cannot move Trio's real clock: write trio.run\(main, clock=trio.testing.Mock"


def mocked(main: Callable[[], Awaitable[Any]], clock: MockClock | None = None) -> Any:
    return trio.run(main, clock=clock or MockClock())


# ------------------------------------------------------------------- Trio's real clock


@pytest.mark.parametrize("shape", ASYNC_CLOSING_SHAPES)
@pytest.mark.parametrize("inside", [False, True])
def test_calls_under_the_real_clock_of_trio_raise(shape: str, inside: bool) -> None:
    async def main() -> object:
        return await ASYNC_CLOSING_SHAPES[shape](POLICY, Script("fail", ok()).aio)

    async def within() -> object:
        with virtual_time():
            return await main()

    if inside:
        with pytest.raises(RuntimeError, match=REAL):
            trio.run(within)
    else:
        with virtual_time(), pytest.raises(RuntimeError, match=REAL):
            trio.run(main)


def test_reads_and_sleeps_under_the_real_clock_of_trio_raise() -> None:
    async def main() -> None:
        for way in (clock.now, SYSTEM.now, SYSTEM.anow, lambda: clock.advance(1), lambda: SYSTEM.sleep(1)):
            with pytest.raises(RuntimeError, match=REAL):
                way()
        with pytest.raises(RuntimeError, match=REAL):
            await SYSTEM.asleep(1)
        with pytest.raises(RuntimeError, match=REAL):
            await Script(ok(takes=1)).aio()
        for shape in CLOSING_SHAPES.values():
            with pytest.raises(RuntimeError, match=REAL):
                shape(POLICY, Script("fail", ok()))

    with virtual_time() as clock:
        trio.run(main)
    assert clock.now() == 0


def test_a_block_under_the_real_clock_of_trio_raises_at_its_start() -> None:
    async def main() -> object:
        with pytest.raises(RuntimeError, match=REAL), virtual_time():
            pytest.fail("it began")
        return await Retry(backoff=[0]).call(Script("fail", ok("done")).aio)

    assert trio.run(main) == "done"


# ------------------------------------------------------------------- Trio's mock clock


def test_a_mock_clock_that_stands_still_is_made_to_jump() -> None:
    mock = MockClock()
    with virtual_time() as clock:
        assert mocked(hour_long_call, mock) == "done"
    assert (mock.autojump_threshold, clock.delays, clock.now()) == (0, [HOUR], HOUR)


def test_a_mock_clock_that_moves_is_not_changed() -> None:
    """It has its own rate, or its own threshold."""
    fast, patient = MockClock(rate=1e9), MockClock(autojump_threshold=1e-6)
    for mock in (fast, patient):
        with virtual_time() as clock:
            assert mocked(hour_long_call, mock) == "done"
        assert clock.delays == [HOUR]
        assert clock.now() >= HOUR
    assert (fast.autojump_threshold, patient.autojump_threshold) == (inf, 1e-6)


def test_the_times_of_consecutive_runs_add_up() -> None:
    """With blocking calls between them; each run has its own clock, which begins at zero."""

    async def main() -> tuple[float, float]:
        before = SYSTEM.anow()
        assert await hour_long_call() == "done"
        return before, SYSTEM.anow()

    with virtual_time() as clock:
        clock.advance(60)
        assert mocked(main) == (60, 60 + HOUR)
        assert POLICY.call(Script("fail", ok("done"))) == "done"
        assert mocked(main) == (60 + 2 * HOUR, 60 + 3 * HOUR)
        clock.advance(1)
        assert clock.now() == 61 + 3 * HOUR


def test_sleeps_of_trio_count() -> None:
    """Before the first call of a policy, between calls, and after the last one."""

    async def main() -> list[float]:
        await trio.sleep(10)
        moments = [clock.now()]
        await hour_long_call()
        await trio.sleep(10)
        moments.append(clock.now())
        await trio.sleep(10)
        return moments

    with virtual_time() as clock:
        assert mocked(main, MockClock(autojump_threshold=0)) == [10, 20 + HOUR]


def test_sleeps_of_trio_count_from_the_start_of_the_block() -> None:
    async def main() -> float:
        await trio.sleep(5)
        with virtual_time() as clock:
            await trio.sleep(10)
            return clock.now()

    assert mocked(main, MockClock(autojump_threshold=0)) == 10


def test_the_mock_clock_jumps_from_the_start_of_the_block() -> None:
    """Also for sleeps before the first call of a policy."""
    mock = MockClock()

    async def main() -> float:
        with virtual_time() as clock:
            assert mock.autojump_threshold == 0  # otherwise the next line would never end
            await trio.sleep(10)
            return clock.now()

    assert mocked(main, mock) == 10


def test_the_clock_includes_the_last_sleep_of_the_run() -> None:
    async def main() -> None:
        await hour_long_call()
        await trio.sleep(10)

    with virtual_time() as clock:
        mocked(main)
        assert clock.now() == HOUR + 10


def test_timeouts_of_trio_are_virtual() -> None:
    async def main() -> tuple[bool, float]:
        with virtual_time() as clock:
            before = clock.now()
            with trio.move_on_after(1.5 * HOUR) as scope:
                await POLICY.call(Script("fail", "fail", ok()).aio)
            return scope.cancelled_caught, clock.now() - before

    assert mocked(main) == (True, 1.5 * HOUR)


def test_advance_wakes_sleepers() -> None:
    async def main() -> tuple[float, float]:
        with virtual_time() as clock:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, HOUR)
                await trio.testing.wait_all_tasks_blocked()
                clock.advance(2 * HOUR)
            return clock.now(), trio.current_time()

    assert mocked(main) == (2 * HOUR, 2 * HOUR)


def test_delays_in_a_thread_of_trio_are_virtual() -> None:
    """The thread has a copy of the context. Its delays are not lost when Trio's clock moves on."""

    async def main() -> list[float]:
        moments = [clock.now()]
        await trio.to_thread.run_sync(POLICY.call, Script("fail", ok()))
        moments.append(clock.now())
        await trio.sleep(10)
        moments.append(clock.now())
        return moments

    with virtual_time() as clock:
        assert mocked(main) == [0, HOUR, HOUR + 10]
    assert clock.delays == [HOUR]


def test_nested_blocks_follow_one_clock() -> None:
    async def main() -> None:
        await hour_long_call()
        with virtual_time() as inner:
            await hour_long_call()
            assert inner.now() == HOUR
        assert inner.delays == [HOUR]
        assert outer.now() == 2 * HOUR  # Trio has one clock, and both follow it

    with virtual_time() as outer:
        mocked(main)
    assert outer.delays == [HOUR, HOUR]
