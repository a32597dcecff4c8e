"""Calls that are cancelled or time out at every point: no slot, no probe and no token is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from redouble import Bulkhead, CircuitBreaker, Fallback, Hints, Retry, Timeout, TokenBucket, errors
from redouble._runtime.backend import backend, under_trio
from redouble.testing import VirtualClock
from tests.support.fakes import ASYNC, Boom, Virtual
from tests.support.runtime.cancellation import cancelled
from tests.support.virtual_time import in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

LOOPS = pytest.mark.parametrize("colour", ASYNC)
PLACES = pytest.mark.parametrize(
    "place", ["asyncio around", "asyncio inside", "trio around jumping", "trio inside"]
)
LONG, HOUR, COOLDOWN = 1e6, 3600.0, 30.0
CAPACITY, COST = 1000.0, 5.0


@dataclass
class Guards:
    """All layers around an operation that fails ``fails`` times, and then takes ``takes`` seconds."""

    fails: int = 0
    limit: int = 1
    wait: float | None = None
    takes: float = LONG
    delay: float = LONG
    clock: Virtual = field(default_factory=Virtual)
    calls: int = 0

    def __post_init__(self) -> None:
        self.bulkhead = Bulkhead(self.limit, wait=self.wait)
        self.budget = TokenBucket(CAPACITY)
        self.breaker = CircuitBreaker(failures=99, cooldown=COOLDOWN, clock=self.clock)
        retry = Retry(on=Boom, backoff=[self.delay] * 3, give_up_after=None, budget=self.budget)
        self.inner = self.bulkhead | retry | self.breaker
        self.whole = Fallback(value="replaced") | self.inner | Timeout(2 * LONG)

    async def work(self) -> str:
        self.calls += 1
        if self.calls <= self.fails:
            raise Boom
        await backend().sleep(self.takes)
        return "done"

    async def items(self) -> AsyncIterator[str]:
        yield await self.work()

    def left(self) -> tuple[float, float, float]:
        """Return what is left behind: slots in use, waiters, and spent tokens."""
        slots = self.bulkhead.snapshot()
        return slots["in_use"], slots["queued"], CAPACITY - self.budget.snapshot()["tokens"]


async def called(guards: Guards) -> object:
    return await guards.whole.call(guards.work)


async def streamed(guards: Guards) -> object:
    return await anext(guards.whole(guards.items)())


async def entered(guards: Guards) -> object:
    async with guards.bulkhead:
        return await guards.work()


SHAPES = pytest.mark.parametrize("shape", [called, streamed])
Shape = Callable[[Guards], Awaitable[object]]


# --------------------------------------------------------------------------- at every point


@LOOPS
@pytest.mark.parametrize("shape", [called, streamed, entered])
def test_cancelled_while_it_waits_for_a_slot(colour: str, shape: Shape) -> None:
    guards = Guards()
    ticket = guards.bulkhead.admit(0)
    assert cancelled(colour, lambda: shape(guards)) == "cancelled"
    assert (guards.calls, guards.left()) == (0, (1, 0, 0))
    guards.bulkhead.ended(ticket, None, 0)
    assert guards.left() == (0, 0, 0)
    with guards.bulkhead:
        assert guards.left() == (1, 0, 0)


@LOOPS
@pytest.mark.parametrize("shape", [called, streamed, entered])
def test_cancelled_in_an_attempt(colour: str, shape: Shape) -> None:
    """The breaker does not count the call."""
    guards = Guards()
    assert cancelled(colour, lambda: shape(guards)) == "cancelled"
    assert (guards.calls, guards.left()) == (1, (0, 0, 0))
    assert guards.breaker.snapshot()["failures"] == 0


@LOOPS
@SHAPES
def test_cancelled_in_a_delay(colour: str, shape: Shape) -> None:
    """The retry never starts, so it is refunded."""
    guards = Guards(fails=1)
    assert cancelled(colour, lambda: shape(guards)) == "cancelled"
    assert (guards.calls, guards.left()) == (1, (0, 0, 0))


@LOOPS
@SHAPES
def test_cancelled_in_a_retry(colour: str, shape: Shape) -> None:
    """The retry has started, so it is not refunded."""
    guards = Guards(fails=1, delay=0)
    assert cancelled(colour, lambda: shape(guards)) == "cancelled"
    assert (guards.calls, guards.left()) == (2, (0, 0, COST))


@LOOPS
@SHAPES
def test_cancelled_in_a_probe(colour: str, shape: Shape) -> None:
    """Another call may probe, and its success closes the breaker."""
    guards = Guards()
    for _ in range(99):
        guards.breaker.ended(guards.breaker.admit(guards.clock.time), Boom(), guards.clock.time)
    guards.clock.time += COOLDOWN
    assert guards.breaker.state == "half_open"
    assert cancelled(colour, lambda: shape(guards)) == "cancelled"
    assert guards.calls == 1
    with guards.breaker:
        pass
    assert guards.breaker.snapshot()["state"] == "closed"


@LOOPS
def test_cancelled_while_the_fallback_runs(colour: str) -> None:
    guards = Guards(fails=99, delay=0)

    async def waits(_: Exception) -> str:
        await backend().sleep(LONG)
        return "replaced"

    assert cancelled(colour, lambda: (Fallback(waits) | guards.inner).call(guards.work)) == "cancelled"
    assert (guards.calls, guards.left()) == (4, (0, 0, 3 * COST))


# ------------------------------------------------------------------------------ timeouts


@PLACES
@pytest.mark.parametrize(
    ("fails", "delay", "full", "calls", "spent"),
    [
        (0, HOUR, True, 0, 0),  # while it waits for a slot
        (0, HOUR, False, 1, 0),  # in an attempt
        (1, HOUR, False, 1, 0),  # in a delay
        (1, 1, False, 2, COST),  # in a retry
    ],
)
def test_a_timeout_outside_all_layers(
    place: str, fails: int, delay: float, full: bool, calls: int, spent: float
) -> None:
    """Its error is raised at its time, and the layers inside see a cancellation only."""
    guards = Guards(fails=fails, delay=delay, takes=HOUR)

    async def waiting(clock: VirtualClock) -> None:
        ticket = guards.bulkhead.admit(0) if full else None
        with pytest.raises(errors.AttemptTimeout):
            await (Timeout(5) | guards.whole).call(guards.work)
        assert (clock.now(), guards.calls) == (5, calls)
        if ticket is not None:
            guards.bulkhead.ended(ticket, None, 0)

    in_virtual_time(place, waiting)
    assert guards.left() == (0, 0, spent)
    assert guards.breaker.snapshot()["failures"] == fails


@PLACES
def test_a_call_that_timed_out_passes_its_slot_on(place: str) -> None:
    """The next waiter is admitted at once."""
    guards, ends = Guards(takes=3), list[tuple[str, object, float]]()

    async def one(name: str, limit: float, clock: VirtualClock) -> None:
        try:
            value: object = await (Timeout(limit) | guards.inner).call(guards.work)
        except errors.AttemptTimeout:
            value = "timeout"
        ends.append((name, value, clock.now()))

    async def waiting(clock: VirtualClock) -> None:
        await together(one("a", 2, clock), one("b", 1, clock), one("c", 9, clock), one("d", 4, clock))

    in_virtual_time(place, waiting)
    assert ends == [("b", "timeout", 1), ("a", "timeout", 2), ("d", "timeout", 4), ("c", "done", 5)]
    assert guards.left() == (0, 0, 0)


async def together(*coroutines: Any) -> None:
    """Run all coroutines concurrently, started in order."""
    if under_trio():
        async with trio.open_nursery() as nursery:
            for coroutine in coroutines:
                nursery.start_soon(_awaited, coroutine)
                await trio.lowlevel.checkpoint()
    else:
        await asyncio.gather(*coroutines)


async def _awaited(coroutine: Awaitable[None]) -> None:
    await coroutine


# ------------------------------------------------------------------------------ at random


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("place", ["asyncio around", "trio around jumping"])
def test_cancelled_at_random(place: str, seed: int) -> None:
    """Whenever calls are cancelled: never one too many is admitted, and no slot or token is lost."""
    chance = random.Random(seed)
    guards, in_flight, most = Guards(limit=3, wait=4, delay=1), list[int](), list[int]()
    calls: dict[int, int] = {}

    async def fetch(number: int) -> None:
        calls[number] = calls.get(number, 0) + 1
        in_flight.append(number)
        most.append(len(in_flight))
        try:
            await backend().sleep(chance.random() * 2)
            raise Boom
        finally:
            in_flight.remove(number)

    async def one(number: int) -> None:
        limit = chance.random() * 12
        if under_trio():
            with trio.move_on_after(limit):
                await guards.whole.call(fetch, number)
            return
        task = asyncio.ensure_future(guards.whole.call(fetch, number))
        asyncio.get_running_loop().call_later(limit, task.cancel)
        await asyncio.wait([task])
        assert task.cancelled() or task.result() == "replaced"

    async def waiting(_: VirtualClock) -> None:
        await together(*(one(number) for number in range(40)))

    in_virtual_time(place, waiting)
    assert max(most) == 3
    retries = sum(count - 1 for count in calls.values())
    assert retries > 0
    assert guards.left() == (0, 0, retries * COST)


@PLACES
def test_a_wait_for_an_open_breaker_can_time_out(place: str) -> None:
    """A call that waits for an open breaker holds a slot meanwhile, and releases it when it times out."""
    guards = Guards(takes=0)
    breaker = CircuitBreaker(failures=1, cooldown=HOUR)
    retry = Retry(hints=Hints(spread=0), give_up_after=None, backoff=[0] * 9, budget=guards.budget)

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(Boom):
            await breaker.call(Guards(fails=1).work)
        with pytest.raises(errors.AttemptTimeout):
            await (Timeout(5) | guards.bulkhead | retry | breaker).call(guards.work)
        assert clock.now() == 5

    in_virtual_time(place, waiting)
    assert (guards.calls, guards.left()) == (0, (0, 0, 0))
