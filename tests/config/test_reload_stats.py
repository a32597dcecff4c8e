"""What `redouble.stats` shows of a configuration: what is in force, and nothing that was only looked at."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from redouble import config, stats
from redouble.config import _reload as _live

GATES = {
    "breaker": {"type": "circuit_breaker", "cooldown": 30},
    "places": {"type": "bulkhead", "limit": 3},
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_live, "LIVE", _live.ConfigStore())
    gc.collect()  # what other tests have left
    gc.disable()
    yield
    gc.enable()


def shown() -> dict[str, list[str]]:
    return {section: sorted(found) for section, found in stats().items() if found and section != "policies"}


def document(**gates: object) -> dict[str, object]:
    return {"gates": {f"shown {name}": gate for name, gate in gates.items()}}


def of_ours(section: str) -> list[str]:
    return [name for name in shown().get(section, []) if name.startswith("shown ")]


@pytest.mark.parametrize("again", [GATES, {**GATES, "breaker": {"type": "circuit_breaker", "cooldown": 5}}])
def test_a_reload_shows_nothing_twice(again: dict[str, object]) -> None:
    config.load(document(**GATES), environ=None)
    assert config.reload(document(**again)).ok
    assert of_ours("breakers") == ["shown breaker"]
    assert of_ours("bulkheads") == ["shown places"]


def test_an_invalid_reload_leaves_nothing() -> None:
    config.load(document(**GATES), environ=None)
    broken = {**document(**GATES, more=GATES["breaker"]), "pipelines": {"p": {"layers": ["gates.none"]}}}
    assert not config.reload(broken).ok
    assert of_ours("breakers") == ["shown breaker"]
    with_policy = {**document(**GATES, more=GATES["breaker"]), "policies": {"p": {"budget": {"ratio": -1}}}}
    assert not config.reload(with_policy).ok
    assert of_ours("breakers") == ["shown breaker"]


def test_what_is_gone_from_the_configuration_is_gone() -> None:
    config.load(document(**GATES), environ=None)
    assert config.reload(document(places=GATES["places"])).ok
    assert of_ours("breakers") == []
    assert of_ours("bulkheads") == ["shown places"]
