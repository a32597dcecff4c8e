"""A reload reconfigures a user-defined gate that has the hooks `can_reconfigure` and `reconfigure`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Gate, Pipeline
from redouble.config._options import catalogue as _gates
from redouble.config._options.option_table import Option, Table
from redouble.config._options.values import Whole
from redouble.config._reload import load, policies, reload
from redouble.errors import Rejected


class Turnstile(Gate):
    """A gate that admits ``coins`` calls in all."""

    created = 0

    def __init__(self, coins: int, width: int = 1, name: str | None = None) -> None:
        Turnstile.created += 1
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
    """A turnstile that cannot be reconfigured."""

    def can_reconfigure(self, other: object, /) -> bool:
        return False


@pytest.fixture(autouse=True)
def gate_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add two types of gates for documents."""
    options = {
        "coins": Option(Whole(), "How many calls."),
        "width": Option(Whole(), "How wide."),
    }
    for tables in (_gates.GATES.tables, _gates.LAYERS.tables):
        monkeypatch.setitem(tables, "turnstile", Table(Turnstile, "A turnstile.", **options))
        monkeypatch.setitem(tables, "fixed", Table(Fixed, "A fixed one.", **options))


def spelled(number: int) -> str:
    return str(number)


def active_gate() -> Turnstile:
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
def test_a_reload_changes_the_settings_and_keeps_the_state(document: Callable[..., dict[str, Any]]) -> None:
    load(document("turnstile", coins=1))
    call = policies("all")(spelled)
    assert call(3) == "3"
    with pytest.raises(Rejected):
        call(3)
    assert reload(document("turnstile", coins=2)).ok
    assert call(3) == "3"
    with pytest.raises(Rejected):
        call(3)
    gate = active_gate()
    assert (gate.coins, gate.passed) == (2, 2)


@pytest.mark.parametrize("document", [by_name, inline])
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("fixed", {"coins": 1}, {"coins": 2}),
        ("turnstile", {"coins": 1, "width": 1}, {"coins": 1, "width": 2}),
    ],
)
def test_a_gate_that_cannot_be_reconfigured_is_replaced(
    document: Callable[..., dict[str, Any]], kind: str, before: dict[str, int], after: dict[str, int]
) -> None:
    load(document(kind, **before))
    call = policies("all")(spelled)
    assert call(3) == "3"
    old = active_gate()
    assert reload(document(kind, **after)).ok
    new = active_gate()
    assert new is not old
    assert (old.passed, new.passed) == (1, 0)
    assert call(3) == "3"


@pytest.mark.parametrize("document", [by_name, inline])
def test_a_reload_creates_only_objects_that_have_changed(
    document: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Turnstile, "created", 0)
    load(document("turnstile", coins=1))
    assert reload(document("turnstile", coins=1)).changed == ()
    assert reload(document("turnstile", coins=1, width=1)).changed == (), "a default that is written out"
    assert Turnstile.created == 1
    assert reload(document("turnstile", coins=2)).changed != ()
    assert Turnstile.created == 2
