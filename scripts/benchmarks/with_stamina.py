"""stamina: its instrumentation is off, as in a program without structlog and Prometheus.

Its defaults are ten attempts within 45 seconds; here four within 30, as for the others. Its time limits do
not cancel a running attempt.
"""

from __future__ import annotations

import stamina

from benchmarks.workloads import HOUR, Competitor, abroken, awork, broken, flaky, slow, work

stamina.instrumentation.set_on_retry_hooks([])


def block(x: int) -> int:
    """Retry a block."""
    for attempt in stamina.retry_context(on=ConnectionError, attempts=4, timeout=30):
        with attempt:
            result = work(x)
    return result


def returning_block(x: int) -> int:
    """Return from inside a retried block."""
    for attempt in stamina.retry_context(on=ConnectionError, attempts=4, timeout=30):
        with attempt:
            return work(x)
    raise AssertionError("not reached")


COMPETITOR = Competitor(
    unlimited=stamina.retry(on=ConnectionError, attempts=4, timeout=None)(work),
    defaults=stamina.retry(on=ConnectionError, attempts=4, timeout=30)(work),
    adefaults=stamina.retry(on=ConnectionError, attempts=4, timeout=30)(awork),
    block=block,
    returning_block=returning_block,
    two_failures=stamina.retry(
        on=ConnectionError, attempts=4, timeout=30, wait_initial=0, wait_max=0, wait_jitter=0
    )(flaky()),
    exhausted=stamina.retry(
        on=ConnectionError, attempts=3, timeout=30, wait_initial=0, wait_max=0, wait_jitter=0
    )(broken),
    asleep=stamina.retry(
        on=ConnectionError, attempts=4, timeout=None, wait_initial=HOUR, wait_max=9 * HOUR, wait_jitter=HOUR
    )(abroken),
    limited=None,
    on_thread=None,
    in_a_second=stamina.retry(
        on=ConnectionError, attempts=4, timeout=1, wait_initial=2, wait_max=2, wait_jitter=0
    )(slow),
)
