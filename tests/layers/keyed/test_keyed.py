"""`Keyed`: a layer of its own for each key, for any layer, and in every colour."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redouble import (
    SYSTEM,
    Bulkhead,
    CircuitBreaker,
    Hedge,
    Keyed,
    Layer,
    Pipeline,
    RateLimit,
    Retry,
    Timeout,
    errors,
)
from redouble.testing import VirtualClock
from tests.support.fakes import Boom, in_colour
from tests.support.layers.keyed_calls import afetch, aitems, fetch, first, items
from tests.support.virtual_time import AROUND_LOOP, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

SHAPES = pytest.mark.parametrize("stream", [False, True], ids=["call", "stream"])

WORDS: dict[type[Exception], str] = {errors.CircuitOpen: "open", errors.RateLimited: "late", Boom: "boom"}


def called(place: str, layer: Layer, script: str, *, stream: bool = False) -> str:
    """Call with each letter of a script as the key, where capitals fail; return the result of each."""
    ends: list[str] = []

    def note(error: Exception) -> None:
        ends.append(WORDS.get(type(error)) or repr(error))

    def blocking(_: VirtualClock) -> None:
        for letter in script:
            try:
                if stream:
                    ends.extend(layer(items)(letter.lower(), letter.isupper()))
                else:
                    ends.append(layer.call(fetch, letter.lower(), letter.isupper()))
            except Exception as error:
                note(error)

    async def waiting(_: VirtualClock) -> None:
        for letter in script:
            try:
                if stream:
                    ends.extend([item async for item in layer(aitems)(letter.lower(), letter.isupper())])
                else:
                    ends.append(await layer.call(afetch, letter.lower(), letter.isupper()))
            except Exception as error:
                note(error)

    at(place, blocking, waiting)
    return " ".join(ends)


def limit_of(seconds: float) -> Timeout:
    return Timeout(seconds)


def retried_and_broken() -> Pipeline:
    return Retry(attempts=2, on=Boom, backoff=[0]) | CircuitBreaker(failures=3)


@AROUND_LOOP
@SHAPES
@pytest.mark.parametrize(
    ("make", "script", "ends"),
    [
        (lambda: CircuitBreaker(failures=2), "AABaabB", "boom boom boom open open b boom"),
        (lambda: RateLimit(1, per=60, wait=0), "aabab", "a late b late late"),
        (lambda: RateLimit(1, per=60, burst=2, wait=0), "aaabb", "a a late b b"),
        (retried_and_broken, "AAaBb", "boom open open boom b"),
    ],
    ids=["breaker", "rate", "burst", "pipeline"],
)
def test_each_key_has_its_own_layer(place: str, stream: bool, make: Any, script: str, ends: str) -> None:
    assert called(place, Keyed(first, make), script, stream=stream) == ends


@AROUND_LOOP
@SHAPES
def test_each_key_has_its_own_number_of_attempts(place: str, stream: bool) -> None:
    tries: list[str] = []

    def make(key: str) -> Retry:
        return Retry(
            attempts={"a": 1, "b": 3}[key], on=Boom, backoff=[0, 0], on_failure=lambda _: tries.append(key)
        )

    assert called(place, Keyed(first, make), "ABA", stream=stream) == "boom boom boom"
    assert "".join(tries) == "abbba"


@pytest.mark.parametrize("place", ["asyncio around", "trio around"])
@SHAPES
def test_each_key_has_its_own_limit(place: str, stream: bool) -> None:
    limits = Keyed(first, limit_of)

    @limits
    async def slow(seconds: float) -> str:
        await SYSTEM.asleep(2.5)
        return "in time"

    @limits
    async def slowly(seconds: float) -> AsyncIterator[str]:
        await SYSTEM.asleep(2.5)
        yield "in time"

    async def waiting(clock: VirtualClock) -> list[Any]:
        ends: list[Any] = []
        for seconds in (1, 5, 2):
            try:
                ends += [item async for item in slowly(seconds)] if stream else [await slow(seconds)]
            except errors.AttemptTimeout:
                ends.append("timeout")
            ends.append(clock.now())
        return ends

    assert at(place, lambda _: None, waiting) == ["timeout", 1, "in time", 3.5, "timeout", 5.5]


@pytest.mark.parametrize("place", ["asyncio around", "trio around"])
def test_each_key_is_hedged_separately(place: str) -> None:
    begun: list[str] = []
    hedges = Keyed(first, lambda: Hedge(1, None))

    @hedges
    async def slow(key: str, seconds: float) -> str:
        begun.append(key)
        await SYSTEM.asleep(seconds)
        return key

    async def waiting(_: VirtualClock) -> None:
        assert [await slow("a", 0.5), await slow("b", 1.5), await slow("a", 0.5)] == ["a", "b", "a"]
        assert [hedges.of(key).snapshot()["hedged"] for key in "ab"] == [0, 1]

    at(place, lambda _: None, waiting)
    assert begun == ["a", "b", "b", "a"]


@AROUND_LOOP
def test_a_full_bulkhead_of_one_key_does_not_affect_other_keys(place: str) -> None:
    bulkheads = Keyed(first, lambda: Bulkhead(1, 0))

    @bulkheads
    def work(*keys: str) -> str:
        return keys[0] + (work(*keys[1:]) if keys[1:] else "")

    @bulkheads
    async def awork(*keys: str) -> str:
        return keys[0] + (await awork(*keys[1:]) if keys[1:] else "")

    async def waiting(_: VirtualClock) -> None:
        assert await awork("a", "b", "c") == "abc"
        with pytest.raises(errors.BulkheadFull):
            await awork("a", "b", "a")
        assert [bulkheads.of(key).snapshot()["in_use"] for key in "abc"] == [0, 0, 0]

    def blocking(_: VirtualClock) -> None:
        assert work("a", "b", "c") == "abc"
        with pytest.raises(errors.BulkheadFull):
            work("a", "b", "a")
        assert [bulkheads.of(key).snapshot()["in_use"] for key in "abc"] == [0, 0, 0]

    at(place, blocking, waiting)


@SHAPES
def test_functions_share_the_layers(colour: str, stream: bool) -> None:
    """A call and a stream with the same key too."""
    bulkheads = Keyed(first, lambda: Bulkhead(1, 0))
    other, aother = bulkheads(fetch), bulkheads(afetch)

    def nested() -> Iterator[str]:
        with pytest.raises(errors.BulkheadFull):
            other("a")
        yield other("b")

    @bulkheads
    def work(key: str) -> str:
        return next(nested())

    @bulkheads
    def work_items(key: str) -> Iterator[str]:
        yield from nested()

    async def anested() -> str:
        with pytest.raises(errors.BulkheadFull):
            await aother("a")
        answer: str = await aother("b")
        return answer

    @bulkheads
    async def awork(key: str) -> str:
        return await anested()

    @bulkheads
    async def awork_items(key: str) -> AsyncIterator[str]:
        yield await anested()

    async def waiting() -> list[str]:
        return [item async for item in awork_items("a")] if stream else [await awork("a")]

    assert in_colour(colour, lambda: [*work_items("a")] if stream else [work("a")], waiting) == ["b"]
