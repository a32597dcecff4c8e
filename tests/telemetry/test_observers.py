"""Dispatch of events to observers: `observe(only=...)`, their order, and the end of observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Retry, observe
from redouble._runtime.ambient import ambient
from redouble._telemetry.events import EVENT_NAMES
from redouble._telemetry.observers import SUCCESS_EVENTS
from redouble.testing import Script, ok
from redouble.types import Event, What
from tests.support.fakes import Boom
from tests.support.telemetry.events import every_event, zero

pytestmark = pytest.mark.usefixtures("no_observers_left")

EACH = pytest.mark.parametrize("what", EVENT_NAMES)


# ------------------------------------------------------------------------ which events


@EACH
def test_only_selects_one_type_of_event(what: What) -> None:
    every, some = list[Event](), list[Event]()
    with observe(every.append), observe(some.append, only=[what]):
        every_event()
    assert some
    assert some == [event for event in every if event.what == what]


@EACH
def test_each_type_of_event_is_emitted_without_other_observers(what: What) -> None:
    received: list[str] = []
    with observe(lambda event: received.append(event.what), only=(what,)):
        assert bool(ambient.active) == (what in SUCCESS_EVENTS)
        every_event()
    assert set(received) == {what}


def test_only_selects_several_types_of_events() -> None:
    every, some = list[str](), list[str]()
    wanted: set[What] = {"give_up", "success", "circuit_opened"}
    with (
        observe(lambda e: some.append(e.what), only=wanted),
        observe(lambda e: every.append(e.what), only=()),
    ):
        every_event()
    assert set(every) == set(EVENT_NAMES)
    assert some == [what for what in every if what in wanted]


@pytest.mark.parametrize("wrong", [("retry", "giveup"), [3], {"on_retry"}, ["Retry"], [""], [[]]])
def test_only_refuses_unknown_names(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^only=.*: write names of events \(before_attempt, success, "):
        observe(print, only=wrong)


@pytest.mark.parametrize("wrong", ["retry", "", None, 3, iter(["retry"])])
def test_only_must_be_a_collection_of_names(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^only=.*: write names of events, such as \('retry', 'give_up'\)$"):
        observe(print, only=wrong)


# -------------------------------------------------------------------------- the order


def test_the_order_of_observers() -> None:
    """The policy's own hook comes first, then the observers in the order of subscription."""
    received: list[str] = []

    def records(name: str) -> Callable[[Event], None]:
        return lambda event: received.append(f"{name} {event.what}")

    with (
        observe(records("b"), only=["retry"]),
        observe(records("c")),
        observe(records("d"), only=["retry", "failure"]),
    ):
        Retry(on=Boom, backoff=[0], on_retry=records("a")).call(Script(Boom, ok(1)))
    expected = "c before_attempt, c failure, d failure, a retry, b retry, c retry, d retry"
    assert ", ".join(received) == expected + ", c before_attempt, c success"


def test_observers_change_while_an_event_is_dispatched() -> None:
    """An event goes to the observers at its time; changes apply to the next event."""
    received: list[str] = []

    def first(event: Event) -> None:
        received.append(f"first {event.what}")
        handles[0].remove()
        handles[1].remove()
        handles.append(observe(lambda event: received.append(f"third {event.what}")))

    handles = [observe(first), observe(lambda event: received.append(f"second {event.what}"))]
    Retry()(zero)()
    handles[2].remove()
    assert received == ["first before_attempt", "second before_attempt", "third success"]
