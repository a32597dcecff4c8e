"""The wrapper caches of a `KeyedTable`: each wrapper is made once, and none outlives its entry."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from redouble import Layer
from redouble._layers.keyed_table import KeyedEntry, KeyedStreamOwner, WrapperCache
from redouble.testing import virtual_time
from tests.support.fakes import Boom
from tests.support.garbage_collection import without_gc
from tests.support.layers.keyed_tables import keys, table, wrapped_by


@pytest.mark.usefixtures(without_gc.__name__)
def test_a_forgotten_entry_is_freed_at_once() -> None:
    rows = table(1)
    caches = [rows.new_cache(wrapped_by) for _ in range(3)]
    for cache in caches:
        rows.find("a", 0, cache)
    watched: list[weakref.ref[Any]] = [weakref.ref(rows.entry("a", 0)), weakref.ref(rows.entry("a", 0).layer)]
    assert [len(cache) for cache in caches] == [1, 1, 1]
    rows.entry("b", 0)
    assert [ref() for ref in watched] == [None, None]
    assert [len(cache) for cache in caches] == [0, 0, 0]


@pytest.mark.usefixtures(without_gc.__name__)
def test_the_caches_of_freed_functions_are_freed() -> None:
    rows = table()

    def another() -> list[weakref.ref[Any]]:
        cache = rows.new_cache(wrapped_by)
        _, wrapper = rows.find("a", 0, cache)
        return [weakref.ref(cache), weakref.ref(wrapper)]

    watched = [*another(), *another(), *another()]
    assert [ref() for ref in watched] == [None] * 6


def test_a_wrapper_is_made_once_for_each_function_and_key() -> None:
    made: list[tuple[str, Layer]] = []

    def wrapping(name: str) -> Callable[[Layer], Callable[..., Any]]:
        def wrap(layer: Layer) -> Callable[..., Any]:
            made.append((name, layer))
            return wrapped_by(layer)

        return wrap

    rows = table()
    first, second = rows.new_cache(wrapping("first")), rows.new_cache(wrapping("second"))
    for cache in (first, second, first, second):
        for key in "ab":
            entry, wrapper = rows.find(key, 0, cache)
            assert wrapper() is entry.layer
    a, b = (rows.entry(key, 0).layer for key in "ab")
    assert made == [("first", a), ("first", b), ("second", a), ("second", b)]


def test_wrapper_caches_are_hashed_by_identity() -> None:
    """Two empty caches are equal, and still two."""
    rows = table()
    first, second = rows.new_cache(wrapped_by), rows.new_cache(wrapped_by)
    assert first == second
    assert len({first, second}) == 2


def test_a_wrapper_whose_entry_is_forgotten_meanwhile_is_not_kept() -> None:
    """Another thread uses another key while the wrapper is being made."""

    def wrap(layer: Layer) -> Callable[..., Any]:
        rows.entry("b", 0)
        return wrapped_by(layer)

    rows = table(1)
    cache = rows.new_cache(wrap)
    entry, wrapper = rows.find("a", 0, cache)
    assert wrapper() is entry.layer
    assert (keys(rows), dict(cache)) == (["b"], {})
    assert rows.entry("a", 0) is entry


def test_a_function_that_cannot_be_wrapped_leaves_the_layer() -> None:
    def wrap(_: Layer) -> Callable[..., Any]:
        raise Boom

    rows = table()
    cache: WrapperCache = rows.new_cache(wrap)
    with pytest.raises(Boom):
        rows.find("a", 0, cache)
    assert (keys(rows), dict(cache)) == (["a"], {})


def test_a_freed_function_may_decorate_another() -> None:
    """A freed function may hold the last reference to an object whose finalizer decorates a function."""

    def wrap(layer: Layer) -> Callable[..., Any]:
        wrapper = wrapped_by(layer)
        weakref.finalize(wrapper, lambda: others.append(rows.new_cache(wrapped_by)))
        return wrapper

    rows, others = table(1), list[WrapperCache]()
    caches = [rows.new_cache(wrap) for _ in range(3)]
    for cache in caches:
        rows.find("a", 0, cache)
    rows.entry("b", 0)
    assert (keys(rows), len(others)) == (["b"], 3)


async def items() -> AsyncGenerator[int]:
    """Yield one item."""
    yield 1


@pytest.mark.usefixtures(without_gc.__name__)
def test_an_ended_stream_releases_its_entry_once() -> None:
    entry = KeyedEntry(Layer(), 0.0)
    watched = weakref.ref(entry)
    owner = KeyedStreamOwner(entry, items())
    with virtual_time() as clock:
        clock.advance(5)
        owner.ended()
        assert entry.used == 5
        clock.advance(5)
        owner.cut(None)
        assert entry.used == 5
    del entry
    assert watched() is None
