"""The state changes of a breaker are delivered in order, one at a time, by one thread."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import pytest

from redouble._layers.breaker.circuit import StateChange
from redouble._layers.breaker.notifications import ChangeDispatcher, dispatch
from redouble.types import Event
from tests.support.fakes import Panic
from tests.support.thread_switching import frequent_switches

PATIENCE = 30.0  # seconds, after which a thread that waits here is taken for stuck
THREADS = 8
EACH = 200


def change(number: int) -> StateChange:
    return StateChange("open", "open", 0.0, number)


class Reader:
    """Receives the changes; may run a function at one of them."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.at: dict[int, Callable[[], object]] = {}
        self.dispatcher = ChangeDispatcher(self)

    def __call__(self, state_change: StateChange) -> None:
        self.read.append(state_change.rejected)
        self.at.get(state_change.rejected, lambda: None)()

    def publish(self, *numbers: int) -> None:
        for number in numbers:
            self.dispatcher.add(change(number))
        self.dispatcher.publish()


def test_changes_are_delivered_in_order() -> None:
    reader = Reader()
    reader.publish(1, 2)
    reader.publish()
    reader.publish(3)
    assert reader.read == [1, 2, 3]


def test_a_change_during_a_delivery_is_queued() -> None:
    reader = Reader()

    def meanwhile() -> None:
        reader.publish(3, 4)
        reader.read.append(-1)

    reader.at[1] = meanwhile
    reader.at[4] = lambda: reader.publish(5)
    reader.publish(1, 2)
    assert reader.read == [1, -1, 2, 3, 4, 5]


def test_a_crashing_observer_loses_no_other_change() -> None:
    """The next call of publish() delivers the remaining changes."""
    reader = Reader()

    def crash() -> None:
        raise Panic

    reader.at[1] = crash
    with pytest.raises(Panic):
        reader.publish(1, 2)
    assert reader.read == [1]
    reader.publish(3)
    assert reader.read == [1, 2, 3]


def test_no_call_waits_for_an_observer_in_another_thread() -> None:
    """Its thread delivers the changes that other threads add meanwhile."""
    reader = Reader()
    reading, go_on = threading.Event(), threading.Event()

    def waiting() -> None:
        reading.set()
        go_on.wait(PATIENCE)

    reader.at[1] = waiting
    thread = threading.Thread(target=reader.publish, args=(1,))
    thread.start()
    try:
        assert reading.wait(PATIENCE)
        reader.publish(2)
        assert reader.read == [1]
    finally:
        go_on.set()
        thread.join()
    assert reader.read == [1, 2]


def test_many_threads_deliver_each_change_once_and_in_order() -> None:
    reader, lock, start = Reader(), threading.Lock(), threading.Barrier(THREADS)
    added: list[int] = []

    def add(owner: int) -> None:
        start.wait(PATIENCE)
        for index in range(EACH):
            number = owner * EACH + index
            with lock:
                added.append(number)
                reader.dispatcher.add(change(number))
            reader.dispatcher.publish()

    with frequent_switches():
        threads = [threading.Thread(target=add, args=(owner,)) for owner in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert reader.read == added
    assert len(added) == THREADS * EACH


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
