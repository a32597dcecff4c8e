"""The table of a `Keyed`: the least recently used key is forgotten first, and no entry that is in use."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import Layer
from redouble._layers.keyed_table import KeyedEntry
from tests.support.fakes import Boom
from tests.support.layers.keyed_tables import LayerWithKey, keys, table, wrapped_by

# -------------------------------------------------------------- kept and forgotten entries


def test_the_entry_of_a_key_is_found_again() -> None:
    rows = table()
    first = rows.entry("a", 0)
    assert rows.entry("a", 5) is first
    assert rows.entry("b", 5) is not first
    assert isinstance(first.layer, LayerWithKey)
    assert (first.layer.key, keys(rows), rows.forgotten) == ("a", ["a", "b"], 0)


@pytest.mark.parametrize(
    ("most", "used", "left"),
    [
        (1, "ab", "b"),
        (2, "abc", "bc"),
        (2, "abac", "ac"),
        (3, "abcad", "cad"),
        (3, "abcabcd", "bcd"),
        (3, "aaaa", "a"),
    ],
)
@pytest.mark.parametrize("method", ["entry", "find"])
def test_the_least_recently_used_entry_is_forgotten(most: int, used: str, left: str, method: str) -> None:
    rows = table(most)
    cache = rows.new_cache(wrapped_by)
    for moment, key in enumerate(used):
        if method == "entry":
            rows.entry(key, moment)
        else:
            rows.find(key, moment, cache)
    assert keys(rows) == list(left)
    assert rows.forgotten == len(set(used)) - len(left)


def test_a_forgotten_layer_is_made_again() -> None:
    rows = table(1)
    first = weakref.ref(rows.entry("a", 0))
    rows.entry("b", 0)
    assert first() is None
    layer = rows.entry("a", 0).layer
    assert isinstance(layer, LayerWithKey)
    assert rows.forgotten == 2


@pytest.mark.parametrize(("later", "kept"), [(10, True), (10.1, False), (1e9, False), (0, True), (-5, True)])
def test_an_idle_entry_is_forgotten(later: float, kept: bool) -> None:
    rows = table(idle=10)
    first = rows.entry("a", 100).layer
    assert (rows.entry("a", 100 + later).layer is first) is kept
    assert rows.forgotten == (not kept)


def test_every_use_counts_against_idleness() -> None:
    rows = table(idle=10)
    first = rows.entry("a", 0).layer
    for moment in range(0, 100, 9):
        assert rows.entry("a", moment).layer is first


def test_idle_entries_are_forgotten_when_a_new_one_is_made() -> None:
    rows = table(99, idle=10)
    for moment, key in enumerate("abcd"):
        rows.entry(key, moment)
    rows.entry("e", 12)
    assert keys(rows) == ["c", "d", "e"]
    rows.entry("f", 1000)
    assert keys(rows) == ["f"]


def test_with_an_idle_time_of_zero_an_entry_is_found_at_the_same_time_only() -> None:
    rows = table(idle=0)
    first = rows.entry("a", 5).layer
    assert rows.entry("a", 5).layer is first
    assert rows.entry("a", 5.001).layer is not first


# ------------------------------------------------------------------------ entries in use


def test_an_entry_in_use_is_found_again() -> None:
    rows = table(1)
    held = rows.entry("a", 0)
    rows.entry("b", 0)
    assert keys(rows) == ["b"]
    assert rows.entry("a", 0) is held
    assert keys(rows) == ["a"]


def test_an_entry_in_use_is_found_again_though_it_was_idle() -> None:
    rows = table(idle=10)
    held = rows.entry("a", 0)
    assert rows.entry("a", 1000) is held
    assert (keys(rows), held.used, rows.forgotten) == (["a"], 1000, 1)


def test_another_thread_made_the_layer_first() -> None:
    """Two threads make the layer of a key at the same time: the first entry is the only one."""
    theirs: list[KeyedEntry] = []

    def make(key: Hashable) -> Layer:
        if not theirs:
            theirs.append(KeyedEntry(LayerWithKey(None), 0))
            theirs[0] = rows.entry(key, 0)
        return LayerWithKey(key)

    rows = table(make=make)
    assert rows.entry("a", 0) is theirs[0]
    assert keys(rows) == ["a"]


@pytest.mark.parametrize("held", [False, True])
def test_a_failed_factory_leaves_no_entry(held: bool) -> None:
    def make(key: Hashable) -> Layer:
        if key == "bad":
            raise Boom
        return LayerWithKey(key)

    rows = table(1, make=make)
    entry = rows.entry("a", 0) if held else None
    with pytest.raises(Boom):
        rows.find("bad", 0, rows.new_cache(wrapped_by))
    assert (keys(rows), rows.forgotten) == (["a"] if entry else [], 0)


# ----------------------------------------------------------------------------- other threads


class Busy:
    """A key whose entry another thread dates back whenever the key is hashed: it read its clock earlier."""

    entry: KeyedEntry | None = None

    def __hash__(self) -> int:
        if self.entry is not None:
            self.entry.used = -1
        return 1


def test_an_entry_just_looked_up_is_not_idle() -> None:
    rows, key = table(idle=0), Busy()
    key.entry = rows.entry(key, 0)
    assert rows.entry(key, 5) is key.entry
    assert keys(rows) == [key]


class Items:
    """Entries whose first one another thread moves to the end when an iteration starts."""

    def __init__(self, moving: Moving, items: Iterable[tuple[Hashable, KeyedEntry]]) -> None:
        self.moving, self.items = moving, items

    def __iter__(self) -> Iterator[tuple[Hashable, KeyedEntry]]:
        found = iter(self.items)
        if self.moving.moves:
            self.moving.moves -= 1
            self.moving.move_to_end(next(iter(self.moving)))
        return found


class Moving(OrderedDict[Hashable, KeyedEntry]):
    """Entries of which the first one is moved, ``moves`` times."""

    moves = 2

    def items(self) -> Any:
        return Items(self, super().items())


def test_other_threads_may_move_the_oldest_entry() -> None:
    rows = table()
    rows.entries = moving = Moving()
    for key in "abc":
        rows.entry(key, 0)
    moving.moves = 2
    assert rows.oldest()[0] == keys(rows)[0]
    assert moving.moves == 0


# --------------------------------------------------------------------------- properties


@given(
    st.integers(1, 4),
    st.sampled_from([0.0, 2.0, 5.0, inf]),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.0, 1.0, 3.0]), st.booleans())),
)
def test_there_are_never_more_than_most_entries_and_always_the_latest(
    most: int, idle: float, uses: list[tuple[int, float, bool]]
) -> None:
    rows, now = table(most, idle), 0.0
    cache = rows.new_cache(wrapped_by)
    for key, passed, found in uses:
        now += passed
        new = key not in rows.entries
        entry = rows.find(key, now, cache)[0] if found else rows.entry(key, now)
        assert keys(rows)[-1] == key
        assert rows.entries[key] is entry
        assert len(rows.entries) <= most
        assert entry.used == now
        assert not new or all(now - other.used <= idle for other in rows.entries.values())
        assert cache.keys() <= {*rows.entries.values()}
