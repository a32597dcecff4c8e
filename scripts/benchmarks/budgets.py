"""What a budget costs: noting a success, allowing a retry, and the memory of it.

The measure is httpware's budget. That one reads the clock itself, and ours is told the time, so here the
clock is read for it: the call is the one that the engine makes. A token bucket is measured by one by hand.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count as steps
from itertools import repeat
from time import monotonic

import httpware

from benchmarks.by_hand import looped
from benchmarks.guards_by_hand import Bucket
from benchmarks.row import Row
from benchmarks.timing import Effort, Sample, Timing, calls, race, statement
from benchmarks.work import Call, work
from redouble import Grant, Kind, RetryBudget, TokenBucket, retry

ENOUGH = 1e9  # retries a second, so that all are granted
WINDOWS = 40  # of ten seconds, that pass while the memory is measured
GRANTED = "if not {}: raise AssertionError('this was to be granted')"


def budgets(effort: Effort) -> Iterator[Row]:
    """Measure."""
    row = partial(Row, about="guarding", base="httpware")
    yield row("budget, a credit", race(lines("theirs.deposit()", "ours.credit(None, now())"), effort), 0.6)
    grant = lines(GRANTED.format("theirs.try_withdraw()"), GRANTED.format("ours.spend(kind, now())"))
    yield row("budget, a grant", race(grant, effort), 1.1)
    turns = lines(
        "theirs.deposit(); theirs.try_withdraw()", "ours.credit(None, now()); ours.spend(kind, now())"
    )
    yield row("budget, a credit and a grant in turn", race(turns, effort), None)
    yield row("budget, what it adds to a successful call", added(effort), None)
    yield memory(effort.budgeted)
    row = partial(Row, about="guarding")
    full = tokens("bucket.credit(1)", "bucket.credit(None, 0.0)")
    yield row("token bucket, a credit when it is full", race(full, effort), None)
    paid = tokens("bucket.spend(5); bucket.credit(5)", "bucket.credit(bucket.spend(kind, 0.0), 0.0)")
    yield row("token bucket, a grant and its credit", race(paid, effort), None)


def lines(theirs: str, ours: str) -> dict[str, Sample]:
    """Say the same to httpware's budget and to ours."""
    budget = RetryBudget(per_second=ENOUGH)
    return {
        "httpware": statement(theirs, theirs=httpware.RetryBudget(min_retries_per_sec=ENOUGH)),
        "redouble": statement(ours, ours=budget, now=monotonic, kind=Kind.unknown),
    }


def tokens(by_hand: str, ours: str) -> dict[str, Sample]:
    """Say the same to a bucket by hand and to ours; neither looks at a clock."""
    return {
        "by hand": statement(by_hand, bucket=Bucket()),
        "redouble": statement(ours, bucket=TokenBucket(), kind=Kind.unknown),
    }


def added(effort: Effort) -> dict[str, Timing]:
    """Measure whole calls with a budget, and subtract the same without: theirs beside the loop by hand."""
    theirs = httpware.RetryBudget()

    def credited(x: int) -> int:
        result = looped(x)
        theirs.deposit()
        return result

    ways: dict[str, tuple[Call, Call]] = {
        "redouble": (
            retry(on=ConnectionError)(work),
            retry(on=ConnectionError, budget=RetryBudget())(work),
        ),
        "httpware": (looped, credited),
    }
    samples: dict[str, Sample] = {}
    for name, (bare, budgeted) in ways.items():
        samples |= {f"{name} without": calls(bare), name: calls(budgeted)}
    taken = race(samples, effort)
    less = {name: taken[f"{name} without"] for name in ways}
    return {
        name: Timing(taken[name].best - less[name].best, taken[name].median - less[name].median)
        for name in ways
    }


def memory(count: int) -> Row:
    """Measure what a budget takes after many calls; after half of them it was as much."""
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
        about="guarding",
    )


def our_use(clock: Callable[[], float]) -> Callable[[], object]:
    """Make a budget, and return what uses it once."""
    budget = RetryBudget(per_second=ENOUGH)

    def use() -> Grant | None:
        budget.credit(None, clock())
        return budget.spend(Kind.unknown, clock())

    return use


def their_use(clock: Callable[[], float]) -> Callable[[], object]:
    """Make a budget, and return what uses it once."""
    budget = httpware.RetryBudget(min_retries_per_sec=ENOUGH, _now=clock)

    def use() -> bool:
        budget.deposit()
        return budget.try_withdraw()

    return use


def sizes_of(
    made: Callable[[Callable[[], float]], Callable[[], object]], clock: Callable[[], float], count: int
) -> tuple[int, int]:
    """Measure the memory that is allocated halfway, and at the end."""
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
