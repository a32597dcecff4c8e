"""Calls through a `Throttle`, and a draw that admits every call."""

from __future__ import annotations

from redouble import Throttle
from tests.support.fakes import Boom

NEVER = 0.999_999_999  # a draw with which no call is rejected


def fails() -> None:
    """Fail."""
    raise Boom


def with_history(throttle: Throttle, good: int, bad: int, now: float = 0.0) -> Throttle:
    """Record successful and failed calls, and return the throttle."""
    for _ in range(good):
        throttle.ended(None, None, now)
    for _ in range(bad):
        throttle.ended(None, Boom(), now)
    return throttle
