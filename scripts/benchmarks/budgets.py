"""The cost of a retry budget: crediting a success, granting a retry, and its memory.

The base is httpware's budget. It reads the clock itself; redouble's receives the time as an argument, so the
sample reads the clock for it, as the engine does. The base of the token bucket is a hand-written one.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count as steps
from itertools import repeat
from threading import Lock
from time import monotonic

import httpware

from benchmarks.handwritten_guards import Bucket
from benchmarks.handwritten_retry import looped
from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample, Timing, calls, race, statement
from benchmarks.workloads import Call, work
from redouble import Grant, Kind, RetryBudget, TokenBucket, retry

ENOUGH = 1e9  # retries a second, so that all are granted
WINDOWS = 40  # of ten seconds, which pass while the memory is measured
GRANTED = "if not {}: raise AssertionError('this was to be granted')"


def budgets(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    row = partial(Row, about="guards", base="httpware")
    yield row("budget, a credit", race(lines("theirs.deposit()", "ours.credit(None, now())"), effort), 0.6)
    grant = lines(GRANTED.format("theirs.try_withdraw()"), GRANTED.format("ours.spend(kind, now())"))
    yield row("budget, a grant", race(grant, effort), 1.1)
    turns = lines(
        "theirs.deposit(); theirs.try_withdraw()", "ours.credit(None, now()); ours.spend(kind, now())"
    )
    yield row("budget, a credit and a grant in turn", race(turns, effort), None)
    yield row("budget, what it adds to a successful call", added(effort), None)
    yield memory(effort.budgeted)
    row = partial(Row, about="guards")
    yield row("budget in flight, what it adds to a successful call", added_in_flight(effort), None)
    full = tokens("bucket.credit(1)", "bucket.credit(None, 0.0)")
    yield row("token bucket, a credit when it is full", race(full, effort), None)
    paid = tokens("bucket.spend(5); bucket.credit(5)", "bucket.credit(bucket.spend(kind, 0.0), 0.0)")
    yield row("token bucket, a grant and its credit", race(paid, effort), None)


def lines(theirs: str, ours: str) -> dict[str, Sample]:
    """Sample the same operations of httpware's budget and of redouble's."""
    budget = RetryBudget(per_second=ENOUGH)
    return {
        "httpware": statement(theirs, theirs=httpware.RetryBudget(min_retries_per_sec=ENOUGH)),
        "redouble": statement(ours, ours=budget, now=monotonic, kind=Kind.unknown),
    }


def tokens(by_hand: str, ours: str) -> dict[str, Sample]:
    """Sample the same operations of a hand-written bucket and of redouble's; neither reads a clock."""
    return {
        "by hand": statement(by_hand, bucket=Bucket()),
        "redouble": statement(ours, bucket=TokenBucket(), kind=Kind.unknown),
    }


def added(effort: Effort) -> dict[str, Timing]:
    """Measure calls with a budget minus calls without; httpware's budget is in the hand-written loop."""
    theirs = httpware.RetryBudget()

    def credited(x: int) -> int:
        result = looped(x)
        theirs.deposit()
        return result

    variants: dict[str, tuple[Call, Call]] = {
        "redouble": (
            retry(on=ConnectionError)(work),
            retry(on=ConnectionError, budget=RetryBudget())(work),
        ),
        "httpware": (looped, credited),
    }
    return difference(variants, effort)


def difference(variants: dict[str, tuple[Call, Call]], effort: Effort) -> dict[str, Timing]:
    """Measure, for each name, the second call minus the first."""
    samples: dict[str, Sample] = {}
    for name, (bare, budgeted) in variants.items():
        samples |= {f"{name} without": calls(bare), name: calls(budgeted)}
    taken = race(samples, effort)
    without = {name: taken[f"{name} without"] for name in variants}
    return {
        name: Timing(taken[name].best - without[name].best, taken[name].median - without[name].median)
        for name in variants
    }


def added_in_flight(effort: Effort) -> dict[str, Timing]:
    """Measure calls that are counted as in flight minus calls that are not; by hand with a lock."""
    lock, in_flight = Lock(), [0]

    def counted(x: int) -> int:
        with lock:
            in_flight[0] += 1
        try:
            return looped(x)
        finally:
            with lock:
                in_flight[0] -= 1

    capped = RetryBudget(None, max_in_flight=0.2)
    bare = retry(on=ConnectionError)(work)
    variants: dict[str, tuple[Call, Call]] = {
        "redouble": (bare, retry(on=ConnectionError, budget=capped)(work)),
        "by hand": (looped, counted),
    }
    return difference(variants, effort)


def memory(count: int) -> Row:
    """Measure the memory of a budget after many calls; it must not have grown since half of them."""
    clock = steps(0.0, WINDOWS * 10 / count / 2).__next__
    sizes = {"redouble": sizes_of(our_use, clock, count), "httpware": sizes_of(their_use, clock, count)}
    halfway, size = sizes["redouble"]
    grown = f"{size - halfway:,} bytes more than after half of them"
    return Row(
        f"budget, memory after {count:,} calls",
        {name: Timing(size, size) for name, (_, size) in sizes.items()},
        None,
        base="httpware",
        unit="bytes",
        problems=(grown,) if size > halfway * 1.1 else (),
        about="guards",
    )


def our_use(clock: Callable[[], float]) -> Callable[[], object]:
    """Return a function that credits a new budget and spends from it once."""
    budget = RetryBudget(per_second=ENOUGH)

    def use() -> Grant | None:
        budget.credit(None, clock())
        return budget.spend(Kind.unknown, clock())

    return use


def their_use(clock: Callable[[], float]) -> Callable[[], object]:
    """Return a function that credits a new budget and spends from it once."""
    budget = httpware.RetryBudget(min_retries_per_sec=ENOUGH, _now=clock)

    def use() -> bool:
        budget.deposit()
        return budget.try_withdraw()

    return use


def sizes_of(
    made: Callable[[Callable[[], float]], Callable[[], object]], clock: Callable[[], float], count: int
) -> tuple[int, int]:
    """Return the memory allocated after half of the calls, and after all."""
    tracemalloc.start()
    try:
        use = made(clock)
        sizes: list[int] = []
        for _ in range(2):
            for _ in repeat(None, count // 2):
                use()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes[0], sizes[1]
    finally:
        tracemalloc.stop()
