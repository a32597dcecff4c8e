"""A rate limit under contention: no permit is lost and none is added, though waiters are cancelled.

Threads switch every microsecond here.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redouble
from redouble import SYSTEM, RateLimit, errors
from redouble._internal.locks import gil
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import ASYNC, COLOURS, in_colour
from tests.support.layers.limits.wait_queues import LOOPS, with_tasks
from tests.support.runtime.tasks import Task, gathered, settled
from tests.support.thread_switching import switching

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures(switching.__name__)]


# -------------------------------------------------------------------------- cancellations


def expected(burst: int, leaves_at: list[float]) -> list[tuple[int, float]]:
    """Return which calls pass and when: all start at once, one passes a second, and each leaves at a time."""
    waiting, passed, second = list(enumerate(leaves_at)), list[tuple[int, float]](), 0
    while waiting:
        for _ in range(burst if not second else 1):
            waiting = [(number, until) for number, until in waiting if until > second]
            if waiting:
                passed.append((waiting.pop(0)[0], second))
        second += 1
    return passed


@LOOPS
@settings(max_examples=25)
@given(
    st.integers(1, 3),
    st.lists(st.sampled_from([inf, inf, 0.25, 0.5, 1.5, 2.5, 3.25]), min_size=1, max_size=8),
)
def test_calls_pass_as_if_the_cancelled_waiters_had_never_been_there(
    colour: str, burst: int, leaves_at: list[float]
) -> None:
    limit, passed = RateLimit(1, burst=burst), list[tuple[int, float]]()

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        async def pass_through(number: int) -> None:
            passed.append((number, clock.now()))

        tasks: list[Task] = []
        for number in range(len(leaves_at)):
            tasks.append(start(partial(limit.call, pass_through, number)))
            await settled(colour)
        for moment in sorted({*leaves_at} - {inf}):
            await SYSTEM.asleep(moment - clock.now())
            for task, until in zip(tasks, leaves_at, strict=True):
                if until == moment:
                    task.cancel()
            await settled(colour)
        await SYSTEM.asleep(20)
        assert limit.snapshot() == {"rate": 1, "available": burst, "queued": 0, "retry_after": 0}

    with_tasks(colour, main)
    assert passed == expected(burst, leaves_at)


# ------------------------------------------------------------------------------- threads

THREADS, ROUNDS, TRIES = 6, 15, 8


@pytest.mark.parametrize(("rate", "burst", "step"), [(10, 1, 0.1), (10, 5, 0.3), (4, 16, 4.0)])
def test_threads_take_every_permit_and_not_one_more(rate: float, burst: int, step: float) -> None:
    """Every round has more tries than permits; between the rounds the clock is advanced."""
    limit = RateLimit(rate, burst=burst, wait=0)
    counts: list[int] = []
    passed: list[None] = []

    def run() -> None:
        for _ in range(ROUNDS):
            barrier.wait()
            for _ in range(TRIES):
                try:
                    limit.call(passed.append, None)
                except errors.RateLimited:
                    limit.snapshot()
            barrier.wait()

    with virtual_time() as clock:

        def end_round() -> None:
            if rounds.pop():
                counts.append(len(passed))
                clock.advance(step)

        rounds = [False, True] * ROUNDS
        rounds.reverse()
        barrier = threading.Barrier(THREADS, action=end_round)
        threads = [threading.Thread(target=copy_context().run, args=[run]) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    each = min(burst, round(rate * step))
    assert counts == [burst + each * number for number in range(ROUNDS)]


@pytest.mark.parametrize("shares", [None, {"odd": 0.5, "even": 0.5}])
@pytest.mark.parametrize("window", ["sliding", "fixed"])
def test_threads_share_a_window_whatever_their_calls_cost(
    window: Any, shares: dict[str, float] | None
) -> None:
    """In every round all of the limit is taken and not more; every thread tries costs from 1 to 4."""
    limit = RateLimit(20, window=window, wait=0, shares=shares)
    taken: list[int] = []
    rounds: list[int] = []

    def run(number: int) -> None:
        with redouble.priority("odd" if number % 2 else "even"):
            for _ in range(ROUNDS):
                barrier.wait()
                for cost in (4, 3, 2, 1, 1, 1):
                    with suppress(errors.RateLimited):
                        limit.acquire(cost)
                        taken.append(cost)
                barrier.wait()

    with virtual_time() as clock:

        def end_round() -> None:
            if ends.pop():
                rounds.append(sum(taken))
                taken.clear()
                clock.advance(2.5)  # in which refused calls stop counting as waiting

        ends = [False, True] * ROUNDS
        ends.reverse()
        barrier = threading.Barrier(THREADS, action=end_round)
        threads = [
            threading.Thread(target=copy_context().run, args=[run, number]) for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(rounds) <= 20
    assert min(rounds) >= (20 if shares is None else 10)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_threads_and_tasks_of_all_colours_at_once(share: float) -> None:
    """A ``share`` of the tasks is cancelled; all other calls pass, and never above the rate."""
    rate, burst, calls = 4000.0, 5, 60
    limit, chance, failures = RateLimit(rate, burst=burst), random.Random(7), list[BaseException]()
    passed: list[None] = []

    async def awork() -> None:
        passed.append(None)

    def main(colour: str) -> None:
        def blocking() -> None:
            for _ in range(calls):
                limit.call(passed.append, None)

        async def waiting() -> None:
            await gathered(colour, [limit(awork)] * calls, lambda: chance.random() < share)

        try:
            start.wait()
            in_colour(colour, blocking, waiting)
        except BaseException as error:
            failures.append(error)

    start = threading.Barrier(len(COLOURS))
    threads = [threading.Thread(target=main, args=[colour]) for colour in COLOURS]
    began = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    most = rate * (monotonic() - began) + burst
    assert failures == []
    assert len(passed) <= most
    started = calls * len(COLOURS)
    assert started - calls * len(ASYNC) * bool(share) <= len(passed) <= started
    assert limit.snapshot()["queued"] == 0
    assert (limit._pacer.fast_arrival_time < inf) == gil.enabled  # without a GIL every call takes the lock


def test_the_forced_way_is_in_force(request: pytest.FixtureRequest) -> None:
    """`conftest.py` runs this module twice: once it has to find a GIL, and once none."""
    assert gil.enabled is request.node.callspec.params["gil_enabled"]
