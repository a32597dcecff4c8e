"""Waiting for a slot: for how long, by which clock, and with a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import TIMEOUT_MAX, Thread

import pytest

from redouble import SYSTEM, Bulkhead, Retry, deadline, errors
from redouble._runtime.slots import Lease
from redouble.testing import VirtualClock
from tests.support.bulkhead_callers import callers, until
from tests.support.fakes import in_colour, nothing
from tests.support.runtime.tasks import together
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour

A_WHILE, A_LITTLE = 3.0, 0.001


def waited(colour: str, gate: Bulkhead, within: float | None = None) -> tuple[str, float]:
    """Call a full bulkhead in virtual time; return the reason in its error, and when it was raised."""

    def blocking(clock: VirtualClock) -> tuple[str, float]:
        with gate, pytest.raises(errors.BulkheadFull) as caught:
            if within is None:
                gate.call(int)
            with deadline(within or 0):
                gate.call(int)
        return str(caught.value).rpartition(", ")[2], clock.now()

    async def waiting(clock: VirtualClock) -> tuple[str, float]:
        with gate, pytest.raises(errors.BulkheadFull) as caught:
            if within is None:
                await gate.call(nothing)
            with deadline(within or 0):
                await gate.call(nothing)
        return str(caught.value).rpartition(", ")[2], clock.now()

    outcome: tuple[str, float] = in_virtual_colour(colour, blocking, waiting)
    assert gate.snapshot() == {"limit": gate.limit, "in_use": 0, "queued": 0}
    return outcome


# ------------------------------------------------------------------------- virtual time


@VIRTUAL_COLOURS
@pytest.mark.parametrize(
    ("wait", "within", "reason", "when"),
    [
        (0, None, "and it does not wait", 0),
        (5, None, "and no slot came free within 5 s", 5),
        (0.25, None, "and no slot came free within 0.25 s", 0.25),
        (1e6, None, "and no slot came free within 1000000 s", 1e6),
        # a deadline ends the waiting too
        (5, 2, "and no slot came free within 2 s", 2),
        (None, 2, "and no slot came free within 2 s", 2),
        (5, 7, "and no slot came free within 5 s", 5),
        (5, 0, "and it does not wait", 0),
        (None, 0, "and it does not wait", 0),
        (0, 7, "and it does not wait", 0),
    ],
)
def test_a_call_waits_until_its_timeout_or_the_deadline(
    colour: str, wait: float | None, within: float | None, reason: str, when: float
) -> None:
    assert waited(colour, Bulkhead(1, wait), within) == (reason, when)


@VIRTUAL_COLOURS
def test_a_call_does_not_wait_after_the_deadline(colour: str) -> None:
    """A call that would have to wait is rejected at once; a free slot is still acquired."""
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

    in_virtual_colour(colour, blocking, waiting)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("wait", "expected"), [(None, [0, 3, 6, 9]), (5, [0, 3]), (2, [0]), (0, [0]), (7, [0, 3, 6])]
)
def test_waiters_are_admitted_in_order_until_their_time_runs_out(
    colour: str, wait: float | None, expected: list[float]
) -> None:
    """Four calls start at once, and each holds the slot for three seconds."""
    gate, admitted, rejected = Bulkhead(1, wait), list[float](), list[float]()

    async def waiting(clock: VirtualClock) -> None:
        async def stay() -> None:
            admitted.append(clock.now())
            await SYSTEM.asleep(A_WHILE)

        async def one() -> None:
            try:
                await gate.call(stay)
            except errors.BulkheadFull:
                rejected.append(clock.now())

        await together(colour, *[one] * 4)

    in_virtual_colour(colour, lambda clock: None, waiting)
    assert admitted == expected
    assert rejected == [wait] * (4 - len(expected))
    assert gate.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


@VIRTUAL_COLOURS
def test_a_policy_retries_a_rejected_call(colour: str) -> None:
    """Three attempts wait for 2 s each, which is not a part of the policy's two delays of 10 s."""
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

    assert in_virtual_colour(colour, blocking, waiting) == (26, [10, 10])


def test_no_call_overtakes_a_waiter(colour: str) -> None:
    """Not even between the release of a slot and the admission of the next waiter."""
    gate = Bulkhead(1, 0)

    def waiter() -> Lease:
        ticket = Lease()
        gate._slots.queue[ticket] = object
        return ticket

    def blocking() -> None:
        uses: list[Callable[[], object]] = [lambda: gate.call(int), gate.__enter__, lambda: gate.admit(0.0)]
        for use in uses:
            ticket = waiter()
            with pytest.raises(errors.BulkheadFull):
                use()
            gate.ended(ticket, None, 0.0)

    async def waiting() -> None:
        uses: list[Callable[[], Awaitable[object]]] = [lambda: gate.call(nothing), gate.__aenter__]
        for use in uses:
            ticket = waiter()
            with pytest.raises(errors.BulkheadFull):
                await use()
            gate.ended(ticket, None, 0.0)

    in_colour(colour, blocking, waiting)
    assert gate.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


@VIRTUAL_COLOURS
def test_a_slot_that_is_free_when_joining_the_queue_is_acquired_at_once(colour: str) -> None:
    gate, ticket = Bulkhead(1, 5), Lease()

    def blocking(clock: VirtualClock) -> float:
        gate._enter(ticket)
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        await gate._aenter(ticket)
        return clock.now()

    assert in_virtual_colour(colour, blocking, waiting) == 0
    assert gate.snapshot()["in_use"] == 1


# ---------------------------------------------------------------------------- real time


def test_a_call_is_rejected_when_its_wait_runs_out(colour: str) -> None:
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
def test_a_very_long_wait_is_accepted(colour: str, wait: float | None) -> None:
    gate = Bulkhead(1, wait)
    ticket = gate.admit(0.0)
    with callers(gate) as group:
        caller = group.start(colour)
        assert group.used() == (1, 1)
        gate.ended(ticket, None, 0.0)
        until(lambda: group.admitted == [caller.name])
        caller.finish()
        assert caller.error is None


def test_an_unlimited_wait_in_virtual_time_ends_with_the_release(colour: str) -> None:
    """There is no moment to advance to, so the call really waits until the slot is released."""
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
        assert in_virtual_colour(colour, blocking, waiting) == 0
    finally:
        other.join()


@pytest.mark.parametrize("colour", ["asyncio", "uvloop"])
def test_a_free_slot_is_acquired_without_yielding_to_the_loop(colour: str) -> None:
    """As with a plain call, other tasks run only if the function waits."""
    gate, order = Bulkhead(1), list[str]()

    async def main() -> None:
        async def other() -> None:
            order.append("other")

        async def one() -> None:
            await gate.call(nothing)
            order.append("one")

        await together(colour, one, other)

    in_colour(colour, lambda: None, main)
    assert order == ["one", "other"]


def test_a_slot_released_after_the_first_check_is_acquired() -> None:
    """A call that does not wait checks twice, because another call may end in between."""
    gate, late = Bulkhead(1, 0), Lease()
    holder = gate.admit(0.0)
    assert not gate._slots.try_acquire(late)
    gate.ended(holder, None, 0.0)
    gate._acquire_now(late, "and it does not wait")
    assert gate.snapshot() == {"limit": 1, "in_use": 1, "queued": 0}
