"""tenacity: by default it retries every error without end, so all options are given.

The block reuses one `Retrying`, which is faster than creating one per block as its manual does.
``reraise`` raises the original error, as the other competitors do. Its time limits do not cancel a running
attempt.
"""

from __future__ import annotations

from tenacity import (
    Retrying,
    retry,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_exponential_jitter,
    wait_fixed,
    wait_none,
    wait_random,
)

from benchmarks.workloads import HOUR, Competitor, abroken, awork, broken, flaky, slow, work

on = retry_if_exception_type(ConnectionError)
in_time = stop_after_attempt(4) | stop_after_delay(30)
jittered = wait_exponential_jitter(initial=0.2, max=2)
retrying = Retrying(retry=on, stop=in_time, wait=jittered, reraise=True)


def block(x: int) -> int:
    """Retry a block."""
    for attempt in retrying:
        with attempt:
            result = work(x)
    return result


def returning_block(x: int) -> int:
    """Return from inside a retried block."""
    for attempt in retrying:
        with attempt:
            return work(x)
    raise AssertionError("not reached")


COMPETITOR = Competitor(
    unlimited=retry(retry=on, stop=stop_after_attempt(4), wait=jittered, reraise=True)(work),
    defaults=retry(retry=on, stop=in_time, wait=jittered, reraise=True)(work),
    adefaults=retry(retry=on, stop=in_time, wait=jittered, reraise=True)(awork),
    block=block,
    returning_block=returning_block,
    two_failures=retry(retry=on, stop=in_time, wait=wait_none(), reraise=True)(flaky()),
    exhausted=retry(
        retry=on, stop=stop_after_attempt(3) | stop_after_delay(30), wait=wait_none(), reraise=True
    )(broken),
    asleep=retry(
        retry=on,
        stop=stop_after_attempt(4),
        wait=wait_exponential(multiplier=HOUR, max=9 * HOUR) + wait_random(0, HOUR),
        reraise=True,
    )(abroken),
    limited=None,
    on_thread=None,
    in_a_second=retry(
        retry=on, stop=stop_after_attempt(4) | stop_after_delay(1), wait=wait_fixed(2), reraise=True
    )(slow),
)
