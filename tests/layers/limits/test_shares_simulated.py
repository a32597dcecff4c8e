"""Calls of several classes through a gate with slots, at random: holds, cancellations, full queues, waits."""

from __future__ import annotations

import asyncio
from math import ceil, inf
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import AdaptiveConcurrency, Bulkhead, errors, priority
from redouble.testing import VirtualClock
from tests.support.virtual_time import in_virtual_time

pytestmark = pytest.mark.one_python

SHARES: list[dict[str, float]] = [
    {"a": 0.5, "b": 0.5},
    {"a": 0.6, "b": 0.1},
    {"a": 1.0},
    {"a": 0.34, "b": 0.33, "c": 0.33},
    {"a": 0.0, "b": 0.2, "c": 0.3},
]
QUIET = 0.05  # seconds after which all that happens at a moment has happened


class Call(NamedTuple):
    """A call of a class: when it comes, how long it holds its slot, and when it is cancelled, in tenths."""

    name: str | None
    arrival: int
    hold: int
    patience: float


CALLS = st.lists(
    st.builds(
        Call,
        st.sampled_from(["a", "b", "c", "unlisted", None]),
        st.integers(0, 30),
        st.integers(0, 20),
        st.just(inf) | st.integers(0, 30),
    ),
    min_size=1,
    max_size=40,
)


# More calls than there are slots, of classes that borrow, before others come.
CROWD = st.lists(
    st.builds(
        Call, st.sampled_from(["a", "a", "b", None]), st.integers(0, 3), st.integers(3, 10), st.just(inf)
    ),
    min_size=30,
    max_size=40,
)


class Simulation:
    """Calls through one gate: which run, which wait, and how long each has waited."""

    def __init__(self, gate: Any, calls: list[Call]) -> None:
        self.gate, self.calls = gate, calls
        self.running, self.waiting = set[int](), set[int]()
        self.waits = dict[int, float]()
        self.ahead = dict[int, int]()  # calls of its class that ran or waited when a call came

    def run(self) -> None:
        in_virtual_time("asyncio", self._main)
        assert {**self.gate.snapshot()} == dict.fromkeys(self.gate.snapshot(), 0) | {"limit": self.gate.limit}

    async def _main(self, clock: VirtualClock) -> None:
        tasks = [asyncio.create_task(self._call(number, clock)) for number in range(len(self.calls))]
        for task, call in zip(tasks, self.calls, strict=True):
            if call.patience < inf:
                when = (call.arrival + call.patience) / 10 + QUIET / 2
                asyncio.get_running_loop().call_later(when, task.cancel)
        await asyncio.sleep(QUIET)
        while not all(task.done() for task in tasks):
            self._check()
            await asyncio.sleep(0.1)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}

    async def _call(self, number: int, clock: VirtualClock) -> None:
        call = self.calls[number]
        await asyncio.sleep(call.arrival / 10)
        others = self.running | self.waiting
        self.ahead[number] = sum(self.calls[other].name == call.name for other in others)
        self.waiting.add(number)
        came = clock.now()
        try:
            with priority(call.name):
                await self.gate.call(self._hold, number, came, clock)
        except errors.BulkheadFull:
            pass
        finally:
            self.waiting.discard(number)

    async def _hold(self, number: int, came: float, clock: VirtualClock) -> None:
        self.waiting.discard(number)
        self.running.add(number)
        self.waits[number] = clock.now() - came
        assert len(self.running) <= self.gate.limit
        try:
            await asyncio.sleep(self.calls[number].hold / 10)
        finally:
            self.running.discard(number)

    def _check(self) -> None:
        assert not self.waiting or len(self.running) == self.gate.limit, "no slot is idle while a call waits"
        now = self.gate.snapshot()
        assert (now["in_use"], now["queued"]) == (len(self.running), len(self.waiting))


OPTIONS: dict[str, Any] = {
    "shares": st.sampled_from(SHARES),
    "wait": st.sampled_from([None, 0.5, 1.0]),
    "queue": st.sampled_from([1, 3, 100]),
    "order": st.sampled_from(["fifo", "lifo", "adaptive"]),
}


@settings(max_examples=60)
@given(
    st.sampled_from([Bulkhead, AdaptiveConcurrency]), st.integers(1, 6), CALLS, st.fixed_dictionaries(OPTIONS)
)
def test_slots_are_never_exceeded_lost_or_idle(
    kind: Any, limit: int, calls: list[Call], options: dict[str, Any]
) -> None:
    gate = (
        Bulkhead(limit, **options)
        if kind is Bulkhead
        else AdaptiveConcurrency(limit, limit, limit, **options)
    )
    Simulation(gate, calls).run()


@settings(max_examples=60)
@given(st.integers(3, 8), CROWD, CALLS, st.sampled_from(SHARES))
def test_a_class_below_its_share_waits_for_no_more_than_the_longest_call(
    limit: int, crowd: list[Call], calls: list[Call], shares: dict[str, float]
) -> None:
    """Each slot that becomes free meanwhile goes to such a class."""
    slots = {name: ceil(share * limit - 1e-9) for name, share in shares.items()}
    if sum(slots.values()) > limit:
        return
    simulation = Simulation(Bulkhead(limit, None, shares=shares), [*crowd, *calls])
    simulation.run()
    longest = max(call.hold for call in simulation.calls) / 10
    for number, waited in simulation.waits.items():
        if simulation.ahead[number] < slots.get(simulation.calls[number].name or "", 0):
            assert waited <= longest + 1e-6
