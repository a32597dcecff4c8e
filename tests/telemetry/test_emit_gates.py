"""Events of gates: one for every rejected call, on every path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import (
    SYSTEM,
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    CircuitBreaker,
    Gate,
    Hints,
    Keyed,
    Layer,
    RateLimit,
    Retry,
    Throttle,
    Timeout,
    Worker,
    errors,
    observe,
)
from redouble._telemetry.emit import layer_kind
from redouble.testing import VirtualClock, recorded
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, Draws
from tests.support.layers.breaker_scripts import BreakerScript, Service, result_of
from tests.support.virtual_time import at

pytestmark = pytest.mark.usefixtures("no_observers_left")


class Turnstile(Gate):
    """A user's gate, which rejects every call."""

    def __init__(self, name: str | None) -> None:
        if name is not None:
            self.name = name

    def admit(self, now: float, /) -> None:
        raise errors.Rejected("closed", retry_after=3)


class OwnBulkhead(Bulkhead):
    """A user's gate with its own admission."""

    def admit(self, now: float, /) -> Any:
        return super().admit(now)


def full(gate: Any) -> Any:
    """Admit one call, which stays in flight."""
    gate.admit(SYSTEM.now())
    return gate


def throttled(name: str | None) -> AdaptiveRate:
    gate = AdaptiveRate(Boom, wait=0, least=0.001, name=name)
    gate.ended(None, Boom(), SYSTEM.now())
    return gate


def overloaded(name: str | None) -> Throttle:
    gate = Throttle(random=Draws(0.0), name=name)
    for _ in range(9):
        gate.ended(None, Boom(), SYSTEM.now())
    return gate


def isolated(name: str | None) -> CircuitBreaker:
    breaker = CircuitBreaker(name=name)
    breaker.isolate()
    return breaker


def opened(name: str | None) -> CircuitBreaker:
    breaker = CircuitBreaker(failures=1, cooldown=1000, name=name)
    breaker.ended(breaker.admit(SYSTEM.now()), Boom(), SYSTEM.now())
    return breaker


# the gate, the type in its events, how it rejects, and whether it has a `retry_after`
GATES: dict[str, tuple[Callable[[str | None], Any], str, type[errors.Rejected], bool]] = {
    "bulkhead": (lambda name: full(Bulkhead(1, 0, name=name)), "bulkhead", errors.BulkheadFull, False),
    "queue": (lambda name: full(Bulkhead(1, 9, 0, name=name)), "bulkhead", errors.BulkheadFull, False),
    "own bulkhead": (
        lambda name: full(OwnBulkhead(1, 0, name=name)), "bulkhead", errors.BulkheadFull, False
    ),
    "isolated": (isolated, "circuit_breaker", errors.CircuitOpen, False),
    "open": (opened, "circuit_breaker", errors.CircuitOpen, True),
    "rate": (lambda name: full(RateLimit(0.001, wait=0, name=name)), "rate_limit", errors.RateLimited, True),
    "short wait": (
        lambda name: full(RateLimit(0.001, wait=1, name=name)), "rate_limit", errors.RateLimited, True
    ),
    "adaptive rate": (throttled, "adaptive_rate", errors.RateLimited, True),
    "concurrency": (
        lambda name: full(AdaptiveConcurrency(1, name=name)),
        "adaptive_concurrency",
        errors.BulkheadFull,
        False,
    ),
    "throttle": (overloaded, "throttle", errors.Rejected, False),
    "own": (Turnstile, "turnstile", errors.Rejected, True),
}  # fmt: skip
EACH = pytest.mark.parametrize("gate", GATES)


@EACH
@pytest.mark.parametrize("shape", ["call", "decorator", "block", "mixed", "stream"])
@pytest.mark.parametrize("colour", ["sync", *ASYNC])
def test_a_rejected_call_is_emitted_once(colour: str, shape: str, gate: str) -> None:
    make, by, kind, has_hint = GATES[gate]
    rejecting, service, events = make("gate"), Service(), list[Event]()
    with observe(events.append, only=["rejected"]):
        error = result_of(colour, shape, rejecting, service)
    assert type(error) is kind
    assert service.calls == 0
    [event] = events
    assert (event.what, event.by, event.name, event.attempt) == ("rejected", by, "gate", 0)
    assert event.error is error
    assert event.hint == error.retry_after
    assert (event.hint is not None) == has_hint
    assert not event.labels


@EACH
@pytest.mark.parametrize("shape", ["call", "block"])
def test_a_gate_without_a_name_is_named_by_its_kind(shape: str, gate: str) -> None:
    make, by, _, _ = GATES[gate]
    with recorded() as events:
        result_of("sync", shape, make(None), Service())
    assert [event.name for event in events if event.by == by and event.what == "rejected"] == [by]


@EACH
def test_an_observer_may_use_the_gate_again(gate: str) -> None:
    """No lock is held while the event is dispatched, for this thread or another."""
    rejecting, errors_seen = GATES[gate][0]("gate"), list[Any]()

    def again(event: Event) -> None:
        if len(errors_seen) < 3:
            errors_seen.append(event.error)
            errors_seen.append(result_of("sync", "decorator", rejecting, Service()))
            errors_seen.append(result_of("thread", "block", rejecting, Service()))
            getattr(rejecting, "snapshot", int)()

    with observe(again, only=["rejected"]):
        first = result_of("sync", "call", rejecting, Service())
    assert first is errors_seen[0]
    assert all(isinstance(error, errors.Rejected) for error in errors_seen)
    assert len({id(error) for error in errors_seen}) >= 3


@EACH
def test_a_gate_rejects_without_observers(gate: str) -> None:
    rejecting = GATES[gate][0]("gate")
    assert isinstance(result_of("sync", "call", rejecting, Service()), errors.Rejected)


@pytest.mark.parametrize("place", ["sync", "asyncio around", "trio around"])
def test_a_waiter_that_times_out_is_emitted_once(place: str) -> None:
    gate, service = full(Bulkhead(1, 5, name="gate")), Service()

    def blocking(clock: VirtualClock) -> float:
        with pytest.raises(errors.BulkheadFull):
            gate.call(service)
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        with pytest.raises(errors.BulkheadFull):
            await gate.call(service.acall)
        return clock.now()

    with recorded() as events:
        assert at(place, blocking, waiting) == 5
    [event] = events
    assert (event.what, event.by, event.name) == ("rejected", "bulkhead", "gate")


@pytest.mark.parametrize("shape", ["call", "block"])
def test_a_gate_with_one_error_object_emits_each_call(shape: str) -> None:
    class Sparing(Turnstile):
        error = errors.Rejected("closed")

        def admit(self, now: float, /) -> None:
            raise self.error

    gate = Sparing("gate")
    with recorded() as events:
        for _ in range(3):
            assert result_of("sync", shape, gate, Service()) is gate.error
    assert [event.by for event in events] == ["sparing"] * 3


def test_a_rejection_inside_other_layers_is_emitted_once() -> None:
    """Each attempt of a policy is a call."""
    rejecting = Turnstile("inner")
    layers: list[Layer] = [
        CircuitBreaker() | rejecting,
        Bulkhead(5) | RateLimit(9) | rejecting,
        Keyed(key=lambda: 1, make=lambda: rejecting),
        Timeout(60, worker=Worker()) | rejecting,
        Retry(on=Exception, attempts=3, backoff=[0, 0], hints=Hints(mode="ignore")) | rejecting,
    ]
    emitted: list[list[str]] = []
    for layer in layers:
        with recorded() as events, pytest.raises(errors.Rejected):
            layer.call(int)
        emitted.append([f"{event.by} {event.name}" for event in events if event.what == "rejected"])
    assert emitted == [["turnstile inner"]] * 4 + [["turnstile inner"] * 3]


@pytest.mark.parametrize("script", ["bad bad good good", "isolate good good", "bad bad +30 a> good good"])
def test_a_breaker_emits_every_call_and_the_outage_once(script: str) -> None:
    breaker = BreakerScript(failures=2, name="pay")
    with recorded() as events:
        breaker.run(script)
    rejections = [event for event in events if "rejected" in event.what]
    assert [event.what for event in rejections] == ["circuit_rejected", "rejected", "rejected"]
    assert {event.name for event in rejections} == {"pay"}
    assert not [event for event in breaker.events if event.what == "rejected"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CircuitBreaker", "circuit_breaker"),
        ("Bulkhead", "bulkhead"),
        ("V2Gate", "v2_gate"),
        ("gate", "gate"),
        ("_Own", "_own"),
    ],
)
def test_the_kind_of_a_layer_is_its_class_in_snake_case(name: str, kind: str) -> None:
    assert layer_kind(type(name, (), {})()) == kind
