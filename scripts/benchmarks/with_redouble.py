"""Redouble as users call it: the decorator, a policy around a block, and the layers around a function.

Its logger is off; it would log the first rejection of an open breaker.
"""

from __future__ import annotations

import logging

from benchmarks.workloads import (
    HOUR,
    AsyncCall,
    Competitor,
    Guards,
    abroken,
    awork,
    broken,
    flaky,
    slow,
    tripped,
    work,
    yielding,
)
from redouble import Backoff, Bulkhead, CircuitBreaker, Retry, Worker, retry

logging.getLogger("redouble").setLevel(logging.CRITICAL)

# The defaults: four attempts, full jitter up to two seconds, 30 seconds in all.
policy = Retry(on=ConnectionError)


def block(x: int) -> int:
    """Retry a block."""
    for attempt in policy:
        with attempt:
            result = work(x)
    return result


def returning_block(x: int) -> int:
    """Return from inside a retried block."""
    for attempt in policy:
        with attempt:
            return work(x)
    raise AssertionError("not reached")


def limited(fn: AsyncCall, seconds: float) -> AsyncCall:
    """Retry with a time limit."""
    return retry(on=ConnectionError, timeout=seconds)(fn)


COMPETITOR = Competitor(
    unlimited=retry(on=ConnectionError, give_up_after=None)(work),
    defaults=retry(work),
    adefaults=retry(awork),
    block=block,
    returning_block=returning_block,
    two_failures=retry(on=ConnectionError, backoff=Backoff.constant(0))(flaky()),
    exhausted=retry(on=ConnectionError, attempts=3, backoff=Backoff.constant(0))(broken),
    asleep=retry(
        on=ConnectionError,
        backoff=Backoff.exponential(HOUR).maximum(9 * HOUR).equal_jitter(),
        give_up_after=None,
    )(abroken),
    limited=limited,
    on_thread=retry(on=ConnectionError, timeout=30, worker=Worker())(work),
    in_a_second=retry(on=ConnectionError, timeout=1, backoff=Backoff.constant(2))(slow),
)

GUARDS = Guards(
    breaker=CircuitBreaker()(work),
    abreaker=CircuitBreaker()(awork),
    ratio=CircuitBreaker(ratio=0.5)(work),
    opened=tripped(CircuitBreaker(failures=1, cooldown=HOUR)(broken)),
    bulkhead=Bulkhead(10)(work),
    abulkhead=Bulkhead(10)(awork),
    contended=Bulkhead(2, wait=30)(yielding),
    pipeline=(Bulkhead(10) | policy | CircuitBreaker())(work),
)
