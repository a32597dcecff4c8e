"""The places of a bulkhead when something comes in the middle: who waits is let in and woken all the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView
from math import inf

import pytest

from redouble._layers.limits.slots import Lease, Slots, Wake


class Interrupting(set[Lease]):
    """Interrupts the first who is let in from the queue."""

    once = False

    def add(self, ticket: Lease) -> None:
        if self.once:
            self.once = False
            raise KeyboardInterrupt
        super().add(ticket)


def full(inside: set[Lease] | None = None) -> tuple[Slots, Lease]:
    places, first = Slots(1), Lease()
    if inside is not None:
        places.leases = inside
    assert places.try_acquire(first)
    return places, first


def test_who_serves_is_interrupted() -> None:
    places, first = full(inside := Interrupting())
    waiting, woken = Lease(), list[int]()
    assert not places.try_acquire(waiting)
    assert places.enqueue(waiting, lambda: woken.append(1), inf)
    inside.once = True
    with pytest.raises(KeyboardInterrupt):
        places.release(first)
    assert woken == [1]
    assert places.counts() == (1, 0)


def test_who_rings_is_interrupted() -> None:
    places, first = full()
    waiting, rings = Lease(), list[int]()

    def ring() -> None:
        rings.append(1)
        if len(rings) == 1:
            raise KeyboardInterrupt

    places.try_acquire(waiting)
    places.enqueue(waiting, ring, inf)
    with pytest.raises(KeyboardInterrupt):
        places.release(first)
    assert rings == [1, 1]
    assert not places.to_wake


def test_two_who_ring_at_once() -> None:
    class Changing(OrderedDict[Lease, Wake]):
        """Changes while one looks."""

        looks = 0

        def items(self) -> ItemsView[Lease, Wake]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("OrderedDict mutated during iteration")
            return super().items()

    places, first = full()
    waiting, woken = Lease(), list[int]()
    places.try_acquire(waiting)
    places.enqueue(waiting, lambda: woken.append(1), inf)
    places.to_wake = Changing()
    places.release(first)
    assert woken == [1]


def test_who_comes_in_the_middle_is_not_served_there() -> None:
    """By a signal or the collector: a call of its own would wait for itself; who gives up is left alone."""
    places, first = full()
    waiting, other, seen = Lease(), Lease(), list[object]()

    def middle() -> None:
        with places._lock:
            seen.append(places.enqueue(other, object, inf))

    places.try_acquire(waiting)
    places.enqueue(waiting, object, inf)
    middle()
    places._admitting = True
    assert not places.stop_waiting(waiting)
    assert waiting in places.queue  # whoever is at it sees to it
    places._admitting = False
    places.release(first)
    assert seen == [False]
    assert places.counts() == (1, 0)
