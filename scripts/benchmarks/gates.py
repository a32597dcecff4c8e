"""The cost of gates that admit every call, compared with a closed breaker, of an idle hedge, and of a key.

The hand-written rate limit and concurrency limit acquire a lock before and after the call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from time import monotonic, perf_counter_ns

from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample, async_calls, calls, race
from benchmarks.workloads import AsyncCall, Call, awork, work
from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    CircuitBreaker,
    Coalesce,
    Hedge,
    Keyed,
    Layer,
    RateLimit,
    Throttle,
)
from redouble._runtime.backend import cancel_after

ROOMY = 1e9  # calls a second
LONG = 30.0  # seconds
HALF_A_MICROSECOND, THREE_MICROSECONDS = 500.0, 3000.0  # nanoseconds

BREAKER, TIMER, NO_KEY, NO_SHARES = "closed breaker", "our timer", "no key", "no shares"
UNSHARED = "a task that waits"

row = partial(Row, about="gates")


def is_fine(result: int) -> bool:
    """Accept a result: the rule of a gate that judges results."""
    return result >= 0


class Bucket:
    """A hand-written rate limit: a token bucket with a lock."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._when = burst, monotonic()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Take a token, or fail."""
        with self._lock:
            now = monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._when) * self._rate)
            self._when = now
            if self._tokens < 1:
                raise RuntimeError("too fast")
            self._tokens -= 1


bucket = Bucket(ROOMY, 10)
lock = threading.Lock()
under_way = 0


def rate_by_hand(x: int) -> int:
    """Limit the rate."""
    bucket.take()
    return work(x)


def concurrency_by_hand(x: int) -> int:
    """Limit the calls in flight, and time each."""
    global under_way  # noqa: PLW0603  as in hand-written code
    with lock:
        if under_way >= 20:
            raise RuntimeError("too many")
        under_way += 1
    started = monotonic()
    try:
        return work(x)
    finally:
        with lock:
            under_way -= 1
            latencies[0] = monotonic() - started


latencies = [0.0]

GATES: dict[str, tuple[Layer, Call | None]] = {
    "rate limit with room": (RateLimit(ROOMY, burst=10), rate_by_hand),
    "adaptive rate, never throttled": (AdaptiveRate(), None),
    "throttle of a service that is well": (Throttle(), None),
    "adaptive concurrency with room": (AdaptiveConcurrency(), concurrency_by_hand),
}


SHARES = {"interactive": 0.6, "batch": 0.1}
BULKHEADS = {
    "the class of the context": Bulkhead(10, shares=SHARES),
    "the class of the arguments": Bulkhead(10, shares=SHARES, priority=lambda _: "batch"),
}


def gates(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    closed = CircuitBreaker()(work)
    for name, (gate, by_hand) in GATES.items():
        shapes: dict[str, Call] = {"redouble": gate(work), BREAKER: closed}
        if by_hand is not None:
            shapes["by hand"] = by_hand
        timed = race({shape: calls(call) for shape, call in shapes.items()}, effort)
        yield row(f"{name}, sync success", timed, 1.5, base=BREAKER)
    for name, bulkhead in BULKHEADS.items():
        classes = {"redouble": calls(bulkhead(work)), NO_SHARES: calls(Bulkhead(10)(work))}
        yield row(f"bulkhead with shares, {name}, sync success", race(classes, effort), 2.0, base=NO_SHARES)
    judging = {"redouble": calls(CircuitBreaker(until=is_fine)(work)), BREAKER: calls(closed)}
    yield row("closed breaker that judges results, sync success", race(judging, effort), 1.3, base=BREAKER)
    with asyncio.Runner() as runner:
        aclosed = async_calls(runner, CircuitBreaker()(awork))
        for name, (gate, _) in GATES.items():
            samples = {"redouble": async_calls(runner, gate(awork)), BREAKER: aclosed}
            yield row(f"{name}, async success", race(samples, effort), 1.5, base=BREAKER)
        aplain = async_calls(runner, Bulkhead(10)(awork))
        for name, bulkhead in BULKHEADS.items():
            samples = {"redouble": async_calls(runner, bulkhead(awork)), NO_SHARES: aplain}
            work_done = f"bulkhead with shares, {name}, async success"
            yield row(work_done, race(samples, effort), 2.0, base=NO_SHARES)
        judging = {"redouble": async_calls(runner, CircuitBreaker(until=is_fine)(awork)), BREAKER: aclosed}
        yield row(
            "closed breaker that judges results, async success", race(judging, effort), 1.3, base=BREAKER
        )
        for name, hedge in (("fixed", Hedge(LONG)(awork)), ("learned", learned(runner))):
            samples = {"redouble": async_calls(runner, hedge), TIMER: async_calls(runner, timed_by_us)}
            work_done = f"hedge that does not fire, its delay {name}"
            yield row(work_done, race(samples, effort), 2.0, base=TIMER)
        yield coalesced(runner, effort)
    yield keyed(effort)


async def timed_by_us(x: int) -> int:
    """Await a call with a time limit of redouble's timer."""
    with cancel_after(LONG):
        return await awork(x)
    raise AssertionError("this was not to take that long")


def learned(runner: asyncio.Runner) -> AsyncCall:
    """Return a hedged function that has learned its delay."""
    hedged = Hedge()(awork)

    async def learn() -> None:
        for x in range(1000):
            await hedged(x)

    runner.run(learn())
    return hedged


def coalesced(runner: asyncio.Runner, effort: Effort) -> Row:
    """Measure tasks that share a call in flight, beside tasks that wait by themselves."""
    variants = {"redouble": shared_by_us, "by hand": shared_by_hand, UNSHARED: unshared}
    taken = race({name: partial(in_flight, runner, share) for name, share in variants.items()}, effort)
    added = taken["redouble"].best - taken[UNSHARED].best
    problems = () if added <= THREE_MICROSECONDS else (f"{added:.0f} ns more, to reach <= 3 us",)
    return row("a task that shares a call in flight, async success", taken, None, problems=problems)


Release = asyncio.Event
SharedCall = Callable[[], Coroutine[object, object, object]]


def unshared(release: Release) -> SharedCall:
    """Return a function that waits, and that calls do not share."""
    return release.wait


def shared_by_us(release: Release) -> SharedCall:
    """Return a function that waits, and that concurrent calls share."""
    return Coalesce()(release.wait)


def shared_by_hand(release: Release) -> SharedCall:
    """Return the same with a table of tasks."""
    tasks = dict[str, asyncio.Task[bool]]()

    async def share() -> bool:
        task = tasks.get("key")
        if task is None:
            task = tasks["key"] = asyncio.ensure_future(release.wait())
            task.add_done_callback(lambda _: tasks.pop("key"))
        return await asyncio.shield(task)

    return share


def in_flight(runner: asyncio.Runner, share: Callable[[Release], SharedCall], count: int) -> float:
    """Return the nanoseconds of each of so many calls that share one."""

    async def sample() -> float:
        release = asyncio.Event()
        call = share(release)
        first = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        started = perf_counter_ns()
        others = [asyncio.ensure_future(call()) for _ in range(count)]
        await asyncio.sleep(0)
        release.set()
        await first
        for other in others:
            await other
        return (perf_counter_ns() - started) / count

    return runner.run(sample())


def keyed(effort: Effort) -> Row:
    """Measure the cost that the lookup of a key adds to a call through a breaker."""
    variants: dict[str, Sample] = {
        "redouble": calls(Keyed(lambda x: x, CircuitBreaker)(work)),
        NO_KEY: calls(CircuitBreaker()(work)),
    }
    taken = race(variants, effort)
    added = taken["redouble"].best - taken[NO_KEY].best
    problems = () if added <= HALF_A_MICROSECOND else (f"{added:.0f} ns more, to reach <= 500 ns",)
    return row("a breaker for each key, sync success", taken, None, base=NO_KEY, problems=problems)
