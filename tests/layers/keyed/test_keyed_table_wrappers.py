"""The wrapper caches of a `KeyedTable`: each wrapper is made once, and none outlives its entry."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from redouble import Layer
from redouble._layers.keyed_table import KeyedEntry, KeyedStreamOwner, WrapperCache
from redouble.testing import virtual_time
from tests.layers.keyed.test_keyed_table import keys, table, through
from tests.support.fakes import Boom


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Without garbage collection: an object is freed because nothing refers to it any more."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures(uncollected.__name__)
def test_an_unreferenced_breaker_is_freed_at_once() -> None:
    rows = table(1)
    functions = [rows.new_cache(through) for _ in range(3)]
    for ways in functions:
        rows.find("a", 0, ways)
    watched: list[weakref.ref[Any]] = [weakref.ref(rows.entry("a", 0)), weakref.ref(rows.entry("a", 0).layer)]
    assert [len(ways) for ways in functions] == [1, 1, 1]
    rows.entry("b", 0)
    assert [ref() for ref in watched] == [None, None]
    assert [len(ways) for ways in functions] == [0, 0, 0]


@pytest.mark.usefixtures(uncollected.__name__)
def test_functions_that_are_gone_are_forgotten() -> None:
    rows = table()

    def another() -> list[weakref.ref[Any]]:
        ways = rows.new_cache(through)
        _, way = rows.find("a", 0, ways)
        return [weakref.ref(ways), weakref.ref(way)]

    watched = [*another(), *another(), *another()]
    assert [ref() for ref in watched] == [None] * 6


def test_a_way_is_made_once_for_each_function_and_key() -> None:
    made: list[tuple[str, Layer]] = []

    def wrapping(name: str) -> Callable[[Layer], Callable[..., Any]]:
        def wrap(layer: Layer) -> Callable[..., Any]:
            made.append((name, layer))
            return through(layer)

        return wrap

    rows = table()
    first, second = rows.new_cache(wrapping("first")), rows.new_cache(wrapping("second"))
    for ways in (first, second, first, second):
        for key in "ab":
            entry, way = rows.find(key, 0, ways)
            assert way() is entry.layer
    a, b = (rows.entry(key, 0).layer for key in "ab")
    assert made == [("first", a), ("first", b), ("second", a), ("second", b)]


def test_wrapper_caches_are_distinct() -> None:
    """By identity: two functions that have been called with no key yet are not one."""
    rows = table()
    first, second = rows.new_cache(through), rows.new_cache(through)
    assert first == second
    assert len({first, second}) == 2


def test_a_way_that_was_forgotten_meanwhile_is_not_kept() -> None:
    """Another thread uses another key while the wrapper is being made."""

    def wrap(layer: Layer) -> Callable[..., Any]:
        rows.entry("b", 0)
        return through(layer)

    rows = table(1)
    ways = rows.new_cache(wrap)
    entry, way = rows.find("a", 0, ways)
    assert way() is entry.layer
    assert (keys(rows), dict(ways)) == (["b"], {})
    assert rows.entry("a", 0) is entry


def test_a_function_that_cannot_be_wrapped_leaves_the_layer() -> None:
    def wrap(_: Layer) -> Callable[..., Any]:
        raise Boom

    rows = table()
    ways: WrapperCache = rows.new_cache(wrap)
    with pytest.raises(Boom):
        rows.find("a", 0, ways)
    assert (keys(rows), dict(ways)) == (["a"], {})


def test_a_freed_function_may_decorate_another() -> None:
    """A freed function may hold the last reference to an object whose finalizer decorates a function."""

    def wrap(layer: Layer) -> Callable[..., Any]:
        way = through(layer)
        weakref.finalize(way, lambda: others.append(rows.new_cache(through)))
        return way

    rows, others = table(1), list[WrapperCache]()
    functions = [rows.new_cache(wrap) for _ in range(3)]
    for ways in functions:
        rows.find("a", 0, ways)
    rows.entry("b", 0)
    assert (keys(rows), len(others)) == (["b"], 3)


async def items() -> AsyncGenerator[int]:
    """Stand for a stream."""
    yield 1


@pytest.mark.usefixtures(uncollected.__name__)
def test_an_ended_stream_releases_its_entry_once() -> None:
    entry = KeyedEntry(Layer(), 0.0)
    watched = weakref.ref(entry)
    held = KeyedStreamOwner(entry, items())
    with virtual_time() as clock:
        clock.advance(5)
        held.ended()
        assert entry.used == 5
        clock.advance(5)
        held.cut(None)
        assert entry.used == 5
    del entry
    assert watched() is None
