"""Virtual time under Trio: its own clock for tests is followed, and made to jump where it does not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from redouble import SYSTEM, Retry
from redouble.testing import Script, ok, virtual_time
from tests.support.virtual_time import unwaiting
from tests.testing.test_virtual_loop import HOUR, called
from tests.testing.test_virtual_shapes import AEVERY, EVERY

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

POLICY = Retry(backoff=[HOUR, HOUR], give_up_after=None)
REAL = r"^virtual_time\(\) cannot move Trio's real clock: write trio.run\(main, clock=trio.testing.Mock"


def mocked(main: Callable[[], Awaitable[Any]], clock: MockClock | None = None) -> Any:
    return trio.run(main, clock=clock or MockClock())


# ------------------------------------------------------------------------ its real clock


@pytest.mark.parametrize("shape", AEVERY)
@pytest.mark.parametrize("inside", [False, True])
def test_its_real_clock_cannot_be_moved(shape: str, inside: bool) -> None:
    async def main() -> object:
        return await AEVERY[shape](POLICY, Script("fail", ok()).aio)

    async def within() -> object:
        with virtual_time():
            return await main()

    if inside:
        with pytest.raises(RuntimeError, match=REAL):
            trio.run(within)
    else:
        with virtual_time(), pytest.raises(RuntimeError, match=REAL):
            trio.run(main)


def test_nor_can_it_by_any_other_way() -> None:
    async def main() -> None:
        for way in (clock.now, SYSTEM.now, SYSTEM.anow, lambda: clock.advance(1), lambda: SYSTEM.sleep(1)):
            with pytest.raises(RuntimeError, match=REAL):
                way()
        with pytest.raises(RuntimeError, match=REAL):
            await SYSTEM.asleep(1)
        with pytest.raises(RuntimeError, match=REAL):
            await Script(ok(takes=1)).aio()
        for shape in EVERY.values():
            with pytest.raises(RuntimeError, match=REAL):
                shape(POLICY, Script("fail", ok()))

    with virtual_time() as clock:
        trio.run(main)
    assert clock.now() == 0


def test_that_is_said_where_the_block_begins() -> None:
    async def main() -> object:
        with pytest.raises(RuntimeError, match=REAL), virtual_time():
            pytest.fail("it began")
        return await Retry(backoff=[0]).call(Script("fail", ok("done")).aio)

    assert trio.run(main) == "done"


# ------------------------------------------------------------------------ its clock for tests


def test_a_clock_that_stands_still_is_made_to_jump() -> None:
    mock = MockClock()
    with virtual_time() as clock:
        assert mocked(called, mock) == "done"
    assert (mock.autojump_threshold, clock.delays, clock.now()) == (0, [HOUR], HOUR)


def test_a_clock_that_moves_is_left_alone() -> None:
    """By its own speed, or by its own threshold."""
    fast, patient = MockClock(rate=1e9), MockClock(autojump_threshold=1e-6)
    for mock in (fast, patient):
        with virtual_time() as clock:
            assert mocked(called, mock) == "done"
        assert clock.delays == [HOUR]
        assert clock.now() >= HOUR
    assert (fast.autojump_threshold, patient.autojump_threshold) == (inf, 1e-6)


def test_runs_one_after_the_other_add_up() -> None:
    """With blocking calls between them; each run has a clock of its own, which begins at zero."""

    async def main() -> tuple[float, float]:
        before = SYSTEM.anow()
        assert await called() == "done"
        return before, SYSTEM.anow()

    with virtual_time() as clock:
        clock.advance(60)
        assert mocked(main) == (60, 60 + HOUR)
        assert POLICY.call(Script("fail", ok("done"))) == "done"
        assert mocked(main) == (60 + 2 * HOUR, 60 + 3 * HOUR)
        clock.advance(1)
        assert clock.now() == 61 + 3 * HOUR


def test_what_you_sleep_yourself_counts() -> None:
    """Before the first call of a policy, between calls, and after the last one."""

    async def main() -> list[float]:
        await trio.sleep(10)
        moments = [clock.now()]
        await called()
        await trio.sleep(10)
        moments.append(clock.now())
        await trio.sleep(10)
        return moments

    with virtual_time() as clock:
        assert mocked(main, MockClock(autojump_threshold=0)) == [10, 20 + HOUR]


def test_what_you_sleep_yourself_counts_from_the_block_on() -> None:
    async def main() -> float:
        await trio.sleep(5)
        with virtual_time() as clock:
            await trio.sleep(10)
            return clock.now()

    assert mocked(main, MockClock(autojump_threshold=0)) == 10


def test_its_clock_jumps_from_the_block_on() -> None:
    """Also for what sleeps there before the first call of a policy."""
    mock = MockClock()

    async def main() -> float:
        with virtual_time() as clock:
            assert mock.autojump_threshold == 0  # or the next line would never end
            await trio.sleep(10)
            return clock.now()

    assert mocked(main, mock) == 10


def test_the_clock_knows_at_the_end_what_was_slept_last() -> None:
    async def main() -> None:
        await called()
        await trio.sleep(10)

    with virtual_time() as clock:
        mocked(main)
        assert clock.now() == HOUR + 10


def test_its_timeouts_are_in_the_same_time() -> None:
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


def test_a_thread_of_its_own_waits_in_the_same_time() -> None:
    """Its context goes with it. What it waited is not lost when Trio's clock moves on."""

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


def test_a_block_in_a_block() -> None:
    async def main() -> None:
        await called()
        with virtual_time() as inner:
            await called()
            assert inner.now() == HOUR
        assert inner.delays == [HOUR]
        assert outer.now() == 2 * HOUR  # there is one clock of Trio's, and both follow it

    with virtual_time() as outer:
        mocked(main)
    assert outer.delays == [HOUR, HOUR]
