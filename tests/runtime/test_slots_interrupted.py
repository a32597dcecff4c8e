"""`Slots` that are interrupted during an admission: the waiter is admitted and woken nevertheless."""

from __future__ import annotations

from functools import partial
from math import inf

import pytest

from redouble._runtime.slots import Lease, Slots


class Interrupting(set[Lease]):
    """A set of leases that raises KeyboardInterrupt at one ``add()`` if ``once`` is true."""

    once = False

    def add(self, lease: Lease) -> None:
        if self.once:
            self.once = False
            raise KeyboardInterrupt
        super().add(lease)


def full(leases: set[Lease] | None = None) -> tuple[Slots, Lease]:
    slots, first = Slots(1), Lease()
    if leases is not None:
        slots.leases = leases
    assert slots.try_acquire(first)
    return slots, first


def test_an_interrupted_admission_is_completed() -> None:
    slots, first = full(leases := Interrupting())
    waiting, woken = Lease(), list[int]()
    assert not slots.try_acquire(waiting)
    assert slots.enqueue(waiting, lambda: woken.append(1), inf)
    leases.once = True
    with pytest.raises(KeyboardInterrupt):
        slots.release(first)
    assert woken == [1]
    assert slots.counts() == (1, 0)


def test_an_interrupted_waker_is_called_again() -> None:
    slots, first = full()
    waiting, wakes = Lease(), list[int]()

    def wake() -> None:
        wakes.append(1)
        if len(wakes) == 1:
            raise KeyboardInterrupt

    slots.try_acquire(waiting)
    slots.enqueue(waiting, wake, inf)
    with pytest.raises(KeyboardInterrupt):
        slots.release(first)
    assert wakes == [1, 1]
    assert not slots.to_wake


def test_a_re_entrant_call_changes_the_queue_afterwards() -> None:
    """A signal handler may run during an admission: `enqueue()` fails, and the rest is deferred."""
    slots, first = full()
    waiting, other, woken = Lease(), Lease(), list[str]()
    for lease in (waiting, other):
        slots.try_acquire(lease)
        slots.enqueue(lease, partial(woken.append, "waiting" if lease is waiting else "other"), inf)

    def middle() -> None:
        slots.try_acquire(late := Lease())
        assert not slots.enqueue(late, object, inf)
        assert not slots.stop_waiting(waiting)
        slots.release(first)
        assert waiting in slots.queue  # the running operation may depend on it
        assert slots.counts() == (0, 2)

    slots._run_exclusively(middle)
    assert woken == ["other"]
    assert slots.counts() == (1, 0)


def test_a_waiter_whose_call_has_ended_gets_no_slot() -> None:
    """Its task was collected between the end of the call and its leaving the queue."""
    slots, first = full()
    waiting, woken = Lease(), list[int]()
    slots.try_acquire(waiting)
    slots.enqueue(waiting, partial(woken.append, 1), inf)
    waiting.released = True
    slots.release(first)
    assert slots.counts() == (0, 0)
    assert not woken
