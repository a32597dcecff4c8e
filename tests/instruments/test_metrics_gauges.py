"""Gauges are read at each export: budgets, breakers, bulkheads and other limits that have a name."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event
from typing import Any

import pytest

from redouble import (
    SYSTEM,
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    Chaos,
    CircuitBreaker,
    Gate,
    Kind,
    RateLimit,
    Retry,
    RetryBudget,
    Throttle,
    TokenBucket,
    Worker,
    errors,
    priority,
)
from redouble.instruments import memory
from redouble.instruments._metric_definitions import METRICS, STATES
from redouble.instruments._metrics_recorder import read_gauge
from tests.support.bulkhead_callers import callers
from tests.support.fakes import Boom, Operation, Virtual, fail, ok
from tests.support.instruments.sample_events import TwoClasses, limited_rate
from tests.support.layers.breaker_scripts import BreakerScript

GAUGES = [metric for metric in METRICS if metric.kind == "gauge"]


def shown(name: str) -> dict[str, float]:
    """Return the values of all gauges with a name, by metric and state."""
    return {
        " ".join([metric.name, *rest]): value
        for metric in GAUGES
        for (whose, *rest), value in read_gauge(metric).items()
        if whose == name
    }


def states(name: str) -> dict[str, float]:
    with memory.instrument() as metrics:
        return {state: metrics.gauge("breaker_state", name=name, state=state) for state in STATES}


def test_the_gauge_of_a_token_bucket() -> None:
    bucket = TokenBucket(10, {None: 3}, name="gauge bucket")
    assert shown("gauge bucket") == {"budget_tokens": 10}
    assert bucket.spend(Kind.unknown, 0.0) is not None
    with memory.instrument() as metrics:
        assert metrics.gauge("budget_tokens", name="gauge bucket") == 7
        while bucket.spend(Kind.unknown, 0.0) is not None:
            pass
        assert metrics.gauge("budget_tokens", name="gauge bucket") == 1


def test_the_gauge_of_an_empty_bucket() -> None:
    empty = TokenBucket(0, name="gauge empty")
    assert shown("gauge empty") == {"budget_tokens": empty.capacity} == {"budget_tokens": 0}


def test_the_gauge_of_a_retry_budget() -> None:
    budget = RetryBudget(per_second=1, name="gauge budget")
    left = budget.snapshot()["available"]
    assert left > 0
    assert shown("gauge budget") == {"budget_tokens": left}
    assert budget.spend(Kind.unknown, SYSTEM.now()) is not None
    assert shown("gauge budget") == {"budget_tokens": left - 1}


def test_an_unused_budget_shows_its_current_tokens() -> None:
    """Tokens spent a while ago are refilled in the gauge without a call."""
    bucket = TokenBucket(10, {None: 10}, refill_per_second=1, name="gauge refilled")
    budget = RetryBudget(per_second=1, name="gauge window")
    left, before = budget.snapshot()["available"], SYSTEM.now() - 60
    assert bucket.spend(Kind.unknown, before) is not None
    assert budget.spend(Kind.unknown, before) is not None
    assert (bucket.snapshot()["tokens"], budget.snapshot()["available"]) == (0, left - 1)
    assert (shown("gauge refilled"), shown("gauge window")) == (
        {"budget_tokens": 10},
        {"budget_tokens": left},
    )


@pytest.mark.parametrize(
    ("script", "state"),
    [("good", "closed"), ("bad", "open"), ("bad +10 a>", "half_open"), ("isolate", "isolated")],
)
def test_the_gauges_of_a_breaker(script: str, state: str) -> None:
    """The current state is 1 and the others are 0, so that an earlier state does not stay in the export."""
    described = BreakerScript(failures=1, cooldown=10, name=f"gauge {state}")
    described.run(script)
    assert described.breaker.state == state
    assert states(f"gauge {state}") == dict.fromkeys(STATES, 0) | {state: 1}


def test_breakers_of_one_name_are_added_up() -> None:
    """For example, one breaker per host."""
    kept = [CircuitBreaker(name="gauge many") for _ in range(3)]
    kept[0].isolate()
    assert states("gauge many") == {
        "closed": 2,
        "half_open": 0,
        "open": 0,
        "isolated": 1,
        "disabled": 0,
        "metrics_only": 0,
    }
    with memory.instrument() as metrics:
        assert metrics.gauge("breaker_state", name="gauge many") == 3


def test_budgets_of_one_name_are_added_up() -> None:
    kept = (TokenBucket(10, name="gauge both"), TokenBucket(5, name="gauge both"))
    assert shown("gauge both") == {"budget_tokens": 15}
    assert len(kept) == 2


def test_the_gauges_of_a_bulkhead() -> None:
    with callers(Bulkhead(2, None, name="gauge crowd")) as calls:
        assert shown("gauge crowd") == slots(in_use=0, queued=0)
        for colour in ("sync", "asyncio", "trio"):
            calls.start(colour)
        assert shown("gauge crowd") == slots(in_use=2, queued=1)
    assert shown("gauge crowd") == slots(in_use=0, queued=0)


def slots(*, in_use: float, queued: float) -> dict[str, float]:
    """Return the gauges of a bulkhead of two slots."""
    return {
        "bulkhead_in_use": in_use,
        "bulkhead_queued": queued,
        "gate_limit bulkhead": 2,
        "gate_in_use bulkhead": in_use,
        "gate_queued bulkhead": queued,
    }


def test_the_gauges_of_adaptive_limits() -> None:
    """A rate without a limit has none."""
    kept = (
        AdaptiveConcurrency(7, name="gauge latency"),
        limited_rate("gauge throttled"),
        AdaptiveRate(name="gauge unlimited"),
    )
    assert shown("gauge latency") == {
        "gate_limit adaptive_concurrency": 7,
        "gate_in_use adaptive_concurrency": 0,
    }
    assert shown("gauge throttled") == {"gate_rate adaptive_rate": 0.5, "gate_queued adaptive_rate": 0}
    assert shown("gauge unlimited") == {"gate_queued adaptive_rate": 0}
    assert len(kept) == 3


def test_the_gauges_of_a_throttle() -> None:
    throttle = Throttle(name="gauge search")
    for fails in (False, True, True):
        with suppress(Boom):
            throttle.call(Operation([fail() if fails else ok()], Virtual()))
    assert shown("gauge search") == {"throttle_requests": 3, "throttle_accepts": 1}


def test_a_gate_of_the_user_has_the_gauges_that_its_snapshot_has() -> None:
    class HalfOpenPool(Gate):
        name = "gauge own"

        def snapshot(self) -> Mapping[str, Any]:
            return {"limit": 3, "in_use": None, "state": "warm"}

    own = HalfOpenPool()
    own.register()
    assert shown("gauge own") == {"gate_limit half_open_pool": 3}


def test_a_layer_that_is_no_gate_has_no_gauges_of_gates() -> None:
    """The rate of a `Chaos` is a share of calls."""
    chaos = Chaos(fault=Boom, rate=0.5, name="gauge chaos")
    assert chaos.snapshot()["rate"] == 0.5
    assert shown("gauge chaos") == {}


def test_the_gauges_of_classes() -> None:
    gate = TwoClasses("gauge classes")
    assert shown("gauge classes") == {
        "gate_class_in_use two_classes interactive": 1,
        "gate_class_in_use two_classes batch": 2,
        "gate_class_queued two_classes interactive": 0,
        "gate_class_queued two_classes batch": 3,
    }
    assert gate.snapshot()


def test_the_gauges_of_a_bulkhead_with_shares() -> None:
    gate = Bulkhead(4, 0, shares={"interactive": 0.5, "batch": 0.25}, name="gauge ranked")
    with priority("batch"), gate:
        gauges = shown("gauge ranked")
    assert {name: value for name, value in gauges.items() if "class" in name} == {
        "gate_class_in_use bulkhead interactive": 0,
        "gate_class_in_use bulkhead batch": 1,
        "gate_class_queued bulkhead interactive": 0,
        "gate_class_queued bulkhead batch": 0,
    }


def test_the_gauge_of_a_rate_limit_is_calls_a_second() -> None:
    kept = RateLimit(120, per=60, name="gauge paced")
    assert shown("gauge paced") == {"gate_rate rate_limit": 2, "gate_queued rate_limit": 0}
    assert kept.rate == 120


def test_the_gauge_of_retries_in_flight() -> None:
    budget = RetryBudget(max_in_flight=0.5, minimum=2, name="gauge capped")
    assert shown("gauge capped")["budget_in_flight"] == 0

    def work() -> None:
        seen.append(shown("gauge capped")["budget_in_flight"])
        raise Boom

    seen: list[float] = []
    Retry(on=Boom, attempts=2, backoff=[0], budget=budget).run(work)
    assert seen == [0, 1]
    assert shown("gauge capped")["budget_in_flight"] == 0


def test_the_gauges_of_a_worker_with_a_limit() -> None:
    """An abandoned thread holds its place until it ends."""
    io, release = Worker(limit=2, grace=0, name="gauge io"), Event()
    Retry(attempts=1, attempt_timeout=0.01, worker=io).run(release.wait)
    abandoned = shown("gauge io")
    release.set()
    assert abandoned == {
        "gate_limit worker": 2,
        "gate_in_use worker": 1,
        "gate_queued worker": 0,
        "worker_abandoned": 1,
    }


@pytest.mark.parametrize(
    "make",
    [lambda: TokenBucket(99999), CircuitBreaker, lambda: Bulkhead(3), RetryBudget, lambda: Worker(limit=2)],
)
def test_unnamed_objects_have_no_gauge(make: Callable[[], object]) -> None:
    gc.collect()  # what other tests have left
    before = {metric.name: {*read_gauge(metric)} for metric in GAUGES}
    kept = make()
    assert {metric.name: {*read_gauge(metric)} for metric in GAUGES} == before
    assert kept is not None


def test_freed_objects_have_no_gauge() -> None:
    bucket = TokenBucket(3, name="gauge gone")
    assert shown("gauge gone")
    del bucket
    gc.collect()
    assert shown("gauge gone") == {}


def test_an_unreadable_object_hides_no_other() -> None:
    class Broken(TokenBucket):
        def snapshot(self, now: float | None = None, /) -> Mapping[str, float]:
            raise ZeroDivisionError("a bug of the subclass")

    kept = (Broken(3, name="gauge broken"), TokenBucket(4, name="gauge fine"))
    assert (shown("gauge broken"), shown("gauge fine")) == ({}, {"budget_tokens": 4})
    assert len(kept) == 2


def test_rejections_are_counted_by_name_and_type() -> None:
    breaker = CircuitBreaker(name="pay", clock=Virtual())
    breaker.isolate()
    full, unnamed = Bulkhead(1, 0, name="mail"), Bulkhead(1, 0)
    with memory.instrument() as metrics, full, unnamed:
        for gate in (breaker, breaker, full, unnamed):
            with pytest.raises(errors.Rejected):
                gate.call(int)
    assert metrics.series() == {
        "rejected": {
            (("name", "pay"), ("by", "circuit_breaker")): 2,
            (("name", "mail"), ("by", "bulkhead")): 1,
            (("name", "bulkhead"), ("by", "bulkhead")): 1,
        }
    }
