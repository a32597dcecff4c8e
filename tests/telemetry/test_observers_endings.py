"""Removal of observers, and the effects of failing observers on a call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import inf, nan
from types import MethodType
from typing import Any

import pytest

from redouble import Clock, Retry, deadline, errors, observe
from redouble._runtime.ambient import ambient
from redouble._telemetry.observers import watch
from redouble.types import Event, What
from tests.support.call_shapes import SHAPES
from tests.support.fakes import ASYNC, Boom, Ledger, Panic
from tests.support.telemetry.events import zero
from tests.support.telemetry.flaky_calls import flaky_call
from tests.support.thread_switching import frequent_switches

pytestmark = pytest.mark.usefixtures("no_observers_left")


# ----------------------------------------------------------------------------- removal


@pytest.mark.parametrize("only", [(), ("retry",)])
def test_many_threads_may_remove_the_same_observer(only: tuple[What, ...]) -> None:
    kept = observe(print, only=["give_up"])
    handles = [observe(print, only=only) for _ in range(50)]
    failed: list[BaseException] = []
    together = threading.Barrier(4)

    def remove() -> None:
        together.wait()
        try:
            for handle in handles:
                handle.remove()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=remove) for _ in range(4)]
    with frequent_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    left = len(watch.entries)
    kept.remove()
    assert (failed, left) == ([], 1)
    assert not ambient.active


def test_a_deadline_applies_while_observers_are_added_and_removed() -> None:
    over = threading.Event()

    def add_and_remove() -> None:
        while not over.is_set():
            observe(ignore, only=["success"]).remove()

    def ignore(event: Event) -> None: ...

    retried = Retry()(zero)
    thread = threading.Thread(target=add_and_remove)
    thread.start()
    try:
        with frequent_switches(), deadline(0):
            for _ in range(2000):
                with pytest.raises(errors.RedoubleError):
                    retried()
    finally:
        over.set()
        thread.join()


# ------------------------------------------------------------------- failing observers


@pytest.mark.parametrize("shape", ["decorator", "call", "deadline"])
def test_an_observer_that_fails_changes_nothing(
    shape: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once for each type of event; the other observers are called nevertheless."""
    monkeypatch.setattr("redouble._telemetry.observers._logged", set[object]())
    received: list[str] = []

    def failing(event: Event) -> None:
        raise ValueError(shape)

    retried = partial(Retry().call, zero) if shape == "call" else Retry()(zero)
    with ExitStack() as observed:
        observed.enter_context(observe(failing))
        observed.enter_context(observe(lambda event: received.append(event.what)))
        if shape == "deadline":
            observed.enter_context(deadline(60))
        assert [retried(), retried()] == [0, 0]
    assert received == ["before_attempt", "success"] * 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_each_method_that_fails_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def first(self, event: Event) -> None:
            raise ValueError("first")

        def second(self, event: Event) -> None:
            raise ValueError("second")

    for method in (Failing().first, Failing().first, Failing().second):
        with observe(method, only=["success"]):
            Retry()(zero)()
    assert [
        message.partition(" failed on success;")[0].rpartition(".")[2] for message in caplog.messages
    ] == [
        "first",
        "second",
    ]


def test_a_failing_method_of_a_callable_object_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        def __call__(self, event: Event, *more: object) -> None:
            raise ValueError("odd")

    with observe(MethodType(Odd(), 3)):
        assert Retry()(zero)() == 0
    assert len(caplog.records) == 2


class Odd(Clock):
    """A clock that returns these times, and then the last one for ever."""

    def __init__(self, *times: float) -> None:
        self.times = [*times]

    def now(self) -> float:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]

    def sleep(self, seconds: float) -> None: ...


TIMES = [(9, 3), (9, 9, 3), (nan,), (inf,), (5, nan), (5, 5, inf), (nan, nan, 3), (nan, 3, 4), (5, 3, 7)]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("shape", ["decorator", "call", "hook"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_broken_clock_yields_valid_durations(shape: str, times: tuple[float, ...], fails: bool) -> None:
    events: list[Event] = []
    own: dict[str, Any] = {"before_attempt": events.append} if shape == "hook" else {}
    policy = Retry(on=Boom, attempts=1, clock=Odd(*times), **own)
    with observe(events.append):
        flaky_call("sync", "call" if shape == "call" else "decorator", policy, int(fails))
    assert {event.what for event in events} >= {"give_up" if fails else "success"}
    for event in events:
        assert 0 <= (event.attempt_elapsed or 0) <= event.elapsed < inf


@pytest.mark.parametrize("shape", SHAPES)
def test_a_grant_is_refunded_if_an_observer_raises_a_base_exception(shape: str) -> None:
    ledger = Ledger()
    policy = Retry(on=Boom, backoff=[0], budget=ledger)

    def crashing(event: Event) -> None:
        raise Panic

    for colour in ("sync", *ASYNC):
        with observe(crashing, only=["retry"]), pytest.raises(Panic):
            flaky_call(colour, shape, policy, 1)
        assert ledger.lines == ["start", "failed unknown", "spend unknown", f"refund {len(ledger.grants)}"]
        ledger.lines.clear()


@pytest.mark.parametrize("crash", [KeyboardInterrupt, SystemExit, Panic])
@pytest.mark.parametrize("what", ["before_attempt", "success"])
@pytest.mark.parametrize("shape", ["decorator", "call"])
def test_a_base_exception_of_an_observer_is_raised(
    shape: str, what: What, crash: type[BaseException]
) -> None:
    called: list[int] = []

    def crashing(event: Event) -> None:
        raise crash

    def work() -> None:
        called.append(1)

    policy = Retry()
    retried: Callable[[], object] = (lambda: policy.call(work)) if shape == "call" else policy(work)
    with observe(crashing, only=[what]), pytest.raises(crash):
        retried()
    assert len(called) == (what == "success")
