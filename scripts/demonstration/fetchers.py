"""Three clients of the flaky service: a single attempt, a hand-written loop, and Redouble.

The demonstration prints the source of the last two.
"""

from __future__ import annotations

import time

import redouble
from demonstration.http_client import UnavailableError, get
from demonstration.seeded_random import RandomPerCall
from redouble import Backoff


def plainly(port: int, path: str) -> bytes:
    """Make one attempt."""
    return get(port, path)


def by_hand(port: int, path: str) -> bytes:
    """Make up to three attempts, with a fixed delay."""
    attempts = 3
    while True:
        try:
            return get(port, path)
        except Exception:
            attempts -= 1
            if not attempts:
                raise
            time.sleep(0.2)


def as_asked(error: Exception) -> float | None:
    """Retry a 503 after its Retry-After."""
    if isinstance(error, UnavailableError):
        return error.retry_after
    return None


@redouble.retry(
    on=[as_asked, redouble.transient],
    attempts=6,
    backoff=Backoff.exponential(0.05).full_jitter(),
    give_up_after=10,
)
def fetch(port: int, path: str) -> bytes:
    """Make up to six attempts, within ten seconds."""
    return get(port, path)


# With seeded jitter, so that every run prints the same.
seeded_fetch = redouble.variant(fetch, random=RandomPerCall())
