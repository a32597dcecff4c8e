"""Calls of several classes through a rate limit, at random: costs, cancellations, waits, windows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import RateLimit, errors, priority
from redouble.testing import VirtualClock
from tests.support.virtual_time import in_virtual_time

pytestmark = pytest.mark.one_python

NEAR = 1e-6
SHARES: list[dict[str, float]] = [
    {"a": 0.5, "b": 0.5},
    {"a": 0.6, "b": 0.1},
    {"a": 0.34, "b": 0.33, "c": 0.33},
    {"a": 0.1, "b": 0.9},
    {"a": 0.0, "b": 0.2, "c": 0.3},
]
KINDS: list[dict[str, Any]] = [
    {"rate": 5},
    {"rate": 5, "burst": 3},
    {"rate": 10, "burst": 5},
    {"rate": 5, "window": "sliding"},
    {"rate": 20, "per": 3, "window": "sliding"},
    {"rate": 5, "window": "fixed"},
]


class Call(NamedTuple):
    """A call of a class: when it comes, in tenths, what it costs, and when it is cancelled."""

    name: str | None
    arrival: int
    cost: int
    patience: float


def calls_of(patience: st.SearchStrategy[float], most: int) -> st.SearchStrategy[list[Call]]:
    """Return lists of calls that cost up to 3."""
    names = st.sampled_from(["a", "b", "c", None])
    each = st.builds(Call, names, st.integers(0, 40), st.sampled_from([1, 1, 1, 2, 3]), patience)
    return st.lists(each, min_size=1, max_size=most)


class Simulation:
    """Calls through one rate limit: when each came, and when it began."""

    def __init__(self, limit: RateLimit, calls: list[Call]) -> None:
        self.limit, self.calls = limit, calls
        self.began = dict[int, float]()

    def run(self) -> None:
        in_virtual_time("asyncio", self._main)
        assert self.limit.snapshot()["queued"] == 0

    async def _main(self, clock: VirtualClock) -> None:
        async def begin(number: int) -> None:
            self.began[number] = clock.now()

        async def call(number: int) -> None:
            await asyncio.sleep(self.calls[number].arrival / 10)
            with priority(self.calls[number].name), suppress(errors.RateLimited):
                await self.limit.call(begin, number)

        tasks = [asyncio.create_task(call(number)) for number in range(len(self.calls))]
        for task, each in zip(tasks, self.calls, strict=True):
            if each.patience < inf:
                asyncio.get_running_loop().call_later((each.arrival + each.patience) / 10 + 0.05, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)


def simulated(
    kind: dict[str, Any], shares: dict[str, float], wait: float | None, calls: list[Call]
) -> Simulation:
    most = kind["rate"] if "window" in kind else kind.get("burst", 1)
    calls = [call._replace(cost=min(call.cost, most)) for call in calls]

    def cost_of(number: int) -> float:
        return calls[number].cost

    simulation = Simulation(RateLimit(**kind, wait=wait, shares=shares, cost=cost_of), calls)
    simulation.run()
    return simulation


@settings(max_examples=80)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(SHARES),
    st.sampled_from([None, 0.0, 1.0]),
    calls_of(st.just(inf) | st.integers(0, 30), 40),
)
def test_the_rate_is_never_exceeded(
    kind: dict[str, Any], shares: dict[str, float], wait: float | None, calls: list[Call]
) -> None:
    simulation = simulated(kind, shares, wait, calls)
    per, rate, window = kind.get("per", 1), kind["rate"], kind.get("window")
    began = sorted((when, simulation.calls[number].cost) for number, when in simulation.began.items())
    for first, (since, _) in enumerate(began):
        total = 0
        for when, cost in began[first:]:
            total += cost
            span = when - since
            if window is None:
                assert total <= rate / per * span + kind.get("burst", 1) + NEAR
            elif span < per - NEAR:
                assert total <= rate * (1 if window == "sliding" else 2)
    if wait is not None:
        for number, when in simulation.began.items():
            assert when - simulation.calls[number].arrival / 10 <= wait + NEAR


@settings(max_examples=80)
@given(st.sampled_from(KINDS), st.sampled_from(SHARES), calls_of(st.just(inf), 120))
def test_a_class_that_waits_gets_its_share(
    kind: dict[str, Any], shares: dict[str, float], calls: list[Call]
) -> None:
    """While it has waiters, it lags by no more than two large calls, and the permits of a window."""
    simulation = simulated(kind, shares, None, calls)
    rate = kind["rate"] / kind.get("per", 1)
    lag = 2 * 3 + (kind["rate"] if "window" in kind else 0)
    for name, share in shares.items():
        numbers = [number for number, call in enumerate(simulation.calls) if call.name == name]
        steps = [(simulation.calls[number].arrival / 10, 1, 0) for number in numbers]
        steps += [(simulation.began[number], -1, simulation.calls[number].cost) for number in numbers]
        waiting, since, served = 0, 0.0, 0
        for when, change, cost in sorted(steps, key=lambda step: (step[0], -step[1])):
            if not waiting:
                since, served = when, 0
            assert served >= share * rate * (when - since) - lag
            waiting, served = waiting + change, served + cost
