"""Calls that produce every metric, with fixed numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

from redouble import (
    AdaptiveRate,
    Bulkhead,
    CircuitBreaker,
    Gate,
    RetryBudget,
    Throttle,
    Timeout,
    TokenBucket,
    Worker,
    errors,
)
from redouble._telemetry.emit import emit_layer
from redouble._telemetry.observers import publish
from redouble.testing import virtual_time
from redouble.types import Event
from tests.support.fakes import Boom, Operation, Virtual, fail, ok
from tests.support.instruments.counts import policy
from tests.support.streams import ScriptedSource, Takes

__all__ = ["USED", "TwoClasses", "emit_layer_events", "everything", "limited_rate"]

USED = {"input_tokens": 1000, "cached_tokens": 400, "output_tokens": 200, "cost": 0.004}


@contextmanager
def everything(prefix: str = "") -> Generator[None]:
    """Make calls in virtual time; a budget, a breaker and a bulkhead exist until the end of the block.

    ``fetch`` fails once and takes 4 seconds in all, ``save`` is given up at once, ``read`` is a stream whose
    first item takes 3 seconds, ``chat`` asks a language model, ``mail`` is a full bulkhead, ``crawl`` is
    throttled, ``sleep`` times out, and each event of a layer has happened to ``region``.
    """
    kept = (
        TokenBucket(10, name=f"{prefix}bucket"),
        CircuitBreaker(name=f"{prefix}pay"),
        Throttle(name=f"{prefix}search"),
        limited_rate(f"{prefix}crawl"),
        RetryBudget(max_in_flight=0.2, minimum=3, name=f"{prefix}capped"),
        TwoClasses(f"{prefix}shares"),
        Worker(limit=20, name=f"{prefix}threads"),
    )
    gate = Bulkhead(1, 0, name=f"{prefix}mail")
    labels = {"team": "x", "tier": "1"}
    clock = Virtual()
    policy(name=f"{prefix}fetch", labels=labels, clock=clock).call(
        Operation([fail(takes=1), ok(takes=2)], clock)
    )
    with suppress(Boom):
        policy(name=f"{prefix}save", attempts=1, clock=clock).call(Operation([fail()], clock))
    list(
        policy(name=f"{prefix}read", clock=clock).stream(ScriptedSource([[Takes(3), 1, 2]], clock, []).items)
    )
    with virtual_time(), suppress(errors.AttemptTimeout):
        asyncio.run(Timeout(1).call(asyncio.sleep, 2))
    publish(Event("success", f"{prefix}chat", 1, 2.0, 2.0, usage=USED), None)
    emit_layer_events(f"{prefix}region")
    with gate:
        with suppress(errors.BulkheadFull):
            gate.call(int)
        yield
    assert len(kept) == 7


class TwoClasses(Gate):
    """A gate of the user's whose snapshot has the calls of two classes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.register()

    def snapshot(self) -> Mapping[str, float]:
        return {"in_use.interactive": 1, "in_use.batch": 2, "queued.interactive": 0, "queued.batch": 3}


def limited_rate(name: str) -> AdaptiveRate:
    """Return an adaptive rate that the server has throttled, so that it has a limit."""
    rate = AdaptiveRate(on=Boom, name=name)
    with suppress(Boom):
        rate.call(Operation([fail()], Virtual()))
    return rate


def emit_layer_events(name: str) -> None:
    """Emit each event of a layer that is no policy, with fixed numbers."""
    emit_layer("waited", "bulkhead", name, delay=0.25)
    emit_layer("limit_changed", "adaptive_concurrency", name, level=12.0)
    emit_layer("hedged", "hedge", name, attempt=2, elapsed=0.5)
    emit_layer("hedge_won", "hedge", name, attempt=2, elapsed=0.75)
    emit_layer("fallback", "fallback", name, error=ConnectionError("gone"))
    emit_layer("fallback", "fallback", name, value="refused")
    emit_layer("coalesced", "coalesce", name, elapsed=0.125)
