"""Reconfiguring during calls: no slot is lost, no permit is created, never too many calls are admitted.

Threads switch every microsecond here.
"""

from __future__ import annotations

from itertools import combinations
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import SYSTEM, Bulkhead, CircuitBreaker, RateLimit, RetryBudget, TokenBucket, errors
from redouble._layers.limits.rate.pacing import CLOCK_TOLERANCE, GcraPacer
from redouble._runtime.slots import Lease, Slots
from tests.support.bulkhead_callers import A_MINUTE
from tests.support.fakes import COLOURS, in_colour
from tests.support.thread_switching import switching

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures(switching.__name__)]

A_THIRD = 1 / 3


# ---------------------------------------------------------------------------------- slots


@settings(max_examples=50)
@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(st.sampled_from(["acquire", "acquire", "release", "reconfigure"]), st.integers(0, 6)),
        max_size=60,
    ),
)
def test_slots_while_the_limit_changes(limit: int, steps: list[tuple[str, int]]) -> None:
    """A waiter is admitted as soon as there is a slot, in order; no other call is."""
    slots, leases_in_use, woken = Slots(limit), list[Lease](), list[Lease]()
    for action, number in steps:
        before = len(slots.leases)
        if action == "acquire":
            lease = Lease()
            leases_in_use.append(lease)
            if not slots.try_acquire(lease):
                slots.enqueue(lease, lambda lease=lease: woken.append(lease), 99)  # type: ignore[misc]
        elif action == "reconfigure":
            slots.resize(number + 1)
        elif leases_in_use:
            ended = leases_in_use.pop(number % len(leases_in_use))
            slots.stop_waiting(ended)
            slots.release(ended)
        in_flight = len(slots.leases)
        assert in_flight <= max(before, slots.limit)
        assert not slots.queue or in_flight >= slots.limit
        assert slots.leases <= set(leases_in_use)
        assert list(slots.queue) == [lease for lease in leases_in_use if lease in slots.queue]
    assert len(woken) == len(set(woken))
    for lease in leases_in_use:
        slots.release(lease)
    assert not slots.leases
    assert not slots.queue


@pytest.mark.parametrize("colour", COLOURS)
def test_calls_while_the_limit_goes_up_and_down(colour: str) -> None:
    gate, in_flight, most, finished = Bulkhead(4, None), set[object](), list[int](), list[int]()

    @gate
    def work(number: int) -> None:
        me = object()
        in_flight.add(me)
        most.append(len(in_flight))
        in_flight.discard(me)
        finished.append(number)

    @gate
    async def awork(number: int) -> None:
        me = object()
        in_flight.add(me)
        await SYSTEM.asleep(0)
        most.append(len(in_flight))
        in_flight.discard(me)
        finished.append(number)

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
    assert len(finished) == 600
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
def test_permits_while_the_rate_changes(changes: list[tuple[float, int, list[float]]]) -> None:
    """Whatever the settings, in any t seconds at most t / interval + burst calls are admitted."""
    pacer, now = GcraPacer(1, 1), 1000.0
    pacer.close_fast_path()
    for interval, burst, waits in changes:
        pacer.reconfigure(interval, burst, now)
        free = pacer.available(now)
        passed: list[float] = []
        assert pacer.due(now) <= interval + CLOCK_TOLERANCE
        assert 0 <= free <= burst
        for wait in waits:
            now += wait
            if not pacer.due(now):
                pacer.take(now)
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
def test_spending_while_the_settings_change(thing: Any, others: list[Any]) -> None:
    """However often they change, a hundred retries are granted: none is lost or added."""
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
    assert breaker._circuit.epoch.calls == breaker._circuit.epoch.probes == {}
    assert breaker.state == "closed"
