"""pyresilience: only its retry, without listeners; in the rows about guards, only its guards.

It has no block. Its only time limit is a timeout that moves blocking calls to another thread, which would
measure the thread; so it is off except in the rows about time limits, and "defaults" are its own.
"""

from __future__ import annotations

from pyresilience import BulkheadConfig, CircuitBreakerConfig, RetryConfig, TimeoutConfig, resilient

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

on = (ConnectionError,)
jittered = RetryConfig(max_attempts=4, delay=0.2, max_delay=2, retry_on=on)


def within(seconds: float) -> TimeoutConfig:
    """Return a timeout of the whole call, not of each attempt."""
    return TimeoutConfig(seconds=seconds, per_attempt=False)


def limited(fn: AsyncCall, seconds: float) -> AsyncCall:
    """Retry with a time limit."""
    retried: AsyncCall = resilient(retry=jittered, timeout=within(seconds))(fn)
    return retried


COMPETITOR = Competitor(
    unlimited=resilient(retry=jittered)(work),
    defaults=resilient(retry=jittered)(work),
    adefaults=resilient(retry=jittered)(awork),
    block=None,
    returning_block=None,
    two_failures=resilient(retry=RetryConfig(max_attempts=4, delay=0, jitter=False, retry_on=on))(flaky()),
    exhausted=resilient(retry=RetryConfig(max_attempts=3, delay=0, jitter=False, retry_on=on))(broken),
    asleep=resilient(retry=RetryConfig(max_attempts=4, delay=HOUR, max_delay=9 * HOUR, retry_on=on))(abroken),
    limited=limited,
    on_thread=resilient(retry=jittered, timeout=within(30))(work),
    in_a_second=resilient(
        retry=RetryConfig(max_attempts=4, delay=2, max_delay=2, jitter=False, retry_on=on), timeout=within(1)
    )(slow),
)

in_a_row = CircuitBreakerConfig(failure_threshold=5, recovery_timeout=30, success_threshold=1)
by_ratio = CircuitBreakerConfig(sliding_window_size=100, failure_rate_threshold=0.5, minimum_calls=20)
at_once = BulkheadConfig(max_concurrent=10, max_wait=1)

GUARDS = Guards(
    breaker=resilient(circuit_breaker=in_a_row)(work),
    abreaker=resilient(circuit_breaker=in_a_row)(awork),
    ratio=resilient(circuit_breaker=by_ratio)(work),
    opened=tripped(
        resilient(circuit_breaker=CircuitBreakerConfig(failure_threshold=1, recovery_timeout=HOUR))(broken)
    ),
    bulkhead=resilient(bulkhead=at_once)(work),
    abulkhead=resilient(bulkhead=at_once)(awork),
    contended=resilient(bulkhead=BulkheadConfig(max_concurrent=2, max_wait=30))(yielding),
    pipeline=resilient(bulkhead=at_once, retry=jittered, circuit_breaker=in_a_row)(work),
)
