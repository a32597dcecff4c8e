"""redress: its decorator, without hooks. It has no block, and it always has a limit on time."""

from __future__ import annotations

from redress import BackoffContext, ErrorClass, retry
from redress.strategies import decorrelated_jitter

from benchmarks.work import HOUR, Competitor, abroken, awork, broken, flaky, work

jittered = decorrelated_jitter(base_s=0.2, max_s=2)


def classify(error: BaseException) -> ErrorClass:
    """Retry the one type, as everywhere else here."""
    return ErrorClass.TRANSIENT if isinstance(error, ConnectionError) else ErrorClass.PERMANENT


def none(_: BackoffContext) -> float:
    """Wait for nothing."""
    return 0.0


COMPETITOR = Competitor(
    unlimited=retry(classifier=classify, max_attempts=4, strategy=jittered, deadline_s=1000 * HOUR)(work),
    defaults=retry(classifier=classify, max_attempts=4, strategy=jittered, deadline_s=30)(work),
    adefaults=retry(classifier=classify, max_attempts=4, strategy=jittered, deadline_s=30)(awork),
    block=None,
    two_failures=retry(classifier=classify, max_attempts=4, strategy=none, deadline_s=30)(flaky()),
    exhausted=retry(classifier=classify, max_attempts=3, strategy=none, deadline_s=30)(broken),
    asleep=retry(
        classifier=classify,
        max_attempts=4,
        strategy=decorrelated_jitter(base_s=HOUR, max_s=9 * HOUR),
        deadline_s=1000 * HOUR,
    )(abroken),
)
