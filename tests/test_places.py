"""The places of a bulkhead: in every order in which threads can take turns, no rule of theirs is broken."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

import pytest

from redouble import _places
from turns import Program, Steps, Ticket, Wait, World, explore

# ----------------------------------------------------------------------------- programs


def call(
    world: World, me: Ticket, waiting: Program | None = None, *, loose: bool = False, begun: bool = False
) -> Steps:
    """Come, wait if it has to be, and leave: as `Bulkhead` does.

    ``begun``: be inside, or in the queue, before all others begin.
    """
    if not begun:
        yield Wait()
    places = world.places
    before = set(places.queue)
    inside: bool = yield from places.take(me)
    passed = before & set(places.queue) - places.inside
    assert not inside or all(other.leaving for other in passed), "somebody who waits was passed by"
    if inside or (yield from (waiting or patient)(world, me)):
        world.entered.add(me)
        world.busy.add(me)
        yield Wait(loose=loose)
        world.busy.discard(me)
    yield from places.leave(me)


def waits(world: World, me: Ticket, step: Wait, most: float = inf) -> Steps:
    """Join the queue, wait, and say whether that was of use."""
    joined: bool = yield from world.places.join(me, partial(world.ring, me), most)
    if joined:
        yield step
    me.leaving = True
    inside: bool = yield from world.places.quit(me)
    return joined and inside and not step.loose


def patient(world: World, me: Ticket) -> Steps:
    """Wait until it is one's turn."""
    return waits(world, me, Wait(lambda: me.rung))


def hasty(world: World, me: Ticket) -> Steps:
    """Wait, and run out of time at some moment."""
    return waits(world, me, Wait())


def unwilling(world: World, me: Ticket) -> Steps:
    """Do not wait."""
    return waits(world, me, Wait(), most=0)


def dropped(world: World, me: Ticket) -> Steps:
    """Be collected while waiting, on whatever thread the collector is at work."""
    return waits(world, me, Wait(loose=True))


def closed(world: World, me: Ticket) -> Steps:
    """Wait on an event loop that is closed, unless one's turn has come before."""
    yield Wait()
    yield from world.places.join(me, partial(world.ring, me), inf)
    if me.rung:
        yield from world.places.quit(me)
        yield from world.places.leave(me)
    me.leaving = me.deaf = True


def finaliser(world: World, me: Ticket) -> Steps:
    """Make a call on whatever thread the collector is at work: from a ``__del__``."""
    yield Wait(loose=True)
    yield from UNWILLING(world, me)


BEGUN, HOLDER = partial(call, begun=True), partial(call, loose=True)
HASTY, UNWILLING, DROPPED = (partial(call, waiting=waiting) for waiting in (hasty, unwilling, dropped))
QUEUED_HASTY, QUEUED_DROPPED = partial(HASTY, begun=True), partial(DROPPED, begun=True)


# -------------------------------------------------------------------------------- tests


@pytest.mark.one_python
@pytest.mark.parametrize(
    ("limit", "programs", "most_switches"),
    [
        (1, [call, call], inf),
        (1, [call, HASTY], inf),
        (1, [UNWILLING, UNWILLING], inf),
        (1, [call, DROPPED], inf),
        (1, [call, closed], inf),
        (2, [call, call, call], 2),
        (2, [call, HASTY, HOLDER], 2),
        (1, [BEGUN, BEGUN, call], 2),
        (1, [BEGUN, BEGUN, HASTY], 2),
        (1, [BEGUN, BEGUN, UNWILLING], 1),
        (1, [BEGUN, BEGUN, HOLDER], 1),
        (1, [BEGUN, BEGUN, DROPPED], 1),
        (1, [BEGUN, BEGUN, closed], 2),
        (1, [BEGUN, BEGUN, finaliser], 1),
        (1, [BEGUN, QUEUED_HASTY, call], 1),
        (1, [BEGUN, QUEUED_HASTY, QUEUED_HASTY], 1),
        (1, [BEGUN, QUEUED_DROPPED, call], 1),
        (1, [BEGUN, QUEUED_HASTY, QUEUED_DROPPED], 1),
    ],
)
def test_all_goes_well_in_every_order(limit: int, programs: list[Program], most_switches: float) -> None:
    """Never too many inside, nobody forgotten or passed by, no place lost, somebody let in."""
    assert explore(limit, programs, most_switches) > 300


# ---------------------------------------------------------------- in the middle of serving


class Watched(set[_places.Ticket]):
    """Where those are who are inside: the first to be let in from the queue does not come quietly."""

    then: Callable[[], object] | None = None

    def add(self, ticket: _places.Ticket) -> None:
        then, self.then = self.then, None
        if then is not None:
            then()
        super().add(ticket)


def served_by(middle: Callable[[_places.Places, list[_places.Ticket]], object]) -> tuple[list[bool], int]:
    """Let one of two leave while two others wait; tell who was woken, and how many are inside."""
    places, inside = _places.Places(2), Watched()
    places.inside = inside
    tickets = [_places.Ticket() for _ in range(4)]
    rung = [False] * 4
    for number, ticket in enumerate(tickets):
        if not places.take(ticket):
            assert places.join(ticket, partial(rung.__setitem__, number, True), inf)
    inside.then = partial(middle, places, tickets)
    with suppress(KeyboardInterrupt):
        places.leave(tickets[0])
    return rung[2:], places.counts()[0]


def collected(places: _places.Places, tickets: list[_places.Ticket]) -> None:
    """Be given up by who waits first."""
    assert not places.quit(tickets[2])
    places.leave(tickets[2])


def left(places: _places.Places, tickets: list[_places.Ticket]) -> None:
    """Leave too."""
    places.leave(tickets[1])


def come(places: _places.Places, tickets: list[_places.Ticket]) -> None:
    """Come in the middle, where there can be no waiting."""
    other = _places.Ticket()
    assert not places.take(other)
    assert not places.join(other, object, inf)
    places.leave(other)


def ctrl_c(places: _places.Places, tickets: list[_places.Ticket]) -> None:
    """Press it."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("middle", "rung", "inside"),
    [
        (collected, [False, True], 2),
        (left, [True, True], 2),
        (come, [True, False], 2),
        (ctrl_c, [True, False], 2),
    ],
)
def test_in_the_middle_of_serving(middle: Callable[..., object], rung: list[bool], inside: int) -> None:
    """On the same thread: by the collector, or by a signal."""
    assert served_by(middle) == (rung, inside)


def test_a_child_begins_anew() -> None:
    places = _places.Places(1)
    for ticket in (first := _places.Ticket()), _places.Ticket():
        assert places.take(ticket) or places.join(ticket, object, inf)
    assert places.counts() == (1, 1)
    places._forked()
    assert places.counts() == (0, 0)
    places.leave(first)
    assert places.take(_places.Ticket())


def test_interrupted_while_waking() -> None:
    """Who has been let in is woken all the same."""
    places, rung = _places.Places(1), list[str]()
    first, second = _places.Ticket(), _places.Ticket()

    def ring() -> None:
        rung.append("once more" if rung else "interrupted")
        if len(rung) == 1:
            raise KeyboardInterrupt

    assert places.take(first)
    assert places.join(second, ring, inf)
    with pytest.raises(KeyboardInterrupt):
        places.leave(first)
    assert rung == ["interrupted", "once more"]


class Called(OrderedDict[_places.Ticket, _places.Ring]):
    """Those who are to be woken: somebody else does it, while we look who there is."""

    def items(self) -> Any:
        while self:
            self.popitem()[1]()
        return super().items()


def test_woken_by_somebody_else() -> None:
    places, rung = _places.Places(1), list[str]()
    first, second = _places.Ticket(), _places.Ticket()
    places.called = Called()
    assert places.take(first)
    assert places.join(second, partial(rung.append, "rung"), inf)
    places.leave(first)
    assert rung == ["rung"]
    assert places.counts() == (1, 0)
