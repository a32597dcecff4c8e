"""pyresilience: only its retry, without listeners.

It has no block, and no limit on time but a timeout that moves blocking calls to another thread: that
would measure the thread, so it is off but in the rows about limits, and "defaults" means its own.
"""

from __future__ import annotations

from pyresilience import RetryConfig, TimeoutConfig, resilient

from benchmarks.work import HOUR, AsyncCall, Competitor, abroken, awork, broken, flaky, slow, work

on = (ConnectionError,)
jittered = RetryConfig(max_attempts=4, delay=0.2, max_delay=2, retry_on=on)


def within(seconds: float) -> TimeoutConfig:
    """Limit the whole call, and not each attempt."""
    return TimeoutConfig(seconds=seconds, per_attempt=False)


def limited(fn: AsyncCall, seconds: float) -> AsyncCall:
    """Retry within so many seconds."""
    retried: AsyncCall = resilient(retry=jittered, timeout=within(seconds))(fn)
    return retried


COMPETITOR = Competitor(
    unlimited=resilient(retry=jittered)(work),
    defaults=resilient(retry=jittered)(work),
    adefaults=resilient(retry=jittered)(awork),
    block=None,
    two_failures=resilient(retry=RetryConfig(max_attempts=4, delay=0, jitter=False, retry_on=on))(flaky()),
    exhausted=resilient(retry=RetryConfig(max_attempts=3, delay=0, jitter=False, retry_on=on))(broken),
    asleep=resilient(retry=RetryConfig(max_attempts=4, delay=HOUR, max_delay=9 * HOUR, retry_on=on))(abroken),
    limited=limited,
    on_thread=resilient(retry=jittered, timeout=within(30))(work),
    in_a_second=resilient(
        retry=RetryConfig(max_attempts=4, delay=2, max_delay=2, jitter=False, retry_on=on), timeout=within(1)
    )(slow),
)
