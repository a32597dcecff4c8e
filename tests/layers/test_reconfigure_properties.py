"""Reconfiguring during calls: no slot is lost, no permit is created, never too many calls are admitted.

Threads switch every microsecond here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import SYSTEM, Bulkhead, CircuitBreaker, RateLimit, RetryBudget, TokenBucket, errors
from redouble._layers.limits.pacing import CLOCK_TOLERANCE, GcraPacer
from redouble._layers.limits.slots import Lease, WaitableSlots
from tests.support.bulkhead_callers import A_MINUTE
from tests.support.fakes import COLOURS, in_colour

pytestmark = pytest.mark.one_python

A_THIRD = 1 / 3


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Switch threads every microsecond."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


# --------------------------------------------------------------------------------- places


@settings(max_examples=50)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from(["come", "come", "leave", "retune"]), st.integers(0, 6)), max_size=60),
)
def test_places(limit: int, steps: list[tuple[str, int]]) -> None:
    """A waiter is admitted as soon as there is a slot, in order; no other call is."""
    places, everybody, rung = WaitableSlots(limit, None, None, None), list[Lease](), list[Lease]()
    for what, number in steps:
        before = len(places.leases)
        if what == "come":
            ticket = Lease()
            everybody.append(ticket)
            if not places.try_acquire(ticket):
                places.enqueue(ticket, lambda ticket=ticket: rung.append(ticket), 99)  # type: ignore[misc]
        elif what == "retune":
            places.reconfigure(number + 1, None, None)
        elif everybody:
            gone = everybody.pop(number % len(everybody))
            places.stop_waiting(gone)
            places.release(gone)
        inside = len(places.leases)
        assert inside <= max(before, places.limit)
        assert not places.queue or inside >= places.limit
        assert places.leases <= set(everybody)
        assert list(places.queue) == [ticket for ticket in everybody if ticket in places.queue]
    assert len(rung) == len(set(rung))
    for ticket in everybody:
        places.release(ticket)
    assert not places.leases
    assert not places.queue


@pytest.mark.parametrize("colour", COLOURS)
def test_calls_while_the_limit_goes_up_and_down(colour: str) -> None:
    gate, inside, most, served = Bulkhead(4, None), set[object](), list[int](), list[int]()

    @gate
    def work(number: int) -> None:
        me = object()
        inside.add(me)
        most.append(len(inside))
        inside.discard(me)
        served.append(number)

    @gate
    async def awork(number: int) -> None:
        me = object()
        inside.add(me)
        await SYSTEM.asleep(0)
        most.append(len(inside))
        inside.discard(me)
        served.append(number)

    def blocking() -> None:
        for number in range(100):
            work(number)

    async def waiting() -> None:
        for number in range(100):
            await awork(number)

    threads = [Thread(target=in_colour, args=[colour, blocking, waiting], daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    limits = iter([1, 4, 2, 3] * 1000)
    while any(thread.is_alive() for thread in threads) and (limit := next(limits, None)) is not None:
        gate.reconfigure(Bulkhead(limit, None))
    for thread in threads:
        thread.join(A_MINUTE)
    assert max(most) <= 4
    assert len(served) == 600
    assert gate.snapshot()["in_use"] == gate.snapshot()["queued"] == 0


# -------------------------------------------------------------------------------- permits


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.1, A_THIRD, 1, 5]),
            st.integers(1, 5),
            st.lists(st.sampled_from([0, 0, 0.05, A_THIRD, 1, 4]), max_size=15),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_permits(terms: list[tuple[float, int, list[float]]]) -> None:
    """Whatever the settings, in any t seconds at most t / interval + burst calls are admitted."""
    flow, now = GcraPacer(1, 1), 1000.0
    for interval, burst, waits in terms:
        flow.reconfigure(interval, burst, now)
        free = flow.available(now)
        passed: list[float] = []
        assert flow.due(now) <= interval + CLOCK_TOLERANCE
        assert 0 <= free <= burst
        for wait in waits:
            now += wait
            if not flow.due(now):
                flow.take(now)
                passed.append(now)
        assert passed.count(passed[0] if passed else now) <= burst
        for (i, first), (j, last) in combinations(enumerate(passed), 2):
            assert j - i + 1 <= (last - first) / interval + burst + 1e-6


def test_calls_while_the_rate_goes_up_and_down() -> None:
    """Every waiter is admitted exactly once, and the gate uses its fast path again in the end."""
    gate, passed = RateLimit(1e6, burst=1000), list[int]()
    take = gate(passed.append)

    def calls(number: int) -> None:
        for _ in range(200):
            take(number)

    threads = [Thread(target=calls, args=[number], daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    rates = iter([1e5, 1e6, 3e5] * 300)
    while any(thread.is_alive() for thread in threads) and (rate := next(rates, None)) is not None:
        gate.reconfigure(RateLimit(rate, burst=int(rate / 1000)))
    for thread in threads:
        thread.join(A_MINUTE)
    assert sorted(passed) == sorted([0, 1, 2, 3] * 200)
    assert gate.snapshot()["queued"] == 0


# -------------------------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("thing", "others"),
    [
        (RetryBudget(0, 10, 10), [RetryBudget(0, 20, 5), RetryBudget(0, 5, 20), RetryBudget(0, 10, 10)]),
        (TokenBucket(100, {None: 1}), [TokenBucket(100, {None: 1}), TokenBucket(200, {None: 1})]),
    ],
)
def test_spending_while_the_values_change(thing: Any, others: list[Any]) -> None:
    """However often they do, a hundred are granted: as many as each of the settings allows initially."""
    granted: list[object] = []

    def spend() -> None:
        granted.extend(filter(None, (thing.spend() for _ in range(100))))

    threads = [Thread(target=spend, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for other in others:
            thing.reconfigure(other)
    for thread in threads:
        thread.join(A_MINUTE)
    assert len(granted) == 100


def test_a_breaker_whose_settings_change_all_the_time() -> None:
    breaker, ends = CircuitBreaker(failures=10**6), list[BaseException | None]()

    @breaker
    def work(number: int) -> None:
        if number % 3 == 0:
            raise OSError

    def calls() -> None:
        for number in range(200):
            try:
                work(number)
            except (OSError, errors.CircuitOpen) as error:
                ends.append(error)

    threads = [Thread(target=calls, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        breaker.reconfigure(CircuitBreaker(ratio=0.9, minimum=10**6, slow=100, window=7))
        breaker.reconfigure(CircuitBreaker(failures=10**6))
    for thread in threads:
        thread.join(A_MINUTE)
    assert [type(end) for end in ends] == [OSError] * len(range(0, 200, 3)) * 4
    assert breaker._circuit.epoch.calls == {}
    assert breaker.state == "closed"
