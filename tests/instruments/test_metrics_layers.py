"""Metrics of layers that are no policies, by real calls through them, in async code and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from redouble import (
    SYSTEM,
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    Coalesce,
    Fallback,
    Hedge,
    Layer,
    RateLimit,
    Throttle,
    Timeout,
    errors,
)
from redouble.instruments import memory
from redouble.instruments.memory import Metrics, Summary
from redouble.testing import virtual_time
from tests.support.fakes import Boom
from tests.support.instruments.counts import counts

Call = Callable[[], Awaitable[object]]


def measured(main: Call) -> Metrics:
    """Run a coroutine function in virtual time, and return its metrics."""
    with memory.instrument() as metrics, virtual_time():
        asyncio.run(main())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  any coroutine
    return metrics


async def fails() -> object:
    raise Boom


async def nothing() -> object:
    return None


async def second() -> object:
    """Take a second."""
    await SYSTEM.asleep(1)
    return "done"


def test_the_metrics_of_a_hedge() -> None:
    delays = iter([9, 0, 0.05])

    async def fetch() -> None:
        await SYSTEM.asleep(next(delays))

    async def main() -> None:
        hedge = Hedge(0.1, max_extra_load=1, name="region")
        await hedge(fetch)()  # the second attempt is faster
        await hedge(fetch)()  # the first is fast enough

    assert counts(measured(main), "region") == {"hedges": 1, "hedges_won": 1}


@pytest.mark.parametrize(
    ("layer", "call", "code"),
    [
        (Fallback(value=1, name="cached"), fails, Boom.__name__),
        (Fallback(value=1, until=bool, name="cached"), nothing, "not_accepted"),
    ],
)
def test_the_metrics_of_a_fallback(layer: Layer, call: Call, code: str) -> None:
    async def main() -> None:
        assert await layer.call(call) == 1
        assert await layer.call(second) == "done"

    assert counts(measured(main), "cached") == {f"fallbacks {code}": 1}


@pytest.mark.parametrize(
    ("gate", "by", "waits"),
    [
        (RateLimit(1, name="queue"), "rate_limit", Summary(2, 3, 1, 2)),
        (Bulkhead(1, None, name="queue"), "bulkhead", Summary(2, 3, 1, 2)),
        (RateLimit(1), "rate_limit", Summary(2, 3, 1, 2)),
        (RateLimit(1, burst=3, name="queue"), "rate_limit", Summary(0, 0, 0, 0)),
    ],
)
def test_the_wait_until_admission(gate: Any, by: str, waits: Summary) -> None:
    """Of calls that had to wait; a gate without a name has its type as the name."""

    async def main() -> None:
        await asyncio.gather(*(gate.call(second) for _ in range(3)))

    metrics = measured(main)
    many, total, least, most = metrics.histogram("gate_wait", name=gate.name or by, by=by)
    assert Summary(many, round(total, 6), round(least, 6), round(most, 6)) == waits


def test_the_metrics_of_gates_that_reject_and_of_a_limit_that_is_reached() -> None:
    async def main() -> None:
        rate, throttle = RateLimit(0.1, wait=0, name="tight"), Throttle(name="gentle", random=Least())
        for gate, call in ((rate, second), (rate, second), (throttle, fails), (throttle, fails)):
            with suppress(Boom, errors.Rejected):
                await gate.call(call)
        with suppress(errors.AttemptTimeout):
            await Timeout(0.5)(second)()

    metrics = measured(main)
    assert counts(metrics, "tight") == {"rejected rate_limit": 1}
    assert counts(metrics, "gentle") == {"rejected throttle": 1}
    assert metrics.counter("timeouts", name="second") == 1


class Least:
    """A random source that always draws the least number."""

    def random(self) -> float:
        return 0.0


def test_the_metrics_of_calls_that_share_one() -> None:
    async def main() -> None:
        coalesce = Coalesce(name="same")
        fetch = coalesce(second)
        await asyncio.gather(*(fetch() for _ in range(4)))
        await fetch()

    assert counts(measured(main), "same") == {"coalesced": 3}


def test_a_limit_that_has_adapted_is_a_gauge_and_its_queue_too() -> None:
    seen: list[float] = []

    async def main() -> None:
        gate = AdaptiveConcurrency(1, most=1, queue=9, wait=None, name="narrow")
        calls = [asyncio.ensure_future(gate.call(second)) for _ in range(3)]
        await SYSTEM.asleep(0.5)
        with memory.instrument() as gauges:
            seen.extend(gauges.gauge(f"gate_{what}", name="narrow") for what in ("limit", "in_use", "queued"))
        await asyncio.gather(*calls)

    metrics = measured(main)
    assert seen == [1, 1, 2]
    assert metrics.histogram("gate_wait", name="narrow", by="adaptive_concurrency").many == 2


def test_a_rate_that_has_adapted_is_a_gauge() -> None:
    async def main() -> None:
        with suppress(Boom):
            await rate.call(fails)

    rate = AdaptiveRate(on=Boom, name="adapted")
    metrics = measured(main)
    assert metrics.gauge("gate_rate", name="adapted", by="adaptive_rate") == 0.5
    assert metrics.series() == {}
