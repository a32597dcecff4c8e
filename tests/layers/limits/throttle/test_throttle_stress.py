"""One throttle for threads and event loops at once: every call is counted once.

Threads switch every microsecond here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from redouble import SYSTEM, Throttle, errors
from tests.support.fakes import Boom, Draws
from tests.support.layers.limits.throttles import NEVER
from tests.support.thread_switching import run_in_threads, switching

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures(switching.__name__)]

THREADS = 8
CALLS = 400


def fail() -> None:
    raise Boom


async def asucceed() -> None:
    await SYSTEM.asleep(0)


async def afail() -> None:
    await SYSTEM.asleep(0)
    raise Boom


def calling(throttle: Throttle, *works: Callable[[], object]) -> Callable[[str], None]:
    def work(owner: str) -> None:
        for number in range(CALLS):
            with suppress(Boom, errors.Rejected):
                throttle.call(works[number % len(works)])

    return work


def entering(throttle: Throttle) -> Callable[[str], None]:
    def work(owner: str) -> None:
        for _ in range(CALLS):
            with throttle:
                pass

    return work


def looping(throttle: Throttle, *works: Callable[[], Awaitable[object]]) -> Callable[[str], None]:
    async def acall(work: Callable[[], Awaitable[object]]) -> None:
        with suppress(Boom, errors.Rejected):
            await throttle.call(work)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(CALLS):
                tasks.create_task(acall(works[number % len(works)]))

    return lambda _: asyncio.run(main())


def test_no_successful_call_is_miscounted() -> None:
    """They are counted without a lock."""
    throttle = Throttle(window=1e6)
    works = (calling(throttle, int), looping(throttle, asucceed), entering(throttle), calling(throttle, int))
    run_in_threads(*works, threads=THREADS)
    assert throttle.snapshot() == {"share": 0, "requests": THREADS * CALLS, "accepts": THREADS * CALLS}


def test_no_call_is_miscounted_when_some_fail() -> None:
    throttle = Throttle(window=1e6, random=Draws(NEVER))
    run_in_threads(calling(throttle, int, fail), looping(throttle, asucceed, afail), threads=THREADS)
    counts = throttle.snapshot()
    assert (counts["requests"], counts["accepts"]) == (THREADS * CALLS, THREADS * CALLS // 2)


def test_no_call_is_miscounted_while_snapshots_are_taken() -> None:
    """A snapshot moves the calls counted so far into the window."""
    throttle = Throttle(window=1e6, random=Draws(NEVER))
    not_accepted: list[float] = []

    def take_snapshots(owner: str) -> None:
        for _ in range(CALLS):
            seen = throttle.snapshot()
            not_accepted.append(seen["requests"] - seen["accepts"])

    run_in_threads(calling(throttle, int), take_snapshots, threads=THREADS)
    assert throttle.snapshot()["accepts"] == THREADS * CALLS // 2
    assert set(not_accepted) == {0}


def test_rejected_calls_are_counted_too() -> None:
    throttle, called = Throttle(window=1e6, random=Draws(0.0)), list[None]()
    with suppress(Boom):
        throttle.call(fail)
    run_in_threads(calling(throttle, lambda: called.append(None)), threads=THREADS)
    assert not called
    assert throttle.snapshot()["requests"] == THREADS * CALLS + 1
