"""The events of the state changes of a breaker."""

from __future__ import annotations

import pickle

import pytest

from redouble._layers.breaker.circuit import StateChange
from redouble._layers.breaker.notifications import dispatch
from redouble.types import Event


@pytest.mark.parametrize(
    ("state_change", "what"),
    [
        (StateChange("open", "open", 1.5, 0, 30.0), "circuit_opened"),
        (StateChange("half_open", "half_open", 1.5, 2), "circuit_half_open"),
        (StateChange("closed", "closed", 1.5, 2), "circuit_closed"),
        (StateChange("isolated", "isolated", 1.5, 2), "circuit_isolated"),
        (StateChange("rejected", "open", 1.5, 1, 3.0), "circuit_rejected"),
    ],
)
def test_the_event_of_a_change(state_change: StateChange, what: str) -> None:
    events: list[Event] = []
    dispatch(state_change, "payments", "says", events.append)
    [event] = events
    assert (event.what, event.name, event.attempt, event.labels) == (what, "payments", 0, {})
    assert (event.elapsed, event.rejected, event.hint) == (
        1.5,
        state_change.rejected,
        state_change.retry_after,
    )
    assert {event.error, event.value, event.verdict, event.kind, event.delay, event.reason} == {None}
    assert pickle.loads(pickle.dumps(event)) == event
    assert f"what='{what}'" in repr(event)
