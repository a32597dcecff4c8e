"""The types of rate limits, adaptive limits, throttles, hedges and chaos: checked twice, and run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator, Mapping
from datetime import timedelta
from typing import Any, assert_type

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    Chaos,
    Hedge,
    Keyed,
    Layer,
    Pipeline,
    RateLimit,
    Retry,
    Throttle,
    TokenBucket,
    Worker,
    transient,
)
from redouble.errors import RateLimited
from redouble.types import Admission

pytestmark = pytest.mark.one_python

RATE = RateLimit(1000, burst=1000)
ADAPTIVE = AdaptiveRate()
CONCURRENCY = AdaptiveConcurrency()
THROTTLE = Throttle(on=OSError)  # no test raises OSError, so the throttle never rejects
HEDGE = Hedge(60)
CHAOS = Chaos(latency=0)


def key_of(url: str, *, chunk: int = 1) -> str:
    return url


def own_key(client: Client, url: str) -> str:
    return url


KEYED = Keyed(key_of, lambda: Bulkhead(10))
OF_CLIENTS = Keyed(own_key, lambda: Bulkhead(10))


def download(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


async def adownload(url: str, *, chunk: int = 1) -> bytes:
    return download(url, chunk=chunk)


@RATE
@ADAPTIVE
@CONCURRENCY
@THROTTLE
@KEYED
@CHAOS
def guarded(url: str, *, chunk: int = 1) -> bytes:
    return download(url, chunk=chunk)


@RATE
@ADAPTIVE
@CONCURRENCY
@THROTTLE
@KEYED
@HEDGE
@CHAOS
async def aguarded(url: str, *, chunk: int = 1) -> bytes:
    return download(url, chunk=chunk)


@RATE
@THROTTLE
@KEYED
@CHAOS
def dialogue(url: str) -> Generator[str, int, bytes]:
    got = yield url
    return b"x" * got


@RATE | ADAPTIVE | CONCURRENCY | KEYED | CHAOS
async def lines(url: str) -> AsyncIterator[str]:
    yield url


class Client:
    @OF_CLIENTS
    def get(self, url: str) -> bytes:
        return url.encode()

    @HEDGE
    async def aget(self, url: str) -> bytes:
        return url.encode()

    @RATE
    def lines(self, url: str) -> Iterator[str]:
        yield url

    @classmethod
    @THROTTLE
    def of_class(cls, url: str) -> bytes:
        return url.encode()

    @CHAOS
    @staticmethod
    def static(url: str) -> bytes:
        return url.encode()


def run(main: Coroutine[Any, Any, object]) -> None:
    asyncio.run(main)


# ------------------------------------------------------------------------------- all layers


def test_decorated_functions_keep_their_types() -> None:
    async def main() -> None:
        assert_type(await aguarded("a", chunk=2), bytes)
        assert_type(await Client().aget("a"), bytes)
        assert_type([line async for line in lines("a")], list[str])
        assert_type(await HEDGE.call(adownload, "a", chunk=2), bytes)
        task: Coroutine[Any, Any, bytes] = aguarded("a")
        assert_type(await task, bytes)

    assert_type(guarded("a", chunk=2), bytes)
    assert_type(dialogue("a"), Generator[str, int, bytes])
    assert_type(Client().get("a"), bytes)
    assert_type(next(Client().lines("a")), str)
    assert_type(Client.of_class("a"), bytes)
    assert_type(Client.static("a"), bytes)
    for layer in (RATE, ADAPTIVE, CONCURRENCY, THROTTLE, CHAOS, KEYED):
        assert_type(layer.call(download, "a", chunk=2), bytes)
        assert_type(layer | Retry(), Pipeline)
        assert_type(Retry() | layer, Pipeline)
    run(main())


@pytest.mark.parametrize("layer", [RATE, ADAPTIVE, CONCURRENCY, THROTTLE, CHAOS, KEYED])
def test_wrong_calls_through_a_layer_are_reported(layer: Layer) -> None:
    with pytest.raises(TypeError):
        layer.call(download, "a", size=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        layer(download)(chunk=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_wrong_calls_of_decorated_functions_are_reported() -> None:
    with pytest.raises(TypeError):
        guarded()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        run(aguarded("a", size=3))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUnknownArgumentType]
    with pytest.raises(TypeError):
        Client().get()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        RATE | 3  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]


def test_blocks() -> None:
    async def main() -> None:
        async with RATE as admission, CONCURRENCY, THROTTLE, ADAPTIVE:
            assert_type(admission, Admission)

    with RATE as admission, CONCURRENCY, THROTTLE, ADAPTIVE:
        assert_type(admission, Admission)
    run(main())
    with pytest.raises((TypeError, AttributeError)), HEDGE:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass


# ------------------------------------------------------------------------------ each layer


def cost_of_text(text: str) -> float:
    """Return the cost of a call."""
    return len(text)


def class_of_text(text: str) -> str | None:
    """Return the class of a call."""
    return text or None


def test_rates() -> None:
    RateLimit(10, timedelta(minutes=1), 5, 0, following=True, name="db")
    RateLimit(rate=0.5, per=60, burst=5, wait=None)
    RateLimit(100, per=60, window="sliding", cost=2, shares={"batch": 0.5}, priority="batch")
    RateLimit(100, burst=50, cost=cost_of_text, shares={"batch": 0.5}, priority=class_of_text)
    assert_type(RATE.acquire(0.5), None)
    with pytest.raises(ValueError, match="window"):
        RateLimit(1, window="rolling")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AdaptiveRate(OSError, timedelta(seconds=1), 0.1, until=bool, name="db")
    AdaptiveRate(on=[transient, OSError], wait=None)
    assert_type(RateLimited("late", retry_after=1.5).retry_after, float | None)
    assert_type(RATE.snapshot(), Mapping[str, float])
    assert_type(ADAPTIVE.snapshot(), Mapping[str, float | None])
    with pytest.raises(TypeError):
        RateLimit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        RateLimit("10/s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        RateLimit(10, burst=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        RateLimit(download)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        AdaptiveRate(on=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_concurrency_and_throttles() -> None:
    AdaptiveConcurrency(10, 1, 100, "vegas", 2, TimeoutError, slow=2, random=random.Random(3))
    AdaptiveConcurrency(by="aimd", window=timedelta(seconds=1), on=[transient])
    AdaptiveConcurrency(until=bool, queue=9, wait=None, order="lifo", shares={"batch": 0.5}, priority="batch")
    Throttle(until=bool, shares={"batch": 0.5}, priority=class_of_text)
    Throttle(1.5, timedelta(minutes=1), 0.9, 10, OSError, name="db", random=random)
    with pytest.raises(ValueError, match="by="):
        AdaptiveConcurrency(by="guess")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        AdaptiveConcurrency(10.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Throttle("2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Throttle(random=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_hedges() -> None:
    Hedge(0.1, None, hedges=2, different=adownload, budget=TokenBucket())
    Hedge(max_extra_load=0.1, on=(OSError, KeyError), until=lambda result: result != b"")
    Hedge(timedelta(seconds=1), name="db")
    assert_type(HEDGE.snapshot(), Mapping[str, float | None])
    with pytest.raises(TypeError):
        Hedge("1s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Hedge(adownload)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Hedge([0.1, timedelta(seconds=1)], hedges=2, different=[{"region": "eu"}, adownload], failover=True)
    Hedge(lambda number: None if number == 1 else 0.1, worker=Worker(grace=0))
    Hedge(minimum=100, shortest=0.01, longest=timedelta(seconds=1))
    with pytest.raises(TypeError):
        Hedge(1, different=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Hedge(1, budget=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_chaos() -> None:
    Chaos(fault=OSError, latency=timedelta(seconds=1), rate=0.5, seed=3, switch=False, name="db")
    Chaos(fault=OSError("x"), latency=lambda: 2.5)
    Chaos(fault=lambda: OSError("x"), latency=lambda: timedelta(seconds=1), switch=lambda: True)
    Chaos(result=None)
    CHAOS.switch = lambda: True
    CHAOS.switch = True
    assert_type(CHAOS.snapshot(), Mapping[str, float])
    with pytest.raises(TypeError):
        Chaos(fault=KeyboardInterrupt)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Chaos(fault="boom")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Chaos(latency="1s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Chaos(latency=1, switch="on")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Chaos(OSError)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
