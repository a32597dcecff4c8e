"""pyresilience: only its retry, without listeners.

It has no block, and no limit on time but a timeout that moves blocking calls to another thread: that
would measure the thread, so it stays off and "defaults" means its own.
"""

from __future__ import annotations

from pyresilience import RetryConfig, resilient

from benchmarks.work import HOUR, Competitor, abroken, awork, broken, flaky, work

on = (ConnectionError,)
jittered = RetryConfig(max_attempts=4, delay=0.2, max_delay=2, retry_on=on)

COMPETITOR = Competitor(
    unlimited=resilient(retry=jittered)(work),
    defaults=resilient(retry=jittered)(work),
    adefaults=resilient(retry=jittered)(awork),
    block=None,
    two_failures=resilient(retry=RetryConfig(max_attempts=4, delay=0, jitter=False, retry_on=on))(flaky()),
    exhausted=resilient(retry=RetryConfig(max_attempts=3, delay=0, jitter=False, retry_on=on))(broken),
    asleep=resilient(retry=RetryConfig(max_attempts=4, delay=HOUR, max_delay=9 * HOUR, retry_on=on))(abroken),
)
