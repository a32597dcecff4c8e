"""A reload reconfigures a gate that a user has written, if it has the hooks for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Gate, Pipeline
from redouble.config import _reload as _live
from redouble.config._options import catalogue as _gates
from redouble.config._options.catalogue import NAMED
from redouble.config._options.option_table import Option, Table
from redouble.config._options.values import Whole
from redouble.config._reload import ConfigStore, load, policies, reload
from redouble.errors import Rejected


class Turnstile(Gate):
    """Admits so many calls in all."""

    def __init__(self, coins: int, width: int = 1, name: str | None = None) -> None:
        self.coins, self.width, self.name, self.passed = coins, width, name, 0
        self.register()

    def admit(self, now: float, /) -> None:
        if self.passed >= self.coins:
            raise Rejected("no coins are left")
        self.passed += 1

    def can_reconfigure(self, other: Turnstile, /) -> bool:
        return self.width == other.width

    def reconfigure(self, other: Turnstile, /) -> None:
        self.coins = other.coins


class Fixed(Turnstile):
    """Cannot be reconfigured."""

    def can_reconfigure(self, other: object, /) -> bool:
        return False


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a configuration, and with two more types of gates in documents."""
    monkeypatch.setattr(_live, "LIVE", ConfigStore())
    options = {
        "coins": Option(Whole(), "How many calls.", needed=True),
        "width": Option(Whole(), "How wide."),
        "name": NAMED,
    }
    for tables in (_gates.GATES.tables, _gates.LAYERS.tables):
        monkeypatch.setitem(tables, "turnstile", Table(Turnstile, "A turnstile.", options))
        monkeypatch.setitem(tables, "fixed", Table(Fixed, "A fixed one.", options))


def spelled(number: int) -> str:
    return str(number)


def gate_now() -> Turnstile:
    """Return the only layer of the pipeline."""
    current = policies("all").current
    assert isinstance(current, Pipeline)
    [gate] = current.layers
    assert isinstance(gate, Turnstile)
    return gate


def by_name(kind: str, **options: int) -> dict[str, Any]:
    gates = {"door": {"type": kind, **options}}
    return {"gates": gates, "pipelines": {"all": {"layers": ["gates.door"]}}}


def inline(kind: str, **options: int) -> dict[str, Any]:
    return {"pipelines": {"all": {"layers": [{"type": kind, "name": "own door", **options}]}}}


@pytest.mark.parametrize("document", [by_name, inline])
def test_it_takes_over_the_settings_and_keeps_its_state(document: Callable[..., dict[str, Any]]) -> None:
    load(document("turnstile", coins=1))
    call = policies("all")(spelled)
    assert call(3) == "3"
    with pytest.raises(Rejected):
        call(3)
    assert reload(document("turnstile", coins=2)).ok
    assert call(3) == "3"
    with pytest.raises(Rejected):
        call(3)
    gate = gate_now()
    assert (gate.coins, gate.passed) == (2, 2)


@pytest.mark.parametrize("document", [by_name, inline])
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("fixed", {"coins": 1}, {"coins": 2}),
        ("turnstile", {"coins": 1, "width": 1}, {"coins": 1, "width": 2}),
    ],
)
def test_one_that_cannot_is_another_one(
    document: Callable[..., dict[str, Any]], kind: str, before: dict[str, int], after: dict[str, int]
) -> None:
    load(document(kind, **before))
    call = policies("all")(spelled)
    assert call(3) == "3"
    old = gate_now()
    assert reload(document(kind, **after)).ok
    new = gate_now()
    assert new is not old
    assert (old.passed, new.passed) == (1, 0)
    assert call(3) == "3"
