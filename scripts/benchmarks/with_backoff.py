"""backoff: a decorator only, so there is no block. Its logger is off; it would log every retry.

Its time limit does not cancel a running attempt.
"""

from __future__ import annotations

import backoff

from benchmarks.workloads import HOUR, Competitor, abroken, awork, broken, flaky, slow, work

COMPETITOR = Competitor(
    unlimited=backoff.on_exception(
        backoff.expo, ConnectionError, max_tries=4, logger=None, factor=0.2, max_value=2
    )(work),
    defaults=backoff.on_exception(
        backoff.expo, ConnectionError, max_tries=4, max_time=30, logger=None, factor=0.2, max_value=2
    )(work),
    adefaults=backoff.on_exception(
        backoff.expo, ConnectionError, max_tries=4, max_time=30, logger=None, factor=0.2, max_value=2
    )(awork),
    block=None,
    returning_block=None,
    two_failures=backoff.on_exception(
        backoff.constant, ConnectionError, max_tries=4, max_time=30, jitter=None, logger=None, interval=0
    )(flaky()),
    exhausted=backoff.on_exception(
        backoff.constant, ConnectionError, max_tries=3, max_time=30, jitter=None, logger=None, interval=0
    )(broken),
    asleep=backoff.on_exception(
        backoff.expo,
        ConnectionError,
        max_tries=4,
        jitter=backoff.random_jitter,
        logger=None,
        factor=HOUR,
        max_value=9 * HOUR,
    )(abroken),
    limited=None,
    on_thread=None,
    in_a_second=backoff.on_exception(
        backoff.constant, ConnectionError, max_tries=4, max_time=1, jitter=None, logger=None, interval=2
    )(slow),
)
