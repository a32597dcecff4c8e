"""Pipelines: the orders that other libraries recommend, and those that they reject."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from redouble import (
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Layer,
    Pipeline,
    Retry,
    RetryBudget,
    Timeout,
    Worker,
    presets,
)
from redouble.testing import Script, ok
from tests.conformance.flows import EVERY, in_colour
from tests.support.scripted import ScriptedError, Virtual

JITTERED = Backoff.exponential(0.1).full_jitter()
INSIDE, OUTSIDE = "Bulkhead inside Retry", "CircuitBreaker outside Retry"


def retry() -> Retry:
    return Retry(on=ScriptedError, attempts=3, backoff=JITTERED, budget=RetryBudget(), clock=Virtual())


def limit(seconds: float) -> Timeout:
    return Timeout(seconds, worker=Worker())  # the worker is for blocking code


class Order(NamedTuple):
    """The layers of another library's pipeline, outermost first, and the warnings of `check`."""

    fact: str
    make: Callable[[], Pipeline]
    names: str
    objections: list[str]


# A rate limit of others is a bulkhead here, and a hedge is a retry.
ORDERS = [
    Order(
        "pipeline.dotnet_standard",
        lambda: limit(30) | retry() | Bulkhead(10) | CircuitBreaker() | limit(2),
        "Timeout Retry Bulkhead CircuitBreaker Timeout",
        [INSIDE],
    ),
    Order(
        "pipeline.orders.resilience4j",
        lambda: retry() | CircuitBreaker() | limit(2) | Bulkhead(10),
        "Retry CircuitBreaker Timeout Bulkhead",
        [INSIDE],
    ),
    Order(
        "pipeline.orders.failsafe_go_docs",
        lambda: Fallback(value="instead") | retry() | CircuitBreaker() | limit(2),
        "Fallback Retry CircuitBreaker Timeout",
        [],
    ),
    # Finagle requeues requests that were not sent; the outer retry handles all other failures.
    Order(
        "pipeline.orders.finagle",
        lambda: limit(30) | retry() | limit(2) | CircuitBreaker() | presets.finagle(on=ConnectionError),
        "Timeout Retry Timeout CircuitBreaker Requeue",
        ["Retry inside Retry", OUTSIDE, "Retry without jitter"],
    ),
]

every_order = pytest.mark.parametrize("order", ORDERS, ids=[order.fact for order in ORDERS])


@every_order
def test_an_order_can_be_built_and_is_checked(order: Order) -> None:
    """`explain` shows the layers in this order, and `check` warns of known mistakes."""
    pipeline = order.make()
    drawn = pipeline.explain().replace("└─", "").splitlines()
    assert [line.split()[0] for line in drawn[: len(pipeline.layers)]] == order.names.split()
    warnings = pipeline.check()
    assert [objection.partition(":")[0] for objection in warnings] == order.objections


@every_order
@pytest.mark.parametrize("colour", EVERY)
def test_a_call_passes_through_all_layers(colour: str, order: Order) -> None:
    """Two failures, then a success: the result is that of the third attempt."""
    pipeline, script = order.make(), Script(ScriptedError("1"), ScriptedError("2"), ok("done"))
    assert in_colour(colour, pipeline(script), pipeline(script.aio)) == "done"
    assert len(script.calls) == 3


@pytest.mark.parametrize("colour", EVERY)
def test_pipeline_orders_failsafe_go_docs_the_fallback_is_last(colour: str) -> None:
    """pipeline.orders: the fallback value is returned after the last attempt."""
    pipeline, script = ORDERS[2].make(), Script(*[ScriptedError] * 3)
    assert in_colour(colour, pipeline(script), pipeline(script.aio)) == "instead"
    assert len(script.calls) == 3


@pytest.mark.parametrize("colour", EVERY)
def test_pipeline_kevlar_validation_retry_and_fallback_deviates(colour: str) -> None:
    """pipeline.kevlar_validation: a retry that sees no errors; Kevlar rejects it, here `check` warns."""
    pipeline = retry() | Fallback(value="instead", on=ScriptedError)
    assert [warning.partition(",")[0] for warning in pipeline.check()] == ["Fallback inside Retry"]
    assert (retry() | Fallback(value="instead", on=KeyError)).check() == []
    script = Script(ScriptedError)
    assert in_colour(colour, pipeline(script), pipeline(script.aio)) == "instead"


@pytest.mark.parametrize("layer", [CircuitBreaker(), Bulkhead(3)], ids=["breaker", "bulkhead"])
def test_pipeline_kevlar_validation_the_same_layer_twice_deviates(layer: Layer) -> None:
    """pipeline.kevlar_validation: it would count each call twice; Kevlar rejects it, here `check` warns."""
    assert any("twice" in warning for warning in (layer | layer).check())
    assert any("twice" in warning for warning in (layer | Timeout(2) | layer).check())
    assert (CircuitBreaker() | CircuitBreaker()).check() == []
