"""Single flights: calls of one key at once are made once, as Go's `singleflight` makes them."""

from __future__ import annotations

import pytest

from redouble import Coalesce
from tests.support.fakes import COLOURS, Boom
from tests.support.layers.coalesced_calls import Group, Service


@pytest.mark.parametrize("colour", COLOURS)
def test_singleflight_go(colour: str) -> None:
    """One execution for a key at a time, the same value or error for all, and nothing afterwards."""
    value, coalesce = object(), Coalesce()
    service = Service(value, Boom("x"), "again")
    group = Group(colour, coalesce, service)
    assert [one is value for one in group.outcomes(("key",), ("key",), ("key",))] == [True] * 3
    assert [str(one) for one in group.outcomes(("key",), ("key",))] == ["x"] * 2
    assert group.outcomes(("key",)) == ["again"]
    assert service.calls == [("key",)] * 3
    assert service.most == 1


@pytest.mark.parametrize("colour", COLOURS)
def test_singleflight_go_keys_are_independent(colour: str) -> None:
    service = Service(1, 2)
    found = Group(colour, Coalesce(), service).outcomes(("a",), ("b",))
    assert sorted(found) == [1, 2]
    assert service.most == 2
