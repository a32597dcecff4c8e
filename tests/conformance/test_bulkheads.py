"""Bulkheads: httpware's facts, and that no slot is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from math import nan
from threading import Event

import pytest
import trio
from trio.testing import MockClock

from redouble import SYSTEM, Backoff, Bulkhead, CircuitBreaker, Retry, errors
from redouble.testing import virtual_time
from tests.conformance.flows import ASYNC, EVERY, in_colour
from tests.support.scripted import Draws, ScriptedError, Virtual, cancelled_in

HOUR = 3600.0
CONCURRENT = ("thread", *ASYNC)


class Guarded:
    """The called functions: they return when all other calls wait, and record the most calls in flight."""

    def __init__(self, bulkhead: Bulkhead, calls: int) -> None:
        self.bulkhead = bulkhead
        self.waiting = calls
        self.inside = self.most = 0

    def enter(self) -> None:
        self.waiting -= 1
        self.inside += 1
        self.most = max(self.most, self.inside)

    def others_wait(self) -> bool:
        return self.bulkhead.snapshot()["queued"] == self.waiting

    def stay(self) -> str:
        self.enter()
        while not self.others_wait():
            Event().wait(0.001)
        self.inside -= 1
        return "ok"

    async def astay(self) -> str:
        self.enter()
        while not self.others_wait():
            await SYSTEM.asleep(0)
        self.inside -= 1
        return "ok"


def together(
    colour: str, calls: int, blocking: Callable[[], str], waiting: Callable[[], Awaitable[str]]
) -> list[str]:
    """Make concurrent calls, and return their values."""
    results: list[str] = []

    async def one() -> None:
        results.append(await waiting())

    async def main() -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                for _ in range(calls):
                    nursery.start_soon(one)
        else:
            await asyncio.gather(*(one() for _ in range(calls)))

    if colour in ASYNC:
        in_colour(colour, lambda: None, main)
        return results
    with ThreadPoolExecutor(calls) as pool:
        return [future.result() for future in [pool.submit(blocking) for _ in range(calls)]]


@pytest.mark.parametrize("colour", CONCURRENT)
def test_hw_bh_01_one_at_a_time(colour: str) -> None:
    """HW-BH-01: of three concurrent calls one is in flight at a time, and all succeed."""
    bulkhead = Bulkhead(1, wait=None)
    room = Guarded(bulkhead, calls=3)
    assert together(colour, 3, bulkhead(room.stay), bulkhead(room.astay)) == ["ok"] * 3
    assert room.most == 1


@pytest.mark.parametrize("colour", EVERY)
def test_hw_bh_03_a_full_bulkhead_rejects(colour: str) -> None:
    """HW-BH-03: without a wait at once, with the limit and the wait in the error."""
    bulkhead = Bulkhead(1, wait=0)

    @bulkhead
    def fetch() -> None: ...

    @bulkhead
    async def afetch() -> None: ...

    with virtual_time() as clock, bulkhead:
        with pytest.raises(errors.BulkheadFull) as caught:
            in_colour(colour, fetch, afetch, MockClock(autojump_threshold=0))
        assert (caught.value.limit, caught.value.wait) == (1, 0)
        assert (clock.now(), clock.delays) == (0, [])


@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize("ends", [None, ScriptedError, KeyboardInterrupt])
def test_hw_bh_04_every_call_releases_its_slot(colour: str, ends: type[BaseException] | None) -> None:
    """HW-BH-04: however it ends."""
    bulkhead = Bulkhead(1, wait=0)

    @bulkhead
    def fetch() -> float:
        if ends is not None:
            raise ends
        return bulkhead.snapshot()["in_use"]

    @bulkhead
    async def afetch() -> float:
        if ends is not None:
            raise ends
        return bulkhead.snapshot()["in_use"]

    for _ in range(2):
        if ends is None:
            assert in_colour(colour, fetch, afetch) == 1
        else:
            with pytest.raises(ends):
                in_colour(colour, fetch, afetch)
        assert bulkhead.snapshot()["in_use"] == 0


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("fact", ["HW-BH-04.cancellation", "retry.cancellation.bulkhead"])
def test_a_cancelled_call_releases_its_slot(colour: str, fact: str) -> None:
    """The next call is admitted."""
    bulkhead = Bulkhead(1, wait=0)

    @bulkhead
    async def for_ever() -> None:
        await SYSTEM.asleep(HOUR)

    async def waiting() -> None:
        await cancelled_in(colour, for_ever)
        async with bulkhead:
            assert bulkhead.snapshot()["in_use"] == 1

    in_colour(colour, lambda: None, waiting)
    assert bulkhead.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


@pytest.mark.parametrize("colour", ASYNC)
def test_hw_bh_05_cancelled_while_waiting(colour: str) -> None:
    """HW-BH-05: a cancelled waiter holds no slot and no position in the queue."""
    bulkhead = Bulkhead(1, wait=None)

    @bulkhead
    async def fetch() -> str:
        return "ok"

    async def waiting() -> str:
        async with bulkhead:
            await cancelled_in(colour, fetch)
            assert bulkhead.snapshot() == {"limit": 1, "in_use": 1, "queued": 0}
        return await fetch()

    assert in_colour(colour, lambda: None, waiting) == "ok"
    assert bulkhead.snapshot() == {"limit": 1, "in_use": 0, "queued": 0}


@pytest.mark.parametrize("colour", EVERY)
def test_hw_bh_06_outside_a_retry(colour: str) -> None:
    """HW-BH-06: one slot for all attempts and the delays between them; a rejection is not retried."""
    bulkhead = Bulkhead(1, wait=0)
    in_use: list[float] = []
    clock = Virtual()

    def record(_: object) -> None:
        in_use.append(bulkhead.snapshot()["in_use"])

    policy = Retry(on=Exception, attempts=3, backoff=Backoff.constant(1), on_retry=record, clock=clock)
    guarded = bulkhead | policy
    calls = Draws(1, 1, 0)

    @guarded
    def fetch() -> None:
        record(None)
        if calls.random():
            raise ScriptedError("503")

    @guarded
    async def afetch() -> None:
        record(None)
        if calls.random():
            raise ScriptedError("503")

    in_colour(colour, fetch, afetch)
    assert in_use == [1] * 5
    with bulkhead, pytest.raises(errors.BulkheadFull):
        in_colour(colour, fetch, afetch)
    assert (calls.drawn, clock.waits) == (3, [1, 1])


@pytest.mark.parametrize("second", EVERY)
@pytest.mark.parametrize("first", EVERY)
def test_hw_bh_07_many_event_loops_deviates(first: str, second: str) -> None:
    """HW-BH-07: httpware refuses a second event loop; here one limit applies to all loops and threads."""
    bulkhead = Bulkhead(1, wait=0)
    inside, over = Event(), Event()

    def stay() -> None:
        inside.set()
        over.wait()

    async def astay() -> None:
        stay()

    @bulkhead
    def fetch() -> str:
        return "ok"

    @bulkhead
    async def afetch() -> str:
        return "ok"

    with ThreadPoolExecutor(1) as pool:
        try:
            staying = pool.submit(in_colour, first, bulkhead(stay), bulkhead(astay))
            inside.wait()
            with pytest.raises(errors.BulkheadFull):
                in_colour(second, fetch, afetch)
        finally:
            over.set()
        staying.result()
    assert in_colour(second, fetch, afetch) == "ok"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(lambda: Bulkhead(0), "Bulkhead limit", id="HW-RT-24.max_concurrent"),
        pytest.param(lambda: Bulkhead(1, wait=-0.1), "Bulkhead wait", id="HW-RT-24.acquire_timeout"),
        pytest.param(lambda: CircuitBreaker(failures=0), "failures", id="HW-RT-24.failure_threshold"),
        pytest.param(lambda: CircuitBreaker(cooldown=-1), "cooldown", id="HW-RT-24.reset_timeout"),
        pytest.param(lambda: CircuitBreaker(probes=0), "probes", id="HW-RT-24.success_threshold"),
        pytest.param(lambda: CircuitBreaker(ratio=0), "ratio", id="HW-RT-24.failure_rate-0"),
        pytest.param(lambda: CircuitBreaker(ratio=1.1), "ratio", id="HW-RT-24.failure_rate-1.1"),
        pytest.param(lambda: CircuitBreaker(window=0), "window", id="HW-RT-24.window_seconds"),
        pytest.param(lambda: CircuitBreaker(minimum=0), "minimum", id="HW-RT-24.minimum_calls"),
        # httpware accepts these two.
        pytest.param(lambda: Bulkhead(1, wait=nan), "Bulkhead wait", id="HW-RT-24.acquire_timeout-nan"),
        pytest.param(lambda: CircuitBreaker(cooldown=nan), "cooldown", id="HW-RT-24.reset_timeout-nan"),
    ],
)
def test_invalid_options_are_rejected(make: Callable[[], object], named: str) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=named):
        make()
