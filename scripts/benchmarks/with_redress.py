"""redress: its decorator, without hooks. It has no block, and always a time limit.

That limit does not cancel a running attempt; the limit of an attempt does, so the rows about time limits use
both.
"""

from __future__ import annotations

from redress import BackoffContext, ErrorClass, retry
from redress.strategies import decorrelated_jitter

from benchmarks.workloads import HOUR, AsyncCall, Competitor, abroken, awork, broken, flaky, slow, work

jittered = decorrelated_jitter(base_s=0.2, max_s=2)


def classify(error: BaseException) -> ErrorClass:
    """Retry `ConnectionError`, like the other competitors."""
    return ErrorClass.TRANSIENT if isinstance(error, ConnectionError) else ErrorClass.PERMANENT


def none(_: BackoffContext) -> float:
    """Return no delay."""
    return 0.0


def two_seconds(_: BackoffContext) -> float:
    """Return a delay of two seconds."""
    return 2.0


def limited(fn: AsyncCall, seconds: float) -> AsyncCall:
    """Retry with a time limit."""
    return retry(
        classifier=classify,
        max_attempts=4,
        strategy=jittered,
        deadline_s=seconds,
        attempt_timeout_s=seconds,
    )(fn)


COMPETITOR = Competitor(
    unlimited=retry(classifier=classify, max_attempts=4, strategy=jittered, deadline_s=1000 * HOUR)(work),
    defaults=retry(classifier=classify, max_attempts=4, strategy=jittered, deadline_s=30)(work),
    adefaults=retry(classifier=classify, max_attempts=4, strategy=jittered, deadline_s=30)(awork),
    block=None,
    returning_block=None,
    two_failures=retry(classifier=classify, max_attempts=4, strategy=none, deadline_s=30)(flaky()),
    exhausted=retry(classifier=classify, max_attempts=3, strategy=none, deadline_s=30)(broken),
    asleep=retry(
        classifier=classify,
        max_attempts=4,
        strategy=decorrelated_jitter(base_s=HOUR, max_s=9 * HOUR),
        deadline_s=1000 * HOUR,
    )(abroken),
    limited=limited,
    on_thread=retry(
        classifier=classify, max_attempts=4, strategy=jittered, deadline_s=30, attempt_timeout_s=30
    )(work),
    in_a_second=retry(
        classifier=classify, max_attempts=4, strategy=two_seconds, deadline_s=1, attempt_timeout_s=1
    )(slow),
)
