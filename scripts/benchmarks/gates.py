"""The cost of gates that admit every call, compared with a closed breaker, of an idle hedge, and of a key.

The hand-written rate limit and concurrency limit acquire a lock before and after the call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
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
HALF_A_MICROSECOND = 500.0  # nanoseconds

BREAKER, TIMER, NO_KEY, NO_SHARES = "closed breaker", "our timer", "no key", "no shares"
OWN_FUTURE = "a future for each"

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
        judging = {"redouble": async_calls(runner, CircuitBreaker(until=is_fine)(awork)), BREAKER: aclosed}
        yield row(
            "closed breaker that judges results, async success", race(judging, effort), 1.3, base=BREAKER
        )
        for name, hedge in (("fixed", Hedge(LONG)(awork)), ("learned", learned(runner))):
            samples = {"redouble": async_calls(runner, hedge), TIMER: async_calls(runner, timed_by_us)}
            work_done = f"hedge that does not fire, its delay {name}"
            yield row(work_done, race(samples, effort), 2.0, base=TIMER)
        shared = {"redouble": together(runner, Coalesce()), OWN_FUTURE: together(runner, None)}
        yield row("coalesced call that shares another, async", race(shared, effort), 6.0, base=OWN_FUTURE)
    yield keyed(effort)


def together(runner: asyncio.Runner, layer: Coalesce | None) -> Sample:
    """Sample identical calls in flight at once, each in a task; without a layer each has a future."""

    async def sample(count: int) -> float:
        loop = asyncio.get_running_loop()
        end, futures = loop.create_future(), list[asyncio.Future[int]]()

        async def shared(_: int) -> int:
            return await end

        async def alone(_: int) -> int:
            futures.append(loop.create_future())
            return await futures[-1]

        call = alone if layer is None else layer(shared)
        tasks = [asyncio.ensure_future(call(1)) for _ in range(count)]
        started = perf_counter_ns()
        await asyncio.sleep(0)
        end.set_result(1)
        for future in futures:
            future.set_result(1)
        for task in tasks:
            await task
        return (perf_counter_ns() - started) / count

    return lambda count: runner.run(sample(count))


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
