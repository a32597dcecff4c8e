"""`Slots`: its rules hold in every interleaving of threads, finalisers and signal handlers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

import pytest

from redouble._runtime.slots import Lease, Slots, Wake
from tests.support.layers.limits.interleavings import NamedLease, Program, Steps, Wait, World, explore

# ----------------------------------------------------------------------------- programs


def call(
    world: World, me: NamedLease, waiting: Program | None = None, *, loose: bool = False, begun: bool = False
) -> Steps:
    """Acquire a slot, wait if necessary, and release it, as `Bulkhead` does.

    ``begun``: be admitted or queued before the other programs begin.
    """
    if not begun:
        yield Wait()
    slots = world.slots
    before = set(slots.queue)
    inside: bool = yield from slots.try_acquire(me)
    passed = before & set(slots.queue) - slots.leases
    assert not inside or all(other.leaving for other in passed), "a waiter was overtaken"
    if inside or (yield from (waiting or patient)(world, me)):
        world.entered.add(me)
        world.busy.add(me)
        yield Wait(loose=loose)
        world.busy.discard(me)
    yield from slots.release(me)


def waits(world: World, me: NamedLease, step: Wait, most: float = inf) -> Steps:
    """Join the queue, wait, and return True if the slot was acquired."""
    joined: bool = yield from world.slots.enqueue(me, partial(world.wake, me), most)
    if joined:
        yield step
    me.leaving = True
    inside: bool = yield from world.slots.stop_waiting(me)
    return joined and inside and not step.loose


def patient(world: World, me: NamedLease) -> Steps:
    """Wait until woken."""
    return waits(world, me, Wait(lambda: me.woken))


def hasty(world: World, me: NamedLease) -> Steps:
    """Wait, with a timeout that may expire at any moment."""
    return waits(world, me, Wait())


def unwilling(world: World, me: NamedLease) -> Steps:
    """Do not wait."""
    return waits(world, me, Wait(), most=0)


def dropped(world: World, me: NamedLease) -> Steps:
    """Be garbage-collected while waiting, on any thread."""
    return waits(world, me, Wait(loose=True))


def closed(world: World, me: NamedLease) -> Steps:
    """Wait on an event loop that is closed, unless woken before."""
    yield Wait()
    yield from world.slots.enqueue(me, partial(world.wake, me), inf)
    if me.woken:
        yield from world.slots.stop_waiting(me)
        yield from world.slots.release(me)
    me.leaving = me.gone = True


def finaliser(world: World, me: NamedLease) -> Steps:
    """Make a call from a ``__del__``, on any thread."""
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
def test_rules_hold_in_every_interleaving(limit: int, programs: list[Program], most_switches: float) -> None:
    """Never over the limit, no waiter forgotten or overtaken, no slot leaked, at least one call admitted."""
    assert explore(limit, programs, most_switches) > 300


# ---------------------------------------------------------------- re-entrant calls


class InterruptedSet(set[Lease]):
    """A set of leases that calls ``then`` when the next waiter is admitted."""

    then: Callable[[], object] | None = None

    def add(self, lease: Lease) -> None:
        then, self.then = self.then, None
        if then is not None:
            then()
        super().add(lease)


def admitted_after(middle: Callable[[Slots, list[Lease]], object]) -> tuple[list[bool], int]:
    """Release one of two slots while two calls wait; return which were woken, and how many are admitted."""
    slots, admitted = Slots(2), InterruptedSet()
    slots.leases = admitted
    leases = [Lease() for _ in range(4)]
    woken = [False] * 4
    for number, lease in enumerate(leases):
        if not slots.try_acquire(lease):
            assert slots.enqueue(lease, partial(woken.__setitem__, number, True), inf)
    admitted.then = partial(middle, slots, leases)
    with suppress(KeyboardInterrupt):
        slots.release(leases[0])
    return woken[2:], slots.counts()[0]


def collected(slots: Slots, leases: list[Lease]) -> None:
    """Give up the first waiter, as the garbage collector does."""
    assert not slots.stop_waiting(leases[2])
    slots.release(leases[2])


def left(slots: Slots, leases: list[Lease]) -> None:
    """Release the other slot too."""
    slots.release(leases[1])


def come(slots: Slots, leases: list[Lease]) -> None:
    """Make another call, which cannot wait here."""
    other = Lease()
    assert not slots.try_acquire(other)
    assert not slots.enqueue(other, object, inf)
    slots.release(other)


def ctrl_c(slots: Slots, leases: list[Lease]) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("middle", "woken", "admitted"),
    [
        (collected, [False, True], 2),
        (left, [True, True], 2),
        (come, [True, False], 2),
        (ctrl_c, [True, False], 2),
    ],
)
def test_an_interrupted_admission_is_completed(
    middle: Callable[..., object], woken: list[bool], admitted: int
) -> None:
    """``middle`` runs during the admission, as a finaliser or a signal handler on the same thread does."""
    assert admitted_after(middle) == (woken, admitted)


def test_a_forked_child_starts_empty() -> None:
    slots = Slots(1)
    for lease in (first := Lease()), Lease():
        assert slots.try_acquire(lease) or slots.enqueue(lease, object, inf)
    assert slots.counts() == (1, 1)
    slots._after_fork()
    assert slots.counts() == (0, 0)
    slots.release(first)
    assert slots.try_acquire(Lease())


def test_a_waiter_whose_waker_was_interrupted_is_woken_again() -> None:
    slots, woken = Slots(1), list[str]()
    first, second = Lease(), Lease()

    def wake() -> None:
        woken.append("once more" if woken else "interrupted")
        if len(woken) == 1:
            raise KeyboardInterrupt

    assert slots.try_acquire(first)
    assert slots.enqueue(second, wake, inf)
    with pytest.raises(KeyboardInterrupt):
        slots.release(first)
    assert woken == ["interrupted", "once more"]


class WokenElsewhere(OrderedDict[Lease, Wake]):
    """Admitted waiters that another thread wakes while this one looks at them."""

    def items(self) -> Any:
        while self:
            self.popitem()[1]()
        return super().items()


def test_a_waiter_that_another_thread_wakes_meanwhile_is_woken_once() -> None:
    slots, woken = Slots(1), list[str]()
    first, second = Lease(), Lease()
    slots.to_wake = WokenElsewhere()
    assert slots.try_acquire(first)
    assert slots.enqueue(second, partial(woken.append, "woken"), inf)
    slots.release(first)
    assert woken == ["woken"]
    assert slots.counts() == (1, 0)


def test_the_slot_of_a_waiter_that_no_longer_exists_goes_to_the_next() -> None:
    slots, woken = Slots(1), list[str]()
    busy, gone, waiting = Lease(), Lease(), Lease()
    assert slots.try_acquire(busy)
    assert slots.enqueue(gone, lambda: False, inf)
    assert slots.enqueue(waiting, partial(woken.append, "waiting"), inf)
    slots.release(busy)
    assert (woken, slots.leases, slots.counts()) == (["waiting"], {waiting}, (1, 0))
