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
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.virtual_time import at, unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

PLACES = pytest.mark.parametrize("place", ["sync", "thread", *(f"{colour} around" for colour in ASYNC)])
SHAPES = pytest.mark.parametrize("stream", [False, True], ids=["call", "stream"])

WORDS: dict[type[Exception], str] = {errors.CircuitOpen: "open", errors.RateLimited: "late", Boom: "boom"}


def first(key: Any, *_: object) -> Any:
    return key


def fetch(key: Any, *fails: bool) -> Any:
    if any(fails):
        raise Boom
    return key


async def afetch(key: Any, *fails: bool) -> Any:
    return fetch(key, *fails)


def items(key: Any, *fails: bool) -> Iterator[Any]:
    yield fetch(key, *fails)


async def aitems(key: Any, *fails: bool) -> AsyncIterator[Any]:
    yield fetch(key, *fails)


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


@PLACES
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
def test_each_key_has_its_own(place: str, stream: bool, make: Any, script: str, ends: str) -> None:
    assert called(place, Keyed(first, make), script, stream=stream) == ends


@PLACES
@SHAPES
def test_each_key_is_retried_as_it_is_meant(place: str, stream: bool) -> None:
    tries: list[str] = []

    def make(key: str) -> Retry:
        return Retry(
            attempts={"a": 1, "b": 3}[key], on=Boom, backoff=[0, 0], on_failure=lambda _: tries.append(key)
        )

    assert called(place, Keyed(first, make), "ABA", stream=stream) == "boom boom boom"
    assert "".join(tries) == "abbba"


@pytest.mark.parametrize("place", ["asyncio around", "trio around"])
@SHAPES
def test_each_key_has_a_limit_of_its_own(place: str, stream: bool) -> None:
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
                ends.append("cut")
            ends.append(clock.now())
        return ends

    assert at(place, lambda _: None, waiting) == ["cut", 1, "in time", 3.5, "cut", 5.5]


@pytest.mark.parametrize("place", ["asyncio around", "trio around"])
def test_each_key_is_hedged_by_itself(place: str) -> None:
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


@PLACES
def test_a_full_house_of_one_key_is_not_in_the_way_of_others(place: str) -> None:
    houses = Keyed(first, lambda: Bulkhead(1, 0))

    @houses
    def visit(*keys: str) -> str:
        return keys[0] + (visit(*keys[1:]) if keys[1:] else "")

    @houses
    async def avisit(*keys: str) -> str:
        return keys[0] + (await avisit(*keys[1:]) if keys[1:] else "")

    async def waiting(_: VirtualClock) -> None:
        assert await avisit("a", "b", "c") == "abc"
        with pytest.raises(errors.BulkheadFull):
            await avisit("a", "b", "a")
        assert [houses.of(key).snapshot()["in_use"] for key in "abc"] == [0, 0, 0]

    def blocking(_: VirtualClock) -> None:
        assert visit("a", "b", "c") == "abc"
        with pytest.raises(errors.BulkheadFull):
            visit("a", "b", "a")
        assert [houses.of(key).snapshot()["in_use"] for key in "abc"] == [0, 0, 0]

    at(place, blocking, waiting)


@SHAPES
def test_functions_share_the_layers(colour: str, stream: bool) -> None:
    """A call and a stream too: a key is a key."""
    houses = Keyed(first, lambda: Bulkhead(1, 0))
    other, aother = houses(fetch), houses(afetch)

    def inside() -> Iterator[str]:
        with pytest.raises(errors.BulkheadFull):
            other("a")
        yield other("b")

    @houses
    def visit(key: str) -> str:
        return next(inside())

    @houses
    def visits(key: str) -> Iterator[str]:
        yield from inside()

    async def ainside() -> str:
        with pytest.raises(errors.BulkheadFull):
            await aother("a")
        answer: str = await aother("b")
        return answer

    @houses
    async def avisit(key: str) -> str:
        return await ainside()

    @houses
    async def avisits(key: str) -> AsyncIterator[str]:
        yield await ainside()

    async def waiting() -> list[str]:
        return [item async for item in avisits("a")] if stream else [await avisit("a")]

    assert in_colour(colour, lambda: [*visits("a")] if stream else [visit("a")], waiting) == ["b"]
