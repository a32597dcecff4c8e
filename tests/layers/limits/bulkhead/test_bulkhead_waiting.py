"""Waiting for a place: for how long, by which clock, and what a deadline makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import TIMEOUT_MAX, Thread
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from redouble import SYSTEM, Bulkhead, Retry, deadline, errors
from redouble._layers.limits import slots as _places
from redouble.testing import VirtualClock, virtual_time
from tests.support.bulkhead_callers import callers, until
from tests.support.fakes import in_colour

A_WHILE, A_LITTLE = 3.0, 0.001
VIRTUAL = pytest.mark.parametrize("colour", ["sync", "thread", "asyncio", "trio"])  # not all that uvloop does


async def nothing() -> None: ...


def turned(
    colour: str,
    blocking: Callable[[VirtualClock], object],
    waiting: Callable[[VirtualClock], Awaitable[object]],
) -> Any:
    """Run one of the two in virtual time, in a colour."""

    def here() -> object:
        with virtual_time() as clock:
            return blocking(clock)

    async def ahere() -> object:
        with virtual_time() as clock:
            return await waiting(clock)

    if colour == "trio":
        return trio.run(ahere, clock=MockClock(autojump_threshold=0))
    return in_colour(colour, here, ahere)


def waited(colour: str, gate: Bulkhead, until_when: float | None = None) -> tuple[str, float]:
    """Wait in virtual time while it is full; tell what was said, and when."""

    def blocking(clock: VirtualClock) -> tuple[str, float]:
        with gate, pytest.raises(errors.BulkheadFull) as caught:
            if until_when is None:
                gate.call(int)
            with deadline(until_when or 0):
                gate.call(int)
        return str(caught.value).rpartition(", ")[2], clock.now()

    async def waiting(clock: VirtualClock) -> tuple[str, float]:
        with gate, pytest.raises(errors.BulkheadFull) as caught:
            if until_when is None:
                await gate.call(nothing)
            with deadline(until_when or 0):
                await gate.call(nothing)
        return str(caught.value).rpartition(", ")[2], clock.now()

    said: tuple[str, float] = turned(colour, blocking, waiting)
    assert gate.snapshot() == {"limit": gate.limit, "in_use": 0, "queued": 0}
    return said


# ------------------------------------------------------------------------- virtual time


@VIRTUAL
@pytest.mark.parametrize(
    ("wait", "before", "says", "when"),
    [
        (0, None, "and it does not wait", 0),
        (5, None, "and no slot came free within 5 s", 5),
        (0.25, None, "and no slot came free within 0.25 s", 0.25),
        (1e6, None, "and no slot came free within 1000000 s", 1e6),
        # a deadline ends it too
        (5, 2, "and no slot came free within 2 s", 2),
        (None, 2, "and no slot came free within 2 s", 2),
        (5, 7, "and no slot came free within 5 s", 5),
        (5, 0, "and it does not wait", 0),
        (None, 0, "and it does not wait", 0),
        (0, 7, "and it does not wait", 0),
    ],
)
def test_how_long(colour: str, wait: float | None, before: float | None, says: str, when: float) -> None:
    assert waited(colour, Bulkhead(1, wait), before) == (says, when)


@VIRTUAL
def test_a_deadline_that_has_passed(colour: str) -> None:
    """Then a call is refused at once if it would have to wait, and only then."""
    gate = Bulkhead(1)

    def blocking(clock: VirtualClock) -> None:
        with deadline(1):
            clock.advance(2)
            assert gate.call(str, "in") == "in"
            with gate, pytest.raises(errors.BulkheadFull, match="it does not wait"):
                gate.call(int)
        assert clock.now() == 2

    async def waiting(clock: VirtualClock) -> None:
        with deadline(1):
            clock.advance(2)
            await gate.call(nothing)
            with gate, pytest.raises(errors.BulkheadFull, match="it does not wait"):
                await gate.call(nothing)
        assert clock.now() == 2

    turned(colour, blocking, waiting)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("wait", "served"), [(None, [0, 3, 6, 9]), (5, [0, 3]), (2, [0]), (0, [0]), (7, [0, 3, 6])]
)
def test_served_in_time(colour: str, wait: float | None, served: list[float]) -> None:
    """Four come at once, and each stays for three seconds; some get tired of waiting."""
    gate, came, refused = Bulkhead(1, wait), list[float](), list[float]()

    async def waiting(clock: VirtualClock) -> None:
        async def stay() -> None:
            came.append(clock.now())
            await SYSTEM.asleep(A_WHILE)

        async def one() -> None:
            try:
                await gate.call(stay)
            except errors.BulkheadFull:
                refused.append(clock.now())

        await together(colour, [one] * 4)

    turned(colour, lambda clock: None, waiting)
    assert came == served
    assert refused == [wait] * (4 - len(served))
    assert gate.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


async def together(colour: str, works: list[Callable[[], Any]]) -> None:
    """Do all at the same time."""
    if colour == "trio":
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(work)
    else:
        await asyncio.gather(*(work() for work in works))


@VIRTUAL
def test_a_policy_waits_for_its_next_try(colour: str) -> None:
    """Waiting for a place is no delay of the policy; a refusal is worth another attempt."""
    gate = Bulkhead(1, 2)
    policy = Retry(attempts=3, backoff=[10, 10]) | gate

    def blocking(clock: VirtualClock) -> tuple[float, list[float]]:
        with gate, pytest.raises(errors.BulkheadFull):
            policy.call(int)
        return clock.now(), clock.delays

    async def waiting(clock: VirtualClock) -> tuple[float, list[float]]:
        with gate, pytest.raises(errors.BulkheadFull):
            await policy.call(nothing)
        return clock.now(), clock.delays

    assert turned(colour, blocking, waiting) == (26, [10, 10])


def test_nobody_passes_by_who_waits(colour: str) -> None:
    """Not even in the moment between a leaving and the serving of who is next."""
    gate = Bulkhead(1, 0)

    def one_who_waits() -> _places.Lease:
        ticket = _places.Lease()
        gate._slots.queue[ticket] = object
        return ticket

    def blocking() -> None:
        uses: list[Callable[[], object]] = [lambda: gate.call(int), gate.__enter__, lambda: gate.admit(0.0)]
        for use in uses:
            ticket = one_who_waits()
            with pytest.raises(errors.BulkheadFull):
                use()
            gate.ended(ticket, None, 0.0)

    async def waiting() -> None:
        uses: list[Callable[[], Awaitable[None]]] = [lambda: gate.call(nothing), gate.__aenter__]
        for use in uses:
            ticket = one_who_waits()
            with pytest.raises(errors.BulkheadFull):
                await use()
            gate.ended(ticket, None, 0.0)

    in_colour(colour, blocking, waiting)
    assert gate.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


@VIRTUAL
def test_served_at_once(colour: str) -> None:
    """Who found too many inside, and finds a place when joining the queue, does not wait."""
    gate, ticket = Bulkhead(1, 5), _places.Lease()

    def blocking(clock: VirtualClock) -> float:
        gate._slots.enter(ticket)
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        await gate._slots.aenter(ticket)
        return clock.now()

    assert turned(colour, blocking, waiting) == 0
    assert gate.snapshot()["in_use"] == 1


# ---------------------------------------------------------------------------- real time


def test_time_that_runs_out(colour: str) -> None:
    gate = Bulkhead(1, A_LITTLE)

    async def waiting() -> None:
        await gate.call(nothing)

    ticket = gate.admit(0.0)
    for _ in range(3):
        with pytest.raises(errors.BulkheadFull, match=r"no slot came free within 0\.001 s"):
            in_colour(colour, lambda: gate.call(int), waiting)
    assert gate.snapshot() == {"limit": 1, "in_use": 1, "queued": 0}
    gate.ended(ticket, None, 0.0)
    in_colour(colour, lambda: gate.call(int), waiting)


@pytest.mark.parametrize("wait", [None, 1000, TIMEOUT_MAX, 2 * TIMEOUT_MAX, 1e300])
def test_a_long_time_that_does_not_pass(colour: str, wait: float | None) -> None:
    gate = Bulkhead(1, wait)
    ticket = gate.admit(0.0)
    with callers(gate) as guests:
        guest = guests.start(colour)
        assert guests.used() == (1, 1)
        gate.ended(ticket, None, 0.0)
        until(lambda: guests.admitted == [guest.name])
        guest.finish()
        assert guest.error is None


def test_for_ever_in_virtual_time(colour: str) -> None:
    """There is nothing that could pass, so it is really waited for whoever is inside."""
    gate = Bulkhead(1, None)
    ticket = gate.admit(0.0)

    def free() -> None:
        until(lambda: gate.snapshot()["queued"] == 1)
        gate.ended(ticket, None, 0.0)

    def blocking(clock: VirtualClock) -> float:
        gate.call(int)
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        await gate.call(nothing)
        return clock.now()

    other = Thread(target=free)
    other.start()
    try:
        assert turned(colour, blocking, waiting) == 0
    finally:
        other.join()


@pytest.mark.parametrize("colour", ["asyncio", "uvloop"])
def test_a_place_that_is_free_takes_no_turn_of_the_loop(colour: str) -> None:
    """As with a plain call, others run only if the function waits."""
    gate, order = Bulkhead(1), list[str]()

    async def main() -> None:
        async def other() -> None:
            order.append("other")

        async def one() -> None:
            await gate.call(nothing)
            order.append("one")

        await together(colour, [one, other])

    in_colour(colour, lambda: None, main)
    assert order == ["one", "other"]


def test_a_slot_released_after_the_first_look_is_acquired() -> None:
    """A call that does not wait looks twice, because another call may leave in between."""
    gate, late = Bulkhead(1, 0), _places.Lease()
    holder = gate.admit(0.0)
    assert not gate._slots.try_acquire(late)
    gate.ended(holder, None, 0.0)
    gate._slots.try_acquire_now(late, "and it does not wait")
    assert gate.snapshot() == {"limit": 1, "in_use": 1, "queued": 0}
