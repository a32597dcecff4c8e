"""Reconfiguring ``until`` of a gate: functions that were decorated before judge results by the new rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, AdaptiveRate, CircuitBreaker, Gate, Throttle
from tests.support.fakes import always, in_colour


def by_name(name: str) -> str:
    """Return the class of a call."""
    return name


BY_CLASS: dict[str, Any] = {"shares": {"batch": 0.5}, "priority": by_name}

GATES: dict[str, Callable[..., Gate]] = {
    "CircuitBreaker": partial(CircuitBreaker, failures=1),
    "Throttle": partial(Throttle, minimum=99),
    "Throttle with shares": partial(Throttle, minimum=99, shares={"batch": 0.5}),
    "Throttle by argument": partial(Throttle, minimum=99, **BY_CLASS),
    "AdaptiveConcurrency": partial(AdaptiveConcurrency, 10, by="aimd", window=1e-6),
    "AdaptiveConcurrency by argument": partial(AdaptiveConcurrency, 10, by="aimd", window=1e-6, **BY_CLASS),
    "AdaptiveRate": partial(AdaptiveRate, wait=0),
}


def has_counted(gate: Gate) -> bool:
    """Return True if the last call of the gate counted as a failure."""
    seen = gate.snapshot()
    if "state" in seen:
        return bool(seen["state"] == "open")
    if "rate" in seen:
        return seen["rate"] is not None
    return bool(seen["limit"] < 10 if "limit" in seen else seen["accepts"] < seen["requests"])


@pytest.mark.parametrize("make", GATES.values(), ids=GATES)
@pytest.mark.parametrize(
    ("before", "after"),
    [(None, bool), (bool, None), (always(True), bool), (bool, always(True)), (always(True), None)],
)
def test_decorated_functions_use_the_new_rule(
    colour: str, make: Callable[..., Gate], before: Any, after: Any
) -> None:
    gate, other = make(until=before), make(until=after)

    @gate
    def blocking(name: str) -> int:
        return len(name) - 5

    @gate
    async def waiting(name: str) -> int:
        return len(name) - 5

    def call(name: str) -> Any:
        return in_colour(colour, lambda: blocking(name), lambda: waiting(name))

    assert call("interactive") == 6
    assert gate.can_reconfigure(other)
    gate.reconfigure(other)
    assert call("interactive") == 6
    assert not has_counted(gate)
    assert call("batch") == 0
    assert has_counted(gate) == (after is bool)


@pytest.mark.parametrize("make", GATES.values(), ids=GATES)
@pytest.mark.parametrize(("before", "after"), [(None, bool), (bool, None), (bool, always(True))])
def test_the_rule_changes_while_a_call_is_in_flight(
    colour: str, make: Callable[..., Gate], before: Any, after: Any
) -> None:
    gate = make(until=before)

    @gate
    def blocking(name: str) -> str:
        gate.reconfigure(make(until=after))
        return name

    @gate
    async def waiting(name: str) -> str:
        gate.reconfigure(make(until=after))
        return name

    assert in_colour(colour, lambda: blocking("batch"), lambda: waiting("batch")) == "batch"
    assert in_colour(colour, lambda: blocking("batch"), lambda: waiting("batch")) == "batch"
    assert not has_counted(gate)
