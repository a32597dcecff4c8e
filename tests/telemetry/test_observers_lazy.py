"""Light sleepers: they hear of trouble always, and of calls that go well only while they say so."""

from __future__ import annotations

import pytest

from redouble import Retry, deadline
from redouble._drivers.calls import slow_path_needed
from redouble._runtime.ambient import ambient
from redouble._telemetry.observers import SUCCESS_EVENTS, observe, observing, watch
from redouble.types import Event, What
from tests.support.fakes import COLOURS, Boom
from tests.telemetry.test_observers import nobody_is_left_listening
from tests.telemetry.test_observers_failures_only import EVERY_SHAPE, made

pytestmark = pytest.mark.usefixtures(nobody_is_left_listening.__name__)


class Sleeper:
    """Listens; it counts how often it is asked whether it is awake."""

    def __init__(self, *, awake: bool) -> None:
        self.is_awake, self.asked = awake, 0
        self.heard: list[str] = []

    def awake(self) -> bool:
        self.asked += 1
        return self.is_awake

    def __call__(self, event: Event) -> None:
        self.heard.append(event.what)


POLICY = Retry(on=Boom, attempts=2, backoff=[0])


EVERY = pytest.mark.parametrize("shape", EVERY_SHAPE)


@EVERY
@pytest.mark.parametrize("colour", COLOURS)
def test_one_that_sleeps_hears_of_trouble_alone(colour: str, shape: str) -> None:
    sleeper = Sleeper(awake=False)
    with observing(sleeper, awake=sleeper.awake):
        assert made(colour, shape, POLICY, 0) == 7
        assert sleeper.heard == []
        assert sleeper.asked
        assert made(colour, shape, POLICY, 1) == 7
    assert sleeper.heard == ["failure", "retry"]


@EVERY
@pytest.mark.parametrize("colour", COLOURS)
def test_one_that_is_awake_hears_of_everything(colour: str, shape: str) -> None:
    sleeper = Sleeper(awake=True)
    with observing(sleeper, awake=sleeper.awake):
        assert made(colour, shape, POLICY, 0) == 7
        assert made(colour, shape, POLICY, 1) == 7
    assert sleeper.heard == [
        *("before_attempt", "success"),
        *("before_attempt", "failure", "retry", "before_attempt", "success"),
    ]


def test_one_of_several_is_enough() -> None:
    first, second, third = Sleeper(awake=False), Sleeper(awake=True), Sleeper(awake=True)
    with (
        observing(first, awake=first.awake),
        observing(second, awake=second.awake),
        observing(third, awake=third.awake),
    ):
        assert slow_path_needed()
        assert [first.asked, second.asked, third.asked] == [1, 1, 0]
        second.is_awake = third.is_awake = False
        assert not slow_path_needed()
        with deadline(60):
            assert slow_path_needed()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_nobody_is_asked_while_somebody_listens(elsewhere: bool) -> None:
    sleeper = Sleeper(awake=False)
    with observing(sleeper, awake=sleeper.awake), observe(print_nothing):
        if elsewhere:
            ambient.hold(1)
        try:
            assert slow_path_needed()
        finally:
            if elsewhere:
                ambient.hold(-1)
    assert sleeper.asked == 0


def print_nothing(event: Event) -> None: ...


@pytest.mark.parametrize("awake", [False, True])
def test_something_at_work_elsewhere_does_not_wake_them(awake: bool) -> None:
    sleeper = Sleeper(awake=awake)
    ambient.hold(1)
    try:
        with observing(sleeper, awake=sleeper.awake):
            assert slow_path_needed() == awake
        assert not slow_path_needed()
    finally:
        ambient.hold(-1)


@pytest.mark.parametrize("what", ["retry", "rejected", "circuit_opened"])
def test_one_that_hears_of_trouble_only_is_never_asked(what: What) -> None:
    assert what not in SUCCESS_EVENTS
    sleeper = Sleeper(awake=True)
    with observing(sleeper, [what], sleeper.awake):
        assert not watch.conditional
        assert not ambient.active
        assert made("sync", "decorator", POLICY, 0) == 7
    assert (sleeper.asked, sleeper.heard) == (0, [])


def test_one_who_hears_of_trouble_does_not_wake_them() -> None:
    sleeper = Sleeper(awake=False)
    with observing(sleeper, awake=sleeper.awake), observe(print_nothing, only=["retry"]):
        assert made("sync", "decorator", POLICY, 0) == 7
    assert (sleeper.asked, sleeper.heard) == (1, [])


@EVERY
def test_one_that_wakes_up_during_a_call_hears_the_rest_of_it(shape: str) -> None:
    sleeper = Sleeper(awake=False)

    def wake(event: Event) -> None:
        sleeper.is_awake = True

    with observe(wake, only=["retry"]), observing(sleeper, awake=sleeper.awake):
        assert made("sync", shape, POLICY, 1) == 7
    assert sleeper.heard == ["failure", "retry", "before_attempt", "success"]


def test_it_ends_like_any_other() -> None:
    sleeper = Sleeper(awake=True)
    observing(sleeper, awake=sleeper.awake).remove()
    assert not watch.conditional
    assert made("sync", "decorator", POLICY, 1) == 7
    assert sleeper.heard == []


def test_one_that_cannot_say_whether_it_sleeps_is_told() -> None:
    def awake() -> bool:
        raise Boom

    seen: list[Event] = []
    only: tuple[What, ...] = ("success",)
    with observing(seen.append, only, awake):
        assert Retry().call(int) == 0
    assert [event.what for event in seen] == ["success"]
