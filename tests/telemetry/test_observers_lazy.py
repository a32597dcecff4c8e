"""Conditional observers: they always receive failures, and success events only while they are enabled."""

from __future__ import annotations

import pytest

from redouble import Retry, deadline
from redouble._drivers.calls import slow_path_needed
from redouble._runtime.ambient import ambient
from redouble._telemetry.observers import SUCCESS_EVENTS, observe, observing, watch
from redouble.types import Event, What
from tests.support.call_shapes import EVERY_SHAPE
from tests.support.fakes import COLOURS, Boom
from tests.support.telemetry.flaky_calls import flaky_call

pytestmark = pytest.mark.usefixtures("no_observers_left")


class ConditionalObserver:
    """An observer that counts the calls of its function ``enabled``."""

    def __init__(self, *, enabled: bool) -> None:
        self.is_enabled, self.checks = enabled, 0
        self.events: list[str] = []

    def enabled(self) -> bool:
        self.checks += 1
        return self.is_enabled

    def __call__(self, event: Event) -> None:
        self.events.append(event.what)


POLICY = Retry(on=Boom, attempts=2, backoff=[0])


EVERY = pytest.mark.parametrize("shape", EVERY_SHAPE)


@EVERY
@pytest.mark.parametrize("colour", COLOURS)
def test_a_disabled_observer_receives_failures_only(colour: str, shape: str) -> None:
    observer = ConditionalObserver(enabled=False)
    with observing(observer, enabled=observer.enabled):
        assert flaky_call(colour, shape, POLICY, 0) == 7
        assert observer.events == []
        assert observer.checks
        assert flaky_call(colour, shape, POLICY, 1) == 7
    assert observer.events == ["failure", "retry"]


@EVERY
@pytest.mark.parametrize("colour", COLOURS)
def test_an_enabled_observer_receives_every_event(colour: str, shape: str) -> None:
    observer = ConditionalObserver(enabled=True)
    with observing(observer, enabled=observer.enabled):
        assert flaky_call(colour, shape, POLICY, 0) == 7
        assert flaky_call(colour, shape, POLICY, 1) == 7
    assert observer.events == [
        *("before_attempt", "success"),
        *("before_attempt", "failure", "retry", "before_attempt", "success"),
    ]


def test_one_enabled_observer_is_enough() -> None:
    first, second, third = (
        ConditionalObserver(enabled=False),
        ConditionalObserver(enabled=True),
        ConditionalObserver(enabled=True),
    )
    with (
        observing(first, enabled=first.enabled),
        observing(second, enabled=second.enabled),
        observing(third, enabled=third.enabled),
    ):
        assert slow_path_needed()
        assert [first.checks, second.checks, third.checks] == [1, 1, 0]
        second.is_enabled = third.is_enabled = False
        assert not slow_path_needed()
        with deadline(60):
            assert slow_path_needed()


USER = object()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_no_condition_is_checked_while_another_observer_wants_successes(elsewhere: bool) -> None:
    observer = ConditionalObserver(enabled=False)
    with observing(observer, enabled=observer.enabled), observe(print_nothing):
        if elsewhere:
            ambient.add(USER)
        try:
            assert slow_path_needed()
        finally:
            if elsewhere:
                ambient.remove(USER)
    assert observer.checks == 0


def print_nothing(event: Event) -> None: ...


@pytest.mark.parametrize("enabled", [False, True])
def test_an_ambient_feature_elsewhere_does_not_enable_an_observer(enabled: bool) -> None:
    observer = ConditionalObserver(enabled=enabled)
    ambient.add(USER)
    try:
        with observing(observer, enabled=observer.enabled):
            assert slow_path_needed() == enabled
        assert not slow_path_needed()
    finally:
        ambient.remove(USER)


@pytest.mark.parametrize("what", ["retry", "rejected", "circuit_opened"])
def test_an_observer_of_failures_only_is_never_checked(what: What) -> None:
    assert what not in SUCCESS_EVENTS
    observer = ConditionalObserver(enabled=True)
    with observing(observer, [what], observer.enabled):
        assert not watch.conditional
        assert not ambient.active
        assert flaky_call("sync", "decorator", POLICY, 0) == 7
    assert (observer.checks, observer.events) == (0, [])


def test_an_observer_of_failures_does_not_enable_another_one() -> None:
    observer = ConditionalObserver(enabled=False)
    with observing(observer, enabled=observer.enabled), observe(print_nothing, only=["retry"]):
        assert flaky_call("sync", "decorator", POLICY, 0) == 7
    assert (observer.checks, observer.events) == (1, [])


@EVERY
def test_an_observer_enabled_during_a_call_receives_the_rest_of_it(shape: str) -> None:
    observer = ConditionalObserver(enabled=False)

    def wake(event: Event) -> None:
        observer.is_enabled = True

    with observe(wake, only=["retry"]), observing(observer, enabled=observer.enabled):
        assert flaky_call("sync", shape, POLICY, 1) == 7
    assert observer.events == ["failure", "retry", "before_attempt", "success"]


def test_a_conditional_observer_can_be_removed() -> None:
    observer = ConditionalObserver(enabled=True)
    observing(observer, enabled=observer.enabled).remove()
    assert not watch.conditional
    assert flaky_call("sync", "decorator", POLICY, 1) == 7
    assert observer.events == []


def test_an_observer_whose_condition_fails_is_called() -> None:
    def enabled() -> bool:
        raise Boom

    seen: list[Event] = []
    only: tuple[What, ...] = ("success",)
    with observing(seen.append, only, enabled):
        assert Retry().call(int) == 0
    assert [event.what for event in seen] == ["success"]
