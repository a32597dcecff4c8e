"""Dispatch of events to observers: `observe(only=...)`, their order, and the end of observation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from redouble import CircuitBreaker, Retry, Timeout, Worker, deadline, errors, observe
from redouble._runtime.ambient import ambient
from redouble._telemetry.events import WHATS
from redouble._telemetry.observers import SUCCESS_EVENTS, watch
from redouble.testing import Script, ok
from redouble.types import Event, What
from tests.support.fakes import Boom, Virtual

EACH = pytest.mark.parametrize("what", WHATS)


@pytest.fixture(autouse=True)
def nobody_is_left_listening() -> Iterator[None]:
    yield
    assert not watch.entries


def fails() -> None:
    raise Boom


def zero() -> int:
    return 0


def everything() -> None:
    """Cause each type of event at least once."""
    clock = Virtual()
    retrying = Retry(on=Boom, attempts=2, backoff=[0], clock=clock)
    breaker = CircuitBreaker(failures=1, cooldown=5, clock=clock)
    retrying.call(int)
    for call in (partial(retrying.call, fails), partial(breaker.call, fails)):
        with suppress(Boom):
            call()
    clock.time = 5
    breaker.call(int)
    breaker.isolate()
    with suppress(errors.Rejected):
        breaker.call(int)
    with deadline(0), suppress(errors.AttemptTimeout):
        Timeout(5, worker=Worker())(zero)()


# ------------------------------------------------------------------------------- which


@EACH
def test_each_event_alone(what: What) -> None:
    every, some = list[Event](), list[Event]()
    with observe(every.append), observe(some.append, only=[what]):
        everything()
    assert some
    assert some == [event for event in every if event.what == what]


@EACH
def test_nothing_else_need_be_observed_for_it(what: What) -> None:
    heard: list[str] = []
    with observe(lambda event: heard.append(event.what), only=(what,)):
        assert bool(ambient.active) == (what in SUCCESS_EVENTS)
        everything()
    assert set(heard) == {what}


def test_some_events_of_all() -> None:
    every, some = list[str](), list[str]()
    wanted: set[What] = {"give_up", "success", "circuit_opened"}
    with (
        observe(lambda e: some.append(e.what), only=wanted),
        observe(lambda e: every.append(e.what), only=()),
    ):
        everything()
    assert set(every) == set(WHATS)
    assert some == [what for what in every if what in wanted]


@pytest.mark.parametrize("wrong", [("retry", "giveup"), [3], {"on_retry"}, ["Retry"], [""], [[]]])
def test_names_that_there_are_not(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^only=.*: write names of events \(before_attempt, success, "):
        observe(print, only=wrong)


@pytest.mark.parametrize("wrong", ["retry", "", None, 3, iter(["retry"])])
def test_what_is_no_list_of_names(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^only=.*: write names of events, such as \('retry', 'give_up'\)$"):
        observe(print, only=wrong)


# ------------------------------------------------------------------------ in what order


def test_the_order_of_observers() -> None:
    """The policy's own hook comes first, then the observers in the order of subscription."""
    heard: list[str] = []

    def hears(name: str) -> Callable[[Event], None]:
        return lambda event: heard.append(f"{name} {event.what}")

    with (
        observe(hears("b"), only=["retry"]),
        observe(hears("c")),
        observe(hears("d"), only=["retry", "failure"]),
    ):
        Retry(on=Boom, backoff=[0], on_retry=hears("a")).call(Script(Boom, ok(1)))
    told = "c before_attempt, c failure, d failure, a retry, b retry, c retry, d retry"
    assert ", ".join(heard) == told + ", c before_attempt, c success"


def test_observers_change_while_an_event_is_dispatched() -> None:
    """An event goes to the observers that were subscribed when it happened; changes apply to the next one."""
    heard: list[str] = []

    def first(event: Event) -> None:
        heard.append(f"first {event.what}")
        handles[0].remove()
        handles[1].remove()
        handles.append(observe(lambda event: heard.append(f"third {event.what}")))

    handles = [observe(first), observe(lambda event: heard.append(f"second {event.what}"))]
    Retry()(zero)()
    handles[2].remove()
    assert heard == ["first before_attempt", "second before_attempt", "third success"]
