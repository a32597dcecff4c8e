"""Without a GIL every change of a shared count happens under the lock of its gate."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, AdaptiveRate, Bulkhead, Hedge, Keyed, Layer, RateLimit, Throttle
from redouble._internal.locks import ForkSafe, Gil, gil
from tests.support.fakes import Boom, always, in_colour

COLOURS = ["sync", "asyncio", "trio"]


@pytest.fixture(autouse=True)
def no_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gil, "enabled", False)


def guarded(thing: Any, attribute: str, owner: ForkSafe) -> list[bool]:
    """Record, for each change of an attribute, whether this thread holds the lock of the owner."""
    held: list[bool] = []
    kind: type[Any] = thing.__class__

    def set_attribute(self: object, name: str, value: object) -> None:
        if name == attribute:
            held.append(owner._owned_by_this_thread())
        object.__setattr__(self, name, value)

    thing.__class__ = type(kind.__name__, (kind,), {"__slots__": (), "__setattr__": set_attribute})
    return held


def use(layer: Layer, colour: str, calls: int = 5) -> None:
    """Make calls, the last of which fails."""

    def work(fail: bool) -> None:
        if fail:
            raise Boom

    async def awork(fail: bool) -> None:
        work(fail)

    def call(fn: Callable[[bool], Any], fail: bool) -> Any:
        return layer(fn)(fail)

    for number in range(calls):
        fail = number == calls - 1
        with suppress(Boom):
            in_colour(colour, partial(call, work, fail), partial(call, awork, fail))


@pytest.mark.parametrize("colour", COLOURS)
def test_the_calls_in_flight_of_adaptive_concurrency(colour: str) -> None:
    gate = AdaptiveConcurrency()
    held = guarded(gate._in_flight, "count", gate)
    use(gate, colour)
    with gate:
        pass
    assert held == [True] * 12
    assert gate.snapshot()["in_use"] == 0


@pytest.mark.parametrize("colour", COLOURS)
def test_the_accepted_requests_of_a_throttle(colour: str) -> None:
    gate = Throttle()
    held = guarded(gate._requests, "count", gate)
    use(gate, colour)
    assert len(held) >= 4
    assert all(held)
    assert gate.snapshot() == {"share": 0.0, "requests": 5, "accepts": 4}


@pytest.mark.parametrize("colour", COLOURS)
def test_the_results_that_an_adaptive_rate_counts(colour: str) -> None:
    gate = AdaptiveRate()
    held = guarded(gate._bucket.meter, "count", gate._wait_queue)
    use(gate, colour)
    assert len(held) >= 5
    assert all(held)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("following", [False, True])
def test_a_rate_limit_has_no_fast_path(following: bool, colour: str) -> None:
    gate = RateLimit(1, 1000, burst=8, following=following)
    use(gate, colour)
    gate.follow({"RateLimit": '"a";r=1;t=1'})
    assert gate._pacer.fast_arrival_time == inf
    assert gate.snapshot()["available"] <= 3


@pytest.mark.parametrize("colour", COLOURS)
def test_the_leases_of_a_bulkhead(colour: str) -> None:
    gate, held = Bulkhead(2), list[bool]()

    class Leases(set[Any]):
        def add(self, lease: object) -> None:
            held.append(gate._slots._owned_by_this_thread())
            super().add(lease)

        def discard(self, lease: object) -> None:
            held.append(gate._slots._owned_by_this_thread())
            super().discard(lease)

    gate._slots.leases = Leases()
    use(gate, colour)
    with gate:
        pass
    assert held == [True] * 12
    assert gate.snapshot()["in_use"] == 0


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize("delay", [None, 30.0])
def test_the_calls_and_latencies_of_a_hedge(delay: float | None, colour: str) -> None:
    hedge = Hedge(delay)
    state = hedge._state
    calls = guarded(state.quota, "calls", state)
    skipped = guarded(state.latencies, "_current_total", state)
    use(hedge, colour)
    assert calls == [True] * 5
    assert skipped == ([True] * 4 if delay is None else [])


@pytest.mark.parametrize("colour", COLOURS)
def test_the_table_of_keys(colour: str) -> None:
    keyed, held = Keyed(always("key"), lambda: Bulkhead(2)), list[bool]()

    class Entries(OrderedDict[Any, Any]):
        def move_to_end(self, key: object, last: bool = True) -> None:
            held.append(keyed._table._owned_by_this_thread())
            super().move_to_end(key, last)

    keyed._table.entries = Entries()
    use(keyed, colour)
    assert len(held) >= 5
    assert all(held)


@pytest.mark.parametrize(
    ("build", "enabled"),
    [({}, True), ({"_is_gil_enabled": lambda: True}, True), ({"_is_gil_enabled": lambda: False}, False)],
    ids=["before 3.13", "ordinary", "free-threaded"],
)
def test_the_build_decides(build: dict[str, Any], enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("sys._is_gil_enabled", raising=False)
    for name, value in build.items():
        monkeypatch.setattr(f"sys.{name}", value, raising=False)
    assert Gil().enabled is enabled
