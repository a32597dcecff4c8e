"""The places of a bulkhead when something comes in the middle: who waits is let in and woken all the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView
from math import inf

import pytest

from redouble._layers.limits.slots import Places, Ring, Ticket


class Interrupting(set[Ticket]):
    """Interrupts the first who is let in from the queue."""

    once = False

    def add(self, ticket: Ticket) -> None:
        if self.once:
            self.once = False
            raise KeyboardInterrupt
        super().add(ticket)


def full(inside: set[Ticket] | None = None) -> tuple[Places, Ticket]:
    places, first = Places(1), Ticket()
    if inside is not None:
        places.inside = inside
    assert places.take(first)
    return places, first


def test_who_serves_is_interrupted() -> None:
    places, first = full(inside := Interrupting())
    waiting, woken = Ticket(), list[int]()
    assert not places.take(waiting)
    assert places.join(waiting, lambda: woken.append(1), inf)
    inside.once = True
    with pytest.raises(KeyboardInterrupt):
        places.leave(first)
    assert woken == [1]
    assert places.counts() == (1, 0)


def test_who_rings_is_interrupted() -> None:
    places, first = full()
    waiting, rings = Ticket(), list[int]()

    def ring() -> None:
        rings.append(1)
        if len(rings) == 1:
            raise KeyboardInterrupt

    places.take(waiting)
    places.join(waiting, ring, inf)
    with pytest.raises(KeyboardInterrupt):
        places.leave(first)
    assert rings == [1, 1]
    assert not places.called


def test_two_who_ring_at_once() -> None:
    class Changing(OrderedDict[Ticket, Ring]):
        """Changes while one looks."""

        looks = 0

        def items(self) -> ItemsView[Ticket, Ring]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("OrderedDict mutated during iteration")
            return super().items()

    places, first = full()
    waiting, woken = Ticket(), list[int]()
    places.take(waiting)
    places.join(waiting, lambda: woken.append(1), inf)
    places.called = Changing()
    places.leave(first)
    assert woken == [1]


def test_who_comes_in_the_middle_is_not_served_there() -> None:
    """By a signal or the collector: a call of its own would wait for itself; who gives up is left alone."""
    places, first = full()
    waiting, other, seen = Ticket(), Ticket(), list[object]()

    def middle() -> None:
        with places._lock:
            seen.append(places.join(other, object, inf))

    places.take(waiting)
    places.join(waiting, object, inf)
    middle()
    places._serving = True
    assert not places.quit(waiting)
    assert waiting in places.queue  # whoever is at it sees to it
    places._serving = False
    places.leave(first)
    assert seen == [False]
    assert places.counts() == (1, 0)
