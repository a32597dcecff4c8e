"""Calls in flight through `Keyed`: while a call runs, the layer of its key stays; then it is released."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from redouble import SYSTEM, Bulkhead, CircuitBreaker, Keyed, Layer, Retry, errors
from redouble.testing import VirtualClock
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.garbage_collection import without_gc
from tests.support.layers.keyed_calls import KeyedBulkheads, first
from tests.support.streams import until_closed
from tests.support.virtual_time import AROUND_LOOP, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

COLOURS = pytest.mark.parametrize("colour", ASYNC)
TIMES = 3


def use_other_keys(uses: KeyedBulkheads) -> None:
    """Use other keys, so that every layer that is not in use is forgotten."""
    for key in "xyz":
        uses.layers.of(key)


def still_full(uses: KeyedBulkheads, layer: Layer) -> None:
    """Assert that the layer of the key is the same, however it is looked up, and full."""
    use_other_keys(uses)
    with pytest.raises(errors.BulkheadFull):
        uses.fetch("a")
    use_other_keys(uses)
    with pytest.raises(errors.BulkheadFull):
        next(uses.items("a"))
    use_other_keys(uses)
    assert uses.layers.of("a") is layer


async def still_full_async(uses: KeyedBulkheads, layer: Layer) -> None:
    use_other_keys(uses)
    with pytest.raises(errors.BulkheadFull):
        await uses.afetch("a")
    use_other_keys(uses)
    with pytest.raises(errors.BulkheadFull):
        await anext(uses.aitems("a"))
    still_full(uses, layer)


def freed_afterwards(uses: KeyedBulkheads, layer: weakref.ref[Layer]) -> None:
    """Assert that nothing refers to the layer any more."""
    use_other_keys(uses)
    assert layer() is None
    assert uses.fetch("a") == "a"


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("fails", [False, True])
def test_a_call_keeps_its_layer(fails: bool) -> None:
    uses, seen = KeyedBulkheads(most=1), list[weakref.ref[Layer]]()

    @uses.layers
    def work(key: str) -> None:
        layer = uses.layers.of(key)
        seen.append(weakref.ref(layer))
        for _ in range(TIMES):
            still_full(uses, layer)
        del layer
        if fails:
            raise Boom

    try:
        work("a")
    except Boom:
        assert fails
    freed_afterwards(uses, seen[0])


@pytest.mark.usefixtures(without_gc.__name__)
@COLOURS
def test_a_coroutine_keeps_its_layer(colour: str) -> None:
    uses, seen = KeyedBulkheads(most=1), list[weakref.ref[Layer]]()

    @uses.layers
    async def work(key: str) -> None:
        for _ in range(TIMES):
            layer = uses.layers.of(key)
            seen.append(weakref.ref(layer))
            await still_full_async(uses, layer)
            await SYSTEM.asleep(0)
            del layer

    async def main() -> None:
        await work("a")
        await SYSTEM.asleep(0)

    in_colour(colour, lambda: None, main)
    freed_afterwards(uses, seen[0])


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("ending", ["exhausted", "closed", "dropped"])
def test_a_generator_keeps_its_layer(ending: str) -> None:
    uses = KeyedBulkheads(most=1)
    stream: Any = uses.items("a")
    assert next(stream) == "a"
    layer: Any = uses.layers.of("a")
    for _ in range(TIMES):
        still_full(uses, layer)
    layer = weakref.ref(layer)
    match ending:
        case "exhausted":
            assert [*stream] == ["a"]
        case "closed":
            stream.close()
        case _:
            stream = None
    freed_afterwards(uses, layer)


@pytest.mark.usefixtures(without_gc.__name__)
@COLOURS
@pytest.mark.parametrize("ending", ["exhausted", "closed", "dropped"])
def test_an_async_generator_keeps_its_layer(colour: str, ending: str) -> None:
    uses = KeyedBulkheads(most=1)

    async def main() -> None:
        stream: Any = uses.aitems("a")
        assert await anext(stream) == "a"
        layer: Any = uses.layers.of("a")
        for _ in range(TIMES):
            await still_full_async(uses, layer)
        layer = weakref.ref(layer)
        match ending:
            case "exhausted":
                assert [item async for item in stream] == ["a"]
            case "closed":
                await stream.aclose()
            case _:
                pass
        stream = None
        await SYSTEM.asleep(0)
        await until_closed(colour)
        freed_afterwards(uses, layer)

    in_colour(colour, lambda: None, main)


@AROUND_LOOP
def test_a_call_may_take_longer_than_the_idle_time(place: str) -> None:
    uses = KeyedBulkheads(idle=10)
    full: list[str] = []

    @uses.layers
    def work(key: str) -> None:
        SYSTEM.sleep(100)
        other()
        with pytest.raises(errors.BulkheadFull):
            uses.fetch(key)
        full.append(key)

    @uses.layers
    async def awork(key: str) -> None:
        await SYSTEM.asleep(100)
        other()
        with pytest.raises(errors.BulkheadFull):
            await uses.afetch(key)
        full.append(key)

    def other() -> None:
        uses.layers.of("b")

    def blocking(_: VirtualClock) -> None:
        work("a")

    at(place, blocking, lambda _: awork("a"))
    assert (full, uses.keys_made) == (["a"], "ab")


# ------------------------------------------------------------------------------- freed


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("colour", ["sync", *ASYNC])
@pytest.mark.parametrize("make", [lambda: Bulkhead(1), CircuitBreaker, lambda: Retry() | Bulkhead(1)])
def test_decorated_functions_are_freed(colour: str, make: Callable[[], Layer]) -> None:
    layers = Keyed(first, make)

    class Thing:
        def __call__(self, key: str) -> Thing:
            return self

    def plain() -> list[weakref.ref[Any]]:
        thing = Thing()

        @layers
        def work(key: str) -> Thing:
            return thing

        @layers
        def items(key: str) -> Iterator[Thing]:
            yield thing

        for key in "abc":
            assert (work(key), [*items(key)]) == (thing, [thing])
        assert layers.call(thing, "a") is thing
        return [weakref.ref(thing), weakref.ref(work), weakref.ref(items)]

    async def waited() -> list[weakref.ref[Any]]:
        thing = Thing()

        @layers
        async def work(key: str) -> Thing:
            return thing

        @layers
        async def items(key: str) -> AsyncIterator[Thing]:
            yield thing

        for key in "abc":
            assert (await work(key), [item async for item in items(key)]) == (thing, [thing])
        return [weakref.ref(thing), weakref.ref(work), weakref.ref(items)]

    watched: list[weakref.ref[Any]] = in_colour(colour, plain, waited)
    assert [ref() for ref in watched] == [None] * 3
    assert layers.snapshot()["keys"] == 3


def test_a_keyed_and_its_layers_are_freed() -> None:
    layers = Keyed(first, lambda: Bulkhead(1))
    watched: list[weakref.ref[Any]] = [weakref.ref(layers), weakref.ref(layers.of("a"))]
    layers(first)("a")
    del layers
    gc.collect()
    assert [ref() for ref in watched] == [None, None]
