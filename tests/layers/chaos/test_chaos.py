"""`Chaos` injects faults, latency and results, in every colour; and the layers around it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redouble import (
    Bulkhead,
    Chaos,
    CircuitBreaker,
    Fallback,
    Layer,
    Pipeline,
    Retry,
    Timeout,
    Worker,
    errors,
    report,
)
from redouble.testing import VirtualClock
from tests.support.fakes import ASYNC, Boom
from tests.support.virtual_time import at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

WAITING = [f"{colour} around" for colour in ASYNC]
PLACES = pytest.mark.parametrize("place", ["sync", "thread", *WAITING])
SHAPES = pytest.mark.parametrize("stream", [False, True], ids=["call", "stream"])


class Service:
    """The functions inside the layers, of all kinds: they record which calls reached them."""

    def __init__(self) -> None:
        self.reached: list[int] = []

    def fetch(self, number: int) -> int:
        self.reached.append(number)
        return number

    async def afetch(self, number: int) -> int:
        return self.fetch(number)

    def items(self, number: int) -> Iterator[int]:
        yield self.fetch(number)
        yield -number

    async def aitems(self, number: int) -> AsyncIterator[int]:
        for item in self.items(number):
            yield item


def called(place: str, layer: Layer, calls: int, service: Service, *, stream: bool = False) -> list[Any]:
    """Make calls one after the other; return the result of each, and its duration in seconds."""
    ends: list[Any] = []

    def blocking(clock: VirtualClock) -> None:
        for number in range(calls):
            try:
                end: Any = [*layer(service.items)(number)] if stream else layer(service.fetch)(number)
            except Exception as error:
                end = error
            ends.append((end, clock.now()))

    async def waiting(clock: VirtualClock) -> None:
        for number in range(calls):
            try:
                if stream:
                    end: Any = [item async for item in layer(service.aitems)(number)]
                else:
                    end = await layer(service.afetch)(number)
            except Exception as error:
                end = error
            ends.append((end, clock.now()))

    at(place, blocking, waiting)
    return ends


def as_usual(calls: int, *, stream: bool) -> list[Any]:
    return [[number, -number] if stream else number for number in range(calls)]


# ----------------------------------------------------------------------------- injection


@PLACES
@SHAPES
def test_a_fault_is_raised_instead_of_calling(place: str, stream: bool) -> None:
    service, chaos = Service(), Chaos(fault=ConnectionError, rate=1)
    ends = called(place, chaos, 3, service, stream=stream)
    assert [(type(error), str(error)) for error, _ in ends] == [(ConnectionError, "injected by Chaos")] * 3
    assert len({id(error) for error, _ in ends}) == 3, "a new one each time"
    assert service.reached == []
    assert ends[-1][1] == 0
    assert chaos.snapshot() == {"hit": 3, "rate": 1, "on": True}


@PLACES
@SHAPES
def test_latency_comes_before_the_call(place: str, stream: bool) -> None:
    service = Service()
    ends = called(place, Chaos(latency=2.5, rate=1), 2, service, stream=stream)
    assert [end for end, _ in ends] == as_usual(2, stream=stream)
    assert [moment for _, moment in ends] == [2.5, 5]
    assert service.reached == [0, 1]


@PLACES
@SHAPES
def test_latency_comes_before_the_fault(place: str, stream: bool) -> None:
    service = Service()
    [(error, moment)] = called(place, Chaos(latency=2, fault=Boom, rate=1), 1, service, stream=stream)
    assert (type(error), moment, service.reached) == (Boom, 2, [])


@PLACES
def test_latency_comes_before_the_result(place: str) -> None:
    service = Service()
    assert called(place, Chaos(latency=2, result="x", rate=1), 2, service) == [("x", 2), ("x", 4)]
    assert service.reached == []


@PLACES
@SHAPES
@pytest.mark.parametrize("off", [{"rate": 0}, {"rate": 1, "switch": False}], ids=["rate", "switch"])
def test_nothing_is_injected_while_it_is_off(place: str, stream: bool, off: dict[str, Any]) -> None:
    chaos = Chaos(fault=Boom, latency=9, **off)
    ends = called(place, chaos, 5, Service(), stream=stream)
    assert ends == [(end, 0) for end in as_usual(5, stream=stream)]
    assert chaos.snapshot()["hit"] == 0


@PLACES
@SHAPES
@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_hits_the_same_calls(place: str, stream: bool, seed: int) -> None:
    draws, service = random.Random(seed), Service()
    spared = [number for number in range(50) if draws.random() >= 0.3]
    chaos = Chaos(fault=Boom, rate=0.3, seed=seed)
    called(place, chaos, 50, service, stream=stream)
    assert service.reached == spared
    assert chaos.snapshot()["hit"] == 50 - len(spared)


def test_each_chaos_has_its_own_random_numbers() -> None:
    alone, between = Service(), Service()
    called("sync", Chaos(fault=Boom, rate=0.5, seed=1), 20, alone)
    first, other = Chaos(fault=Boom, rate=0.5, seed=1), Chaos(fault=Boom, rate=0.5, seed=2)
    for number in range(20):
        random.random()
        Fallback(value=None).call(other(alone.fetch), -1)
        Fallback(value=None).call(first(between.fetch), number)
    assert between.reached == [number for number in alone.reached if number >= 0]


def test_without_a_seed_it_uses_the_random_module() -> None:
    before = random.getstate()
    try:
        random.seed(5)
        spared = [number for number in range(30) if random.random() >= 0.5]
        random.seed(5)
        service = Service()
        called("sync", Chaos(fault=Boom, rate=0.5), 30, service)
    finally:
        random.setstate(before)
    assert service.reached == spared


# ---------------------------------------------------------------------------- layers around it


@pytest.mark.parametrize("place", ["asyncio around", "trio around"])
@SHAPES
def test_a_timeout_ends_the_latency(place: str, stream: bool) -> None:
    service, layers = Service(), Timeout(1) | Chaos(latency=5, rate=1)
    [(error, moment)] = called(place, layers, 1, service, stream=stream)
    assert (type(error), moment, service.reached) == (errors.AttemptTimeout, 1, [])


@pytest.mark.parametrize("place", ["sync", "thread"])
def test_a_timeout_ends_the_latency_on_a_worker(place: str) -> None:
    layers = Timeout(1, worker=Worker(grace=60)) | Chaos(latency=5, rate=1)
    [(error, _)] = called(place, layers, 1, Service())
    assert type(error) is errors.AttemptTimeout


@PLACES
@SHAPES
def test_a_retry_retries_an_injected_fault(place: str, stream: bool) -> None:
    """The seed hits the first two attempts, and not the third."""
    draws = (random.Random(seed) for seed in range(1000))
    seed = next(n for n, one in enumerate(draws) if [one.random() < 0.5 for _ in range(3)] == [1, 1, 0])
    service = Service()
    layers = Retry(backoff=[1, 2, 4]) | Chaos(fault=ConnectionError, rate=0.5, seed=seed)
    assert called(place, layers, 1, service, stream=stream) == [(as_usual(1, stream=stream)[0], 3)]
    assert service.reached == [0]


@PLACES
@SHAPES
def test_a_retry_gives_up_if_every_attempt_is_hit(place: str, stream: bool) -> None:
    chaos = Chaos(fault=TimeoutError("late"), rate=1)
    [(error, moment)] = called(place, Retry(attempts=3, backoff=[1, 1]) | chaos, 1, Service(), stream=stream)
    found = report(error)
    assert found is not None
    assert (found.reason, found.attempts, moment, chaos.snapshot()["hit"]) == ("attempts", 3, 2, 3)
    assert [record.error_text for record in found.history] == ["late"] * 3


def test_injected_faults_open_a_breaker() -> None:
    breaker = CircuitBreaker(failures=3)
    ends = called("sync", breaker | Chaos(fault=Boom, rate=1), 5, Service())
    assert [type(error) for error, _ in ends] == [Boom] * 3 + [errors.CircuitOpen] * 2


CHAOS = Chaos(fault=Boom)


@pytest.mark.parametrize(
    ("layers", "inside"),
    [
        (CHAOS | Retry(), "Retry"),
        (Retry() | CHAOS | Timeout(1), "Timeout"),
        (CHAOS | Bulkhead(1) | CircuitBreaker(), "Bulkhead"),
        (CHAOS | Chaos(latency=1) | Timeout(1), "Timeout"),
    ],
)
def test_lint_reports_a_layer_inside_it(layers: Pipeline, inside: str) -> None:
    problems = [line for line in layers.check() if line.startswith("Chaos")]
    assert problems[0].startswith(f"Chaos outside {inside}: the layers inside it never see its failures")
    assert problems[0].endswith("; put it innermost")


@pytest.mark.parametrize("layers", [Retry() | CHAOS, Timeout(1) | CHAOS | Chaos(latency=1), Pipeline(CHAOS)])
def test_lint_accepts_it_innermost(layers: Pipeline) -> None:
    assert not [line for line in layers.check() if "Chaos" in line]
