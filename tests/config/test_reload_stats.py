"""`redouble.stats` lists the objects of the active configuration, and no discarded ones."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from redouble import config, stats

GATES = {
    "breaker": {"type": "circuit_breaker", "cooldown": 30},
    "places": {"type": "bulkhead", "limit": 3},
}


@pytest.fixture(autouse=True)
def no_other_objects() -> Iterator[None]:
    """Free the objects of other tests, and collect no garbage during the test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def listed() -> dict[str, list[str]]:
    return {section: sorted(found) for section, found in stats().items() if found and section != "policies"}


def document(**gates: object) -> dict[str, object]:
    return {"gates": {f"shown {name}": gate for name, gate in gates.items()}}


def listed_here(section: str) -> list[str]:
    return [name for name in listed().get(section, []) if name.startswith("shown ")]


@pytest.mark.parametrize("again", [GATES, {**GATES, "breaker": {"type": "circuit_breaker", "cooldown": 5}}])
def test_after_a_reload_each_gate_is_listed_once(again: dict[str, object]) -> None:
    config.load(document(**GATES), environ=None)
    assert config.reload(document(**again)).ok
    assert listed_here("breakers") == ["shown breaker"]
    assert listed_here("bulkheads") == ["shown places"]


def test_gates_of_an_invalid_reload_are_not_listed() -> None:
    config.load(document(**GATES), environ=None)
    broken = {**document(**GATES, more=GATES["breaker"]), "pipelines": {"p": {"layers": ["gates.none"]}}}
    assert not config.reload(broken).ok
    assert listed_here("breakers") == ["shown breaker"]
    with_policy = {**document(**GATES, more=GATES["breaker"]), "policies": {"p": {"budget": {"ratio": -1}}}}
    assert not config.reload(with_policy).ok
    assert listed_here("breakers") == ["shown breaker"]


def test_a_removed_gate_is_no_longer_listed() -> None:
    config.load(document(**GATES), environ=None)
    assert config.reload(document(places=GATES["places"])).ok
    assert listed_here("breakers") == []
    assert listed_here("bulkheads") == ["shown places"]


def test_a_replaced_policy_is_no_longer_listed() -> None:
    """Even if it is still referenced."""
    before = config.load({"policies": {"shown": {"attempts": 2}}}, environ=None).policies["shown"]
    assert config.reload({"policies": {"shown": {"attempts": 3}}}).ok
    assert before.attempts == 2
    assert stats()["policies"]["shown"]["attempts"] == 3
    assert not config.reload({"policies": {"shown": {"attempts": 5}, "other": {"attempts": 0}}}).ok
    assert stats()["policies"]["shown"]["attempts"] == 3
    assert config.reload({"policies": {}}).ok
    assert "shown" not in stats()["policies"]
