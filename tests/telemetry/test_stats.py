"""`redouble.stats()`: all named objects while they are alive."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast
from weakref import WeakValueDictionary

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    Chaos,
    CircuitBreaker,
    Gate,
    Hedge,
    Keyed,
    RateLimit,
    Retry,
    RetryBudget,
    Throttle,
    TokenBucket,
    stats,
)
from redouble._telemetry import registry
from redouble._telemetry.registry import SECTIONS, register, unregister
from redouble.testing import virtual_time
from tests.support.fakes import Boom
from tests.support.telemetry.stats import listed

# a named object, its section, and part of its first entry
NAMED: dict[str, tuple[Callable[[str | None], Any], registry.Section, dict[str, object]]] = {
    "RetryBudget": (lambda name: RetryBudget(name=name), "budgets", {"available": 100, "granted": 0}),
    "TokenBucket": (lambda name: TokenBucket(7, name=name), "budgets", {"tokens": 7, "capacity": 7}),
    "RetryThrottling": (lambda name: TokenBucket.grpc(8, name=name), "budgets", {"tokens": 8, "above": 4}),
    "CircuitBreaker": (lambda name: CircuitBreaker(name=name), "breakers", {"state": "closed"}),
    "Bulkhead": (lambda name: Bulkhead(3, name=name), "bulkheads", {"limit": 3, "in_use": 0, "queued": 0}),
    "RateLimit": (lambda name: RateLimit(3, burst=2, name=name), "limits", {"available": 2, "queued": 0}),
    "AdaptiveRate": (lambda name: AdaptiveRate(name=name), "limits", {"rate": None, "queued": 0}),
    "AdaptiveConcurrency": (
        lambda name: AdaptiveConcurrency(name=name),
        "limits",
        {"limit": 20, "in_use": 0},
    ),
    "Throttle": (lambda name: Throttle(name=name), "limits", {"share": 0.0, "requests": 0}),
    "Hedge": (lambda name: Hedge(0.1, name=name), "layers", {"delay": 0.1, "hedged": 0}),
    "Chaos": (lambda name: Chaos(latency=1, name=name), "layers", {"hit": 0, "on": True}),
    "Keyed": (lambda name: Keyed(int, lambda: Bulkhead(1), name=name), "layers", {"keys": 0}),
}
EACH = pytest.mark.parametrize("kind", NAMED)


@EACH
def test_a_named_object_is_listed_while_it_is_alive(kind: str) -> None:
    make, section, part = NAMED[kind]
    thing = make("stats one")
    found = listed("stats one")
    assert found.keys() == {section}
    assert found[section] == {"type": kind, **thing.snapshot()}
    assert found[section].items() >= part.items()
    del thing
    gc.collect()
    assert listed("stats one") == {}


@EACH
def test_an_unnamed_object_is_not_listed(kind: str) -> None:
    before = {section: len(named) for section, named in stats().items()}
    thing = NAMED[kind][0](None)
    assert {section: len(named) for section, named in stats().items()} == before
    assert thing.name is None


@EACH
def test_an_object_is_listed_when_it_is_complete(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that reads the statistics at that moment can take its snapshot."""
    make, section, part = NAMED[kind]
    entries: list[Mapping[str, object]] = []

    class Observed(WeakValueDictionary[int, Any]):
        def __setitem__(self, key: int, thing: Any) -> None:
            super().__setitem__(key, thing)
            entries.append(stats()[section]["stats new"])

    monkeypatch.setitem(registry._lists, section, Observed())
    thing = make("stats new")
    assert entries == [{"type": kind, **thing.snapshot()}]
    assert entries[0].items() >= part.items()


def test_a_policy_that_is_rejected_is_not_listed() -> None:
    with pytest.raises(TypeError, match="clock") as caught:
        Retry(name="stats rejected", clock=cast("Any", None))
    assert caught.traceback
    assert listed("stats rejected") == {}


def test_objects_of_the_same_name_are_numbered() -> None:
    """All are listed, since each has its own counts; names of different sections do not conflict."""
    things = [make("stats two") for make, _, _ in NAMED.values() for _ in range(2)]
    found = stats()
    for section in SECTIONS[1:]:
        own = [name for name in found[section] if name.startswith("stats two")]
        expected = ["stats two", *(f"stats two#{number}" for number in range(2, len(own) + 1))]
        assert own == expected
        assert len(own) == 2 * sum(of == section for _, of, _ in NAMED.values())
    assert len(things) == 2 * len(NAMED)


def test_stats_can_be_serialised_to_json() -> None:
    """In every state."""
    things = [make("stats json") for make, _, _ in NAMED.values()]
    breaker = CircuitBreaker(failures=1, name="stats json")
    with suppress(Boom), breaker:
        raise Boom
    things += [breaker, Retry(name="stats json", attempts=None, give_up_after=9, budget=RetryBudget())]
    with virtual_time():
        seen = stats()
    assert json.loads(json.dumps(seen, allow_nan=False)) == seen
    assert list(seen) == [*SECTIONS]


def test_a_failing_snapshot_does_not_affect_the_others() -> None:
    """Its entry has the failure instead."""

    class Broken(Bulkhead):
        def snapshot(self) -> Mapping[str, float]:
            raise ZeroDivisionError

    things = [Broken(1, name="stats broken"), Bulkhead(2, name="stats broken")]
    found = stats()["bulkheads"]
    assert found["stats broken"] == {"type": "Broken", "snapshot": "failed"}
    assert found["stats broken#2"] == {"type": "Bulkhead", **things[1].snapshot()}


def test_a_custom_gate_may_be_registered_and_unregistered() -> None:
    class Own(Gate):
        name = "stats own"

        def snapshot(self) -> Mapping[str, int]:
            return {"passed": 3}

    gate = Own()
    register(gate, "layers")
    assert listed("stats own") == {"layers": {"type": "Own", "passed": 3}}
    unregister(gate)
    unregister(gate)
    assert listed("stats own") == {}


def test_explaining_a_keyed_layer_registers_nothing() -> None:
    """An object created for inspection is never listed; the layer of a key is."""

    def key(number: int) -> int:
        return number

    def there(number: int) -> list[str]:
        assert number >= 0
        return [name for name in stats()["bulkheads"] if name.startswith("stats keyed")]

    keyed = Keyed(key, lambda: Bulkhead(1, name="stats keyed"))
    work = keyed(there)
    assert (keyed | Retry()).explain()
    assert there(0) == []
    assert work(1) == ["stats keyed"]
    assert work(2) == ["stats keyed", "stats keyed#2"]


def test_names_that_look_like_numbered_ones_do_not_conflict() -> None:
    names = ("stats alike", "stats alike", "stats alike#2")
    things = [Bulkhead(limit, name=name) for limit, name in enumerate(names, 1)]
    found = [entry["limit"] for name, entry in stats()["bulkheads"].items() if name.startswith(names[0])]
    assert found == [thing.limit for thing in things]
