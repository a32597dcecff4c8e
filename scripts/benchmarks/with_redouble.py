"""Redouble, as a user has it: the decorator, and a policy around a block."""

from __future__ import annotations

from benchmarks.work import HOUR, AsyncCall, Competitor, abroken, awork, broken, flaky, slow, work
from redouble import Backoff, Retry, Worker, retry

# The defaults: four attempts, full jitter up to two seconds, 30 seconds in all.
policy = Retry(on=ConnectionError)


def block(x: int) -> int:
    """Retry a block."""
    for attempt in policy:
        with attempt:
            result = work(x)
    return result


def limited(fn: AsyncCall, seconds: float) -> AsyncCall:
    """Retry within so many seconds."""
    return retry(on=ConnectionError, timeout=seconds)(fn)


COMPETITOR = Competitor(
    unlimited=retry(on=ConnectionError, give_up_after=None)(work),
    defaults=retry(work),
    adefaults=retry(awork),
    block=block,
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
