"""The limit of `AdaptiveConcurrency` follows the latency of calls: in virtual time, in every colour.

Concurrent calls are nested: each makes the next one, and the innermost sleeps for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, sqrt
from typing import Any

import pytest

from redouble import SYSTEM, AdaptiveConcurrency
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import always
from tests.support.layers.limits.adaptive_concurrency import LONG, learned_gate
from tests.support.virtual_time import AROUND_LOOP, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


Service = Callable[[int], float]  # maps the number of concurrent calls to their latency


def flat(seconds: float) -> Service:
    return always(seconds)


def busy(capacity: int) -> Service:
    """Return a service that runs ``capacity`` calls at once, half a second each; further calls queue."""
    return lambda calls: 0.5 * max(1.0, calls / capacity)


def load(gate: AdaptiveConcurrency, calls: int, seconds: float) -> None:
    """Make ``calls`` concurrent calls that take ``seconds`` each."""

    def nested(more: int) -> None:
        if more:
            gate.call(nested, more - 1)
        else:
            SYSTEM.sleep(seconds)

    gate.call(nested, calls - 1)


async def aload(gate: AdaptiveConcurrency, calls: int, seconds: float) -> None:
    """Do the same in async code."""

    async def nested(more: int) -> None:
        if more:
            await gate.call(nested, more - 1)
        else:
            await SYSTEM.asleep(seconds)

    await gate.call(nested, calls - 1)


def limits(place: str, gate: AdaptiveConcurrency, *rounds: tuple[float, Service]) -> list[int]:
    """Run rounds of concurrent calls, each a share of the limit, for about a second; return the limits."""
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


# ------------------------------------------------------------------------------- growth


@AROUND_LOOP
def test_the_limit_grows_while_the_latency_stays_the_same(place: str) -> None:
    expected, limit = list[int](), 20
    for _ in range(6):
        limit = min(150, floor(limit * 1.25 + sqrt(limit * 1.25)))
        expected.append(limit)
    assert expected[-2:] == [115, 150]
    assert limits(place, learned_gate(most=150), *[(1.0, flat(0.5))] * 6) == expected


@AROUND_LOOP
@pytest.mark.parametrize(
    ("by", "expected"), [("gradient", [30, 43, 61]), ("vegas", [20, 26, 32]), ("aimd", [21, 22, 23])]
)
def test_every_algorithm_raises_the_limit(place: str, by: str, expected: list[int]) -> None:
    assert limits(place, learned_gate(by=by), *[(1.0, flat(0.25))] * 3) == expected


@AROUND_LOOP
@pytest.mark.parametrize("by", ["gradient", "vegas", "aimd"])
def test_the_limit_does_not_grow_while_few_calls_are_in_flight(place: str, by: str) -> None:
    assert limits(place, learned_gate(by=by), *[(0.45, flat(0.05))] * 4) == [20] * 4
    assert limits(place, learned_gate(by=by), *[(0.5, flat(0.05))] * 4)[-1] > 20


def test_few_calls_are_timed_while_few_are_in_flight() -> None:
    """About sixteen in a window, since they cannot raise the limit; all, while many are in flight."""
    gate, timed = learned_gate(most=20), list[int]()
    with virtual_time() as clock:
        for _ in range(4):
            for _ in range(1000):
                gate.call(int)
            timed.append(gate._window._calls)
            clock.advance(1.1)
        assert timed[0] == 1000
        assert all(12 <= seen <= 20 for seen in timed[1:])
        tickets = [gate.admit(clock.now()) for _ in range(12)]
        for _ in range(100):
            gate.call(int)  # until a timed call has observed the 12 in flight
        before = gate._window._calls
        for _ in range(100):
            gate.call(int)
        assert gate._window._calls - before == 100
        assert len(tickets) == 12


def test_a_gate_made_before_virtual_time_obeys_it() -> None:
    gate = AdaptiveConcurrency(relearn=LONG)
    for _ in range(2):  # the second block's time begins at 0 again
        before = gate.limit
        assert limits("sync", gate, *[(1.0, flat(0.25))] * 3)[-1] > before


# ----------------------------------------------------------------------------- shrinking


@AROUND_LOOP
@pytest.mark.parametrize(
    ("by", "options", "expected"),
    [
        ("gradient", {}, [30, 43, 26, 16, 10]),  # 43 * 0.5 + sqrt(21.5), and so on
        ("vegas", {}, [20, 26, 25, 24, 23]),
        ("aimd", {"slow": 3}, [21, 22, 19, 17, 15]),
    ],
)
def test_the_limit_shrinks_when_the_latency_grows(
    place: str, by: str, options: dict[str, Any], expected: list[int]
) -> None:
    """One window later, since the window in which the latency grows still has calls from before."""
    slower: Sequence[tuple[float, Service]] = [(1.0, flat(5.0))] * 4
    assert limits(place, learned_gate(by=by, **options), (1.0, flat(0.5)), *slower) == expected


@AROUND_LOOP
def test_the_limit_never_falls_below_the_least(place: str) -> None:
    gate = learned_gate(initial=20, least=12)
    assert limits(place, gate, (0.4, flat(0.1)), *[(1.0, flat(5.0))] * 4) == [20, 30, 18, 12, 12]


@AROUND_LOOP
@pytest.mark.parametrize("initial", [12, 40, 150])
def test_the_limit_settles_near_the_capacity_of_the_service(place: str, initial: int) -> None:
    """It includes a short queue. The first round has few calls, and measures the latency without a queue."""
    seen = limits(place, learned_gate(initial=initial), (0.05, flat(0.5)), *[(1.0, busy(40))] * 40)
    assert all(40 <= limit <= 80 for limit in seen[-20:])


def test_relearning_raises_the_limit_again_after_a_service_became_slower() -> None:
    gate = learned_gate(relearn=30, most=100, random=Half())
    seen = limits("sync", gate, *[(1.0, flat(0.1))] * 3, *[(1.0, flat(1.0))] * 120)
    assert seen[:3] == [20, 30, 43]
    assert min(seen) < 5
    assert seen[-1] == 100


class Half:
    """A random source that always returns 0.5."""

    def random(self) -> float:
        return 0.5


def test_a_call_made_while_the_limit_is_set_is_not_recorded() -> None:
    """A signal handler or the collector may make it; here the random source does."""
    calls: list[int] = []

    class Calls(Half):
        gate: AdaptiveConcurrency | None = None

        def random(self) -> float:
            if self.gate is not None:
                calls.append(self.gate.call(int))
            return super().random()

    chance = Calls()
    chance.gate = gate = learned_gate(relearn=2, random=chance)
    assert limits("sync", gate, *[(0.4, flat(1.1))] * 4) == [20] * 4
    assert calls == [0, 0]  # one call for each relearning
