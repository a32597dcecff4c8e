"""A rate limit that everybody wants at once: no permit is lost and none is made, whoever gives up waiting.

Threads switch every microsecond here.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from math import inf
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import SYSTEM, RateLimit, errors
from redouble.testing import VirtualClock, virtual_time
from tests.layers.limits.bulkhead.test_bulkhead_faults import Task, settled
from tests.layers.limits.bulkhead.test_bulkhead_stress import gathered
from tests.layers.limits.rate.test_wait_queue import LOOPS, with_tasks
from tests.support.fakes import ASYNC, COLOURS, in_colour


@pytest.fixture(autouse=True, scope="module")
def switching() -> Iterator[None]:
    """Switch threads every microsecond."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


# -------------------------------------------------------------------------- cancellations


def expected(burst: int, gone: list[float]) -> list[tuple[int, float]]:
    """Tell who passes when: all come at once, one passes a second, and each is ``gone`` at some moment."""
    waiting, passed, second = list(enumerate(gone)), list[tuple[int, float]](), 0
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
def test_whoever_gives_up_the_others_pass_as_if_it_had_never_come(
    colour: str, burst: int, gone: list[float]
) -> None:
    limit, came = RateLimit(1, burst=burst), list[tuple[int, float]]()

    async def main(clock: VirtualClock, start: Callable[..., Task]) -> None:
        async def pass_through(number: int) -> None:
            came.append((number, clock.now()))

        tasks: list[Task] = []
        for number in range(len(gone)):
            tasks.append(start(partial(limit.call, pass_through, number)))
            await settled(colour)
        for moment in sorted({*gone} - {inf}):
            await SYSTEM.asleep(moment - clock.now())
            for task, until in zip(tasks, gone, strict=True):
                if until == moment:
                    task.cancel()
            await settled(colour)
        await SYSTEM.asleep(20)
        assert limit.snapshot() == {"available": burst, "queued": 0, "retry_after": 0}

    with_tasks(colour, main)
    assert came == expected(burst, gone)


# ------------------------------------------------------------------------------- threads

THREADS, ROUNDS, TRIES = 6, 15, 8


@pytest.mark.parametrize(("rate", "burst", "step"), [(10, 1, 0.1), (10, 5, 0.3), (4, 16, 4.0)])
def test_threads_take_every_permit_and_not_one_more(rate: float, burst: int, step: float) -> None:
    """Rounds of more tries than there are permits, between which the clock is moved by hand."""
    limit = RateLimit(rate, burst=burst, wait=0)
    counts: list[int] = []
    came: list[None] = []

    def run() -> None:
        for _ in range(ROUNDS):
            gate.wait()
            for _ in range(TRIES):
                try:
                    limit.call(came.append, None)
                except errors.RateLimited:
                    limit.snapshot()
            gate.wait()

    with virtual_time() as clock:

        def turn() -> None:
            if rounds.pop():
                counts.append(len(came))
                clock.advance(step)

        rounds = [False, True] * ROUNDS
        rounds.reverse()
        gate = threading.Barrier(THREADS, action=turn)
        threads = [threading.Thread(target=copy_context().run, args=[run]) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    each = min(burst, round(rate * step))
    assert counts == [burst + each * number for number in range(ROUNDS)]


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_everybody_at_once(share: float) -> None:
    """Threads and loops, some of whose tasks are cancelled: all others pass, and not too many of them."""
    rate, burst, calls = 4000.0, 5, 60
    limit, chance, wrong = RateLimit(rate, burst=burst), random.Random(7), list[BaseException]()
    came: list[None] = []

    async def acome() -> None:
        came.append(None)

    def main(colour: str) -> None:
        def blocking() -> None:
            for _ in range(calls):
                limit.call(came.append, None)

        async def waiting() -> None:
            await gathered(colour, [limit(acome)] * calls, lambda: chance.random() < share)

        try:
            start.wait()
            in_colour(colour, blocking, waiting)
        except BaseException as error:
            wrong.append(error)

    start = threading.Barrier(len(COLOURS))
    threads = [threading.Thread(target=main, args=[colour]) for colour in COLOURS]
    began = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    most = rate * (monotonic() - began) + burst
    assert wrong == []
    assert len(came) <= most
    asked = calls * len(COLOURS)
    assert asked - calls * len(ASYNC) * bool(share) <= len(came) <= asked
    assert limit.snapshot()["queued"] == 0
    assert limit._pacer.fast_arrival_time < inf
