"""`AdaptiveConcurrency` at work, in virtual time: how its limit follows what calls take, in every colour.

Calls are let in at once by letting each make the next one; the innermost lets time pass for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, sqrt
from typing import Any

import pytest

from redouble import SYSTEM, AdaptiveConcurrency
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import ASYNC, always
from tests.support.virtual_time import at, unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

EVERY = pytest.mark.parametrize("place", ["sync", "thread", *(f"{colour} around" for colour in ASYNC)])
LONG = 1e9  # seconds until it is learned anew: not in these tests

Service = Callable[[int], float]  # what so many calls at once take


def flat(seconds: float) -> Service:
    return always(seconds)


def busy(places: int) -> Service:
    """Make a service that works on so many calls at once, half a second each, and lets others wait."""
    return lambda calls: 0.5 * max(1.0, calls / places)


def load(gate: AdaptiveConcurrency, calls: int, seconds: float) -> None:
    """Let so many calls in at once; all take so long."""

    def visit(more: int) -> None:
        if more:
            gate.call(visit, more - 1)
        else:
            SYSTEM.sleep(seconds)

    gate.call(visit, calls - 1)


async def aload(gate: AdaptiveConcurrency, calls: int, seconds: float) -> None:
    """Do the same in async code."""

    async def visit(more: int) -> None:
        if more:
            await gate.call(visit, more - 1)
        else:
            await SYSTEM.asleep(seconds)

    await gate.call(visit, calls - 1)


def limits(place: str, gate: AdaptiveConcurrency, *rounds: tuple[float, Service]) -> list[int]:
    """Let a share of the limit in at once, for a bit more than a second, in each round; tell the limits."""
    seen: list[int] = []

    def each(share: float, service: Service) -> tuple[int, float, int]:
        calls = max(1, int(gate.limit * share))
        seconds = service(calls)
        return calls, seconds, max(1, floor(1.0 / seconds))

    def blocking(clock: VirtualClock) -> None:
        for share, service in rounds:
            calls, seconds, times = each(share, service)
            for _ in range(times):
                load(gate, calls, seconds)
            seen.append(gate.limit)

    async def waiting(clock: VirtualClock) -> None:
        for share, service in rounds:
            calls, seconds, times = each(share, service)
            for _ in range(times):
                await aload(gate, calls, seconds)
            seen.append(gate.limit)

    at(place, blocking, waiting)
    assert gate.snapshot()["in_use"] == 0
    return seen


def made(relearn: float = LONG, **options: Any) -> AdaptiveConcurrency:
    """Make one in virtual time, which begins at 0; as if it had learned once already."""
    with virtual_time():
        gate = AdaptiveConcurrency(relearn=relearn, **options)
    gate._window._schedule_relearning(0.0)
    return gate


# ------------------------------------------------------------------------------- growth


@EVERY
def test_it_grows_as_long_as_calls_take_no_longer(place: str) -> None:
    expected, limit = list[int](), 20
    for _ in range(6):
        limit = min(150, floor(limit * 1.25 + sqrt(limit * 1.25)))
        expected.append(limit)
    assert expected[-2:] == [115, 150]
    assert limits(place, made(most=150), *[(1.0, flat(0.5))] * 6) == expected


@EVERY
@pytest.mark.parametrize(
    ("by", "expected"), [("gradient", [30, 43, 61]), ("vegas", [20, 26, 32]), ("aimd", [21, 22, 23])]
)
def test_it_grows_in_every_way(place: str, by: str, expected: list[int]) -> None:
    assert limits(place, made(by=by), *[(1.0, flat(0.25))] * 3) == expected


@EVERY
@pytest.mark.parametrize("by", ["gradient", "vegas", "aimd"])
def test_it_does_not_grow_when_few_are_under_way(place: str, by: str) -> None:
    assert limits(place, made(by=by), *[(0.45, flat(0.05))] * 4) == [20] * 4
    assert limits(place, made(by=by), *[(0.5, flat(0.05))] * 4)[-1] > 20


def test_few_calls_are_timed_while_there_is_room() -> None:
    """About sixteen in a window, which cannot raise the limit; and all, when there is hardly any."""
    gate, timed = made(most=20), list[int]()
    with virtual_time() as clock:
        for _ in range(4):
            for _ in range(1000):
                gate.call(int)
            timed.append(gate._window._calls)
            clock.advance(1.1)
        assert timed[0] == 1000
        assert all(12 <= seen <= 20 for seen in timed[1:])
        inside = [gate.admit(clock.now()) for _ in range(12)]
        for _ in range(100):
            gate.call(int)  # until one of them has seen that
        before = gate._window._calls
        for _ in range(100):
            gate.call(int)
        assert gate._window._calls - before == 100
        assert len(inside) == 12


def test_a_gate_made_before_virtual_time_obeys_it() -> None:
    gate = AdaptiveConcurrency(relearn=LONG)
    for _ in range(2):  # the second block begins before the first has ended
        before = gate.limit
        assert limits("sync", gate, *[(1.0, flat(0.25))] * 3)[-1] > before


# ----------------------------------------------------------------------------- shrinking


@EVERY
@pytest.mark.parametrize(
    ("by", "options", "expected"),
    [
        ("gradient", {}, [30, 43, 26, 16, 10]),  # 43 * 0.5 + sqrt(21.5), and so on
        ("vegas", {}, [20, 26, 25, 24, 23]),
        ("aimd", {"slow": 3}, [21, 22, 19, 17, 15]),
    ],
)
def test_it_shrinks_when_they_take_longer(
    place: str, by: str, options: dict[str, Any], expected: list[int]
) -> None:
    """A window later: that in which it begins still has calls from before."""
    slower: Sequence[tuple[float, Service]] = [(1.0, flat(5.0))] * 4
    assert limits(place, made(by=by, **options), (1.0, flat(0.5)), *slower) == expected


@EVERY
def test_it_is_never_less_than_the_least(place: str) -> None:
    gate = made(initial=20, least=12)
    assert limits(place, gate, (0.4, flat(0.1)), *[(1.0, flat(5.0))] * 4) == [20, 30, 18, 12, 12]


@EVERY
@pytest.mark.parametrize("initial", [12, 40, 150])
def test_it_settles_around_what_the_service_can_take(place: str, initial: int) -> None:
    """With a queue, for that to be seen; wherever it began. At first few come, and see what a call takes."""
    seen = limits(place, made(initial=initial), (0.05, flat(0.5)), *[(1.0, busy(40))] * 40)
    assert all(40 <= limit <= 80 for limit in seen[-20:])


def test_a_service_that_became_slower_is_not_taken_for_overloaded_for_ever() -> None:
    gate = made(relearn=30, most=100, random=Half())
    seen = limits("sync", gate, *[(1.0, flat(0.1))] * 3, *[(1.0, flat(1.0))] * 120)
    assert seen[:3] == [20, 30, 43]
    assert min(seen) < 5
    assert seen[-1] == 100


class Half:
    """A chance that is always even."""

    def random(self) -> float:
        return 0.5


def test_a_call_in_the_middle_of_setting_the_limit_says_nothing() -> None:
    """As a signal would make it, or the collector: here it is chance that calls."""
    calls: list[int] = []

    class Calls(Half):
        gate: AdaptiveConcurrency | None = None

        def random(self) -> float:
            if self.gate is not None:
                calls.append(self.gate.call(int))
            return super().random()

    chance = Calls()
    chance.gate = gate = made(relearn=2, random=chance)
    assert limits("sync", gate, *[(0.4, flat(1.1))] * 4) == [20] * 4
    assert calls == [0, 0]  # as often as it was learned anew
