"""How long `Keyed` keeps a layer: until there are too many keys or it is idle, and no call uses it."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from redouble import SYSTEM
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import ASYNC, Boom
from tests.support.layers.keyed_calls import KeyedBulkheads
from tests.support.virtual_time import AROUND_LOOP, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

HOWS = pytest.mark.parametrize("how", ["decorated", "called", "stream", "of"])


# --------------------------------------------------------------- number of keys, idle time


@AROUND_LOOP
@HOWS
@pytest.mark.parametrize(
    ("most", "used", "made"),
    [
        (1, "aabba", "aba"),
        (2, "abab", "ab"),
        (2, "abcab", "abcab"),
        (2, "abacab", "abcb"),
        (3, "abcadbc", "abcdbc"),
        (3, "abcbadbac", "abcdc"),
    ],
)
def test_the_least_recently_used_is_made_again(place: str, how: str, most: int, used: str, made: str) -> None:
    uses = KeyedBulkheads(most)

    def blocking(_: VirtualClock) -> None:
        for key in used:
            uses.use(how, key)

    async def waiting(_: VirtualClock) -> None:
        for key in used:
            await uses.ause(how, key)

    at(place, blocking, waiting)
    assert uses.keys_made == made
    keys = min(most, len({*used}))
    assert uses.layers.snapshot() == {"keys": keys, "forgotten": len(made) - keys}


@AROUND_LOOP
@HOWS
def test_an_idle_layer_is_made_again(place: str, how: str) -> None:
    """At 0 a, at 10 a and b, at 19 a, at 21 b (idle for 11 s), at 31.5 a and b (for 12.5 s and 10.5 s)."""
    uses = KeyedBulkheads(idle=10)
    steps = [(0, "a"), (10, "a"), (0, "b"), (9, "a"), (2, "b"), (10.5, "a"), (0, "b"), (0, "a")]

    def blocking(clock: VirtualClock) -> None:
        for later, key in steps:
            clock.advance(later)
            uses.use(how, key)

    async def waiting(clock: VirtualClock) -> None:
        for later, key in steps:
            clock.advance(later)
            await uses.ause(how, key)

    at(place, blocking, waiting)
    assert uses.keys_made == "abbab"
    assert uses.layers.snapshot() == {"keys": 2, "forgotten": 3}


@pytest.mark.parametrize(
    ("idle", "made"), [(None, "a"), (600, "aa"), (timedelta(minutes=9), "aaa"), (0, "aaaa")]
)
@HOWS
def test_a_layer_is_kept_for_the_idle_time(how: str, idle: float | timedelta | None, made: str) -> None:
    with virtual_time() as clock:
        uses = KeyedBulkheads(idle=idle)
        for later in (0, 0, 1, 600, 601):
            clock.advance(later)
            uses.use(how, "a")
    assert uses.keys_made == made


@AROUND_LOOP
@pytest.mark.parametrize("how", ["decorated", "stream"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_call_is_a_use_until_its_end(place: str, how: str, fails: bool) -> None:
    """Calls take 100 s. After 9 s of idle time the layer is kept, and after 11 s it is made again."""
    uses = KeyedBulkheads(idle=10)

    def work() -> str:
        if fails:
            raise Boom
        return "done"

    @uses.layers
    def fetch(key: str) -> str:
        SYSTEM.sleep(100)
        return work()

    @uses.layers
    async def afetch(key: str) -> str:
        await SYSTEM.asleep(100)
        return work()

    @uses.layers
    def items(key: str) -> Iterator[str]:
        SYSTEM.sleep(100)
        yield work()

    @uses.layers
    async def aitems(key: str) -> AsyncIterator[str]:
        await SYSTEM.asleep(100)
        yield work()

    def blocking(clock: VirtualClock) -> None:
        for pause in (9, 11, 0):
            try:
                assert [*items("a")] if how == "stream" else [fetch("a")]
            except Boom:
                assert fails
            clock.advance(pause)

    async def waiting(clock: VirtualClock) -> None:
        for pause in (9, 11, 0):
            try:
                assert [item async for item in aitems("a")] if how == "stream" else [await afetch("a")]
            except Boom:
                assert fails
            clock.advance(pause)

    at(place, blocking, waiting)
    assert uses.keys_made == "aa"


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("ending", ["exhausted", "closed", "failed", "thrown back", "cancelled"])
def test_an_async_stream_is_a_use_until_its_end(colour: str, ending: str) -> None:
    uses = KeyedBulkheads(idle=10)

    @uses.layers
    async def items(key: str) -> AsyncGenerator[str, None]:
        yield key
        if ending == "failed":
            raise Boom
        if ending == "cancelled":
            await give_up()

    async def give_up() -> None:
        raise KeyboardInterrupt  # the same as a cancellation for a stream

    async def waiting(clock: VirtualClock) -> None:
        stream = items("a")
        assert await anext(stream) == "a"
        clock.advance(100)
        with suppress(Boom, KeyboardInterrupt, StopAsyncIteration):
            match ending:
                case "closed":
                    await stream.aclose()
                case "thrown back":
                    await stream.athrow(Boom())
                case _:
                    await anext(stream)
        del stream
        gc.collect()  # a thrown error refers to the frames it passes
        for pause in (9, 11):
            clock.advance(pause)
            uses.layers.of("a")

    at(f"{colour} around", lambda _: None, waiting)
    assert uses.keys_made == "aa"


def test_a_call_is_a_use_from_its_beginning() -> None:
    """A call starts at 9 s and is in flight at 15 s: the key has not been idle for more than 10 s."""
    with virtual_time() as clock:
        uses = KeyedBulkheads(idle=10)
        uses.fetch("a")
        clock.advance(9)

        def inside() -> None:
            clock.advance(6)
            uses.layers.of("b")
            assert uses.layers.snapshot() == {"keys": 2, "forgotten": 0}

        uses.fetch("a", inside)
    assert uses.keys_made == "ab"
