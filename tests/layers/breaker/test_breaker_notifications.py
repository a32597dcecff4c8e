"""The events of the state changes of a breaker."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from redouble import CircuitBreaker
from redouble._layers.breaker.state_epoch import Rejection, State, StateChange
from redouble.errors import CircuitOpen
from redouble.types import Event


@pytest.mark.parametrize(
    ("state_change", "what"),
    [
        (StateChange("open", "open", 1.5, 0, 30.0), "circuit_opened"),
        (StateChange("half_open", "half_open", 1.5, 2), "circuit_half_open"),
        (StateChange("closed", "closed", 1.5, 2), "circuit_closed"),
        (StateChange("isolated", "isolated", 1.5, 2), "circuit_isolated"),
        (StateChange("disabled", "disabled", 1.5, 2), "circuit_disabled"),
        (StateChange("metrics_only", "metrics_only", 1.5, 2), "circuit_metrics_only"),
        (StateChange("exceeded", "metrics_only", 1.5, 0, 3.0), "circuit_exceeded"),
        (StateChange("rejected", "open", 1.5, 1, 3.0), "circuit_rejected"),
    ],
)
def test_the_event_of_a_change(state_change: StateChange, what: str) -> None:
    events: list[Event] = []
    CircuitBreaker(name="payments", on_change=events.append)._dispatch(state_change)
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


@pytest.mark.parametrize(
    ("state", "retry_after", "text"),
    [
        ("isolated", None, "payments is isolated, until close() is called"),
        ("half_open", None, "payments is half open, and probes are testing whether the service is back"),
        ("open", 2.5, "payments is open after OSError, for another 2.5 s"),
    ],
)
def test_the_text_of_a_rejection_is_made_when_it_is_read(
    state: State, retry_after: float | None, text: str
) -> None:
    message: Any = Rejection("payments", state, retry_after, "OSError")
    error = CircuitOpen(message, retry_after=retry_after)
    assert (str(error), repr(error)) == (text, f"CircuitOpen({text!r})")
    assert str(copy.copy(error)) == text
    sent = pickle.loads(pickle.dumps(error))
    assert (sent.args, sent.retry_after) == ((text,), retry_after)


def test_every_rejection_has_the_name_of_the_breaker() -> None:
    """The first one, later ones, and those of an isolated breaker; a subclass may set the name at last."""
    breaker = CircuitBreaker(failures=1)
    breaker.name = "payments"
    breaker.ended(breaker.admit(0.0), OSError(), 0.0)
    texts = [_rejection(breaker), _rejection(breaker)]
    breaker.isolate()
    texts.append(_rejection(breaker))
    assert [text.split()[0] for text in texts] == ["payments"] * 3


def _rejection(breaker: CircuitBreaker) -> str:
    with pytest.raises(CircuitOpen) as raised:
        breaker.admit(1.0)
    return str(raised.value)
